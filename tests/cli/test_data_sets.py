"""The commands that make data sets from data sets."""

import json

from facerts.curation.rearrange import unpack
from facerts.datasets import open_source
from tests.command import printed_json, refused, run
from tests.contents import content, files_in


def test_split_and_pack(drawn_faces, tmp_path, capsys):
    a, b = tmp_path / "a", tmp_path / "b.tar"
    assert run("data", "split", drawn_faces, "--out", a, "--held-out", b, "--share", "0.25", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [part["identities"] for part in report["written"]] == [6, 2]
    # The output has full paths for the caller; the report may be shared.
    assert [part["path"] for part in report["written"]] == [str(a), str(b)]
    written = (tmp_path / "a.report.json").read_text()
    assert str(tmp_path) not in written
    command = "facerts data split faces --out a --held-out b.tar --share 0.25 --json"
    assert json.loads(written)["command"] == command.split()
    assert [part["path"] for part in json.loads(written)["written"]] == ["a", "b.tar"]
    assert run("data", "pack", a, b, "--out", tmp_path / "all.tar") == 0
    assert "64" in capsys.readouterr().out
    assert content(tmp_path / "all.tar") == content(drawn_faces)
    shards = ("--out", tmp_path / "s", "--shards", "3", "--seed", "5")
    assert run("data", "pack", tmp_path / "all.tar", "--shuffle", *shards) == 0
    assert content(str(tmp_path / "s" / "*.tar")) == content(drawn_faces)
    assert run("data", "pack", drawn_faces, "--out", tmp_path / "s") == 2
    assert "is there already" in capsys.readouterr().err


def test_dedup_by_bytes_and_by_embedding(drawn_faces, model, tmp_path, capsys):
    faces = tmp_path / "faces"
    unpack(open_source(drawn_faces), faces)
    (faces / "person_0001" / "again.jpg").write_bytes((faces / "person_0001" / "0000.jpg").read_bytes())
    (faces / "person_0002" / "broken.jpg").write_bytes(b"no")
    assert run("data", "dedup", faces, "--out", tmp_path / "h") == 0
    assert "equal bytes" in capsys.readouterr().out
    embedding = ["--by", "embedding", "--model", model, "--threshold", "0.99999", "--set", "threads=1"]
    assert run("data", "dedup", faces, "--out", tmp_path / "e", *embedding) == 1
    printed = capsys.readouterr()
    assert "near-duplicate" in printed.out
    assert "cosine to own identity" in printed.out
    assert "1 images could not be read" in printed.err
    dropped = json.loads((tmp_path / "e.report.json").read_text())["dropped"]["by_reason"]
    assert dropped == {"near-duplicate": 1, "cannot be read": 1}
    assert content(tmp_path / "e") == content(drawn_faces)


def test_dedup_refuses_options_without_effect(drawn_faces, tmp_path, capsys):
    for options, problem in (
        (["--threshold", "0.9"], "does not use embeddings; leave out --threshold"),
        (["--within-identities"], "does not use embeddings; leave out --within-identities"),
        (["--min-own-cosine", "0.3"], "--by hash does not use embeddings"),
        (["--by", "embedding", "--model", "none.onnx"], "none.onnx"),
    ):
        assert problem in refused(capsys, "data", "dedup", drawn_faces, "--out", tmp_path / "out", *options)
        assert files_in(tmp_path) == []


def test_exclude_overlap_reports_dropped_identities(drawn_faces, model, tmp_path, capsys):
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "1.jpg").write_bytes((drawn_faces / "person_0003" / "0000.jpg").read_bytes())
    options = ["--benchmark", bench, "--model", model, "--threshold", "0.9999", "--single-images"]
    assert run("data", "exclude-overlap", drawn_faces, *options, "--out", tmp_path / "out", "--dry-run") == 0
    assert "person_0003 (dropped)" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench", "out.dry-run.json"]
    report = printed_json(capsys, "data", "exclude-overlap", drawn_faces, *options, "--out", tmp_path / "out")
    assert report["overlap"]["left_out"][0]["identity"] == "person_0003"
    assert report["written"][0]["identities"] == 7
    assert "person_0003" not in open_source(tmp_path / "out").identities
