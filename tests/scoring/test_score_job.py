import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_images
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError, Error
from facerts.images import encode_jpeg
from facerts.scoring import Copies, ScoreJob, Task, load, run_job


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Forty images in two folders, one of them broken."""
    root = tmp_path_factory.mktemp("images")
    for number in range(40):
        path = root / f"{number % 2}" / f"{number:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode_jpeg(draw_face(number, 0)))
    (root / "0" / "04.jpg").write_bytes(b"\xff\xd8 cut")
    return root


@pytest.fixture(scope="module")
def scorer(model):
    return load(model, threads=1, batch_size=4)


def run(scorer, folder, out, task=None, block_size=7):
    source = open_images(folder)
    job = ScoreJob(out, source, scorer.settings(), block_size)
    job.begin(resume=True)
    run_job(scorer, source, job, task or Task())
    return job


def test_a_job_in_blocks_gives_the_same_rows_as_scoring(scorer, folder, tmp_path):
    job = run(scorer, folder, tmp_path / "rows.jsonl")
    rows = list(job.finish())
    source = open_images(folder)
    expected = scorer.score([source.location(index) for index in range(len(source))])
    assert [row.path for row in rows] == [row.path for row in expected]
    assert [row.error is None for row in rows] == [row.error is None for row in expected]
    assert sum(row.error is not None for row in rows) == 1
    assert [row.quality for row in rows if row.quality] == pytest.approx(
        [row.quality for row in expected if row.quality], rel=1e-5
    )
    written = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [entry["path"] for entry in written] == [row.path for row in rows]
    assert not job.folder.exists()


def test_whichever_blocks_are_lost_the_rows_are_the_same(scorer, folder, tmp_path):
    list(run(scorer, folder, tmp_path / "whole.csv").finish())
    for lost in ({0}, {5}, {2, 3}, {0, 1, 2, 3, 4, 5}):
        with run(scorer, folder, tmp_path / "part.csv") as job:
            for number in lost:
                (job.folder / f"{number:09d}.json").unlink()
            assert set(job.missing()) == lost
        list(run(scorer, folder, tmp_path / "part.csv").finish())
        assert (tmp_path / "part.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_an_unfinished_run_is_neither_overwritten_nor_mixed_with_another(scorer, folder, model, tmp_path):
    out = tmp_path / "rows.csv"
    run(scorer, folder, out).close()
    source = open_images(folder)
    with pytest.raises(Error, match=r"6 finished parts of an unfinished run; continue it with --resume"):
        ScoreJob(out, source, scorer.settings(), 7).begin(resume=False)
    none, small = {"detector": "none"}, {"detector": "none", "min_face_size": 9}
    for other, names in ((none, "detector"), (small, "detector, min_face_size")):
        settings = load(model, **other).settings()
        with pytest.raises(Error, match=rf"different settings \({names}\)"):
            ScoreJob(out, source, settings, 7).begin(resume=True)
    with pytest.raises(Error, match=r"different settings \(model_sha256\)"):
        ScoreJob(out, source, {**scorer.settings(), "model_sha256": "0"}, 7).begin(resume=True)
    with pytest.raises(Error, match=r"different settings \(images, images_sha256\)"):
        ScoreJob(out, open_images(folder / "0"), scorer.settings(), 7).begin(resume=True)
    (tmp_path / "other.csv.parts").mkdir()
    (tmp_path / "other.csv.parts" / "mine.txt").write_text("keep")
    with pytest.raises(Error, match="not from an unfinished run"):
        ScoreJob(tmp_path / "other.csv", source, scorer.settings(), 7).begin(resume=True)


@pytest.mark.parametrize("name", ["rows.csv.parts", ".rows.csv.parts.finished"])
def test_a_link_in_the_place_of_the_blocks_is_refused(scorer, folder, tmp_path, name):
    other = tmp_path / "other.csv"
    run(scorer, folder, other).close()
    (other.with_name("other.csv.parts") / "000000000.json").write_bytes(b"damaged")
    (tmp_path / name).symlink_to("other.csv.parts")
    before = sorted(path.read_bytes() for path in (tmp_path / name).iterdir())
    with pytest.raises(Error, match=rf"{name} is a link, .*; remove the link"):
        run(scorer, folder, tmp_path / "rows.csv")
    assert sorted(path.read_bytes() for path in (tmp_path / name).iterdir()) == before


def test_a_pipe_in_the_place_of_a_block_or_the_settings_is_not_waited_for(scorer, folder, tmp_path):
    out = tmp_path / "rows.csv"
    parts = tmp_path / "rows.csv.parts"
    run(scorer, folder, out).close()
    (parts / "000000002.json").unlink()
    os.mkfifo(parts / "000000002.json")
    with ScoreJob(out, open_images(folder), scorer.settings(), 7) as job:
        job.begin(resume=True)
        assert job.missing() == [2]
    (parts / "job.json").unlink()
    os.mkfifo(parts / "job.json")
    with pytest.raises(Error, match="not from an unfinished run"):
        run(scorer, folder, out)


def foreign(line):
    """A block of somebody else, whose checksum is right."""
    return lambda _: line + b"\n" + hashlib.sha256(b"2\n" + line).hexdigest().encode()


DAMAGE = {
    "other text": lambda content: b'{"rows": [{"path": "a"',
    "empty": lambda content: b"",
    "a row shorter": lambda content: content[content.index(b"}") + 1 :],
    "rows alone": lambda content: content.rpartition(b"\n")[0],
    "cut": lambda content: content[:-1],
    "longer": lambda content: content + b"\n",
    "no rows": foreign(b'{"rows": [5], "states": []}'),
    "no JSON": foreign(b"rows"),
    "other rows": foreign(b'{"rows": [{"path": 1, "reasons": []}], "states": []}'),
    "other columns": foreign(b'{"rows": [{"path": "a", "more": 1}], "states": []}'),
    "another form": foreign(b"null"),
    "other states": foreign(b'{"rows": [], "states": 5}'),
    "nested": foreign(b"[" * 99_999),
    "another digit": lambda content: content.replace(b'"quality":', b'"quality":1', 1),
}


def test_a_damaged_block_is_named_and_scored_again(scorer, folder, tmp_path):
    list(run(scorer, folder, tmp_path / "whole.csv").finish())
    source = open_images(folder)
    for name, damage in DAMAGE.items():
        out = tmp_path / f"{name}.csv"
        with run(scorer, folder, out) as job:
            block = job.folder / "000000002.json"
            block.write_bytes(damage(block.read_bytes()))
            with pytest.raises(DataError, match=r"000000002\.json: damaged, .* --resume"):
                list(job.finish())
            assert not out.exists()
        with ScoreJob(out, source, scorer.settings(), 7) as job:
            (sentence,) = job.begin(resume=True)
            assert "000000002.json: damaged" in sentence
            assert sentence.endswith("; what it had is done again")
            assert job.missing() == [2]
            run_job(scorer, source, job, Task())
            list(job.finish())
        assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    # A block under the number of another, and a missing one.
    with run(scorer, folder, tmp_path / "rows.csv") as job:
        shutil.copy(job.folder / "000000001.json", job.folder / "000000002.json")
        with pytest.raises(DataError, match=r"000000002\.json: damaged, the checksum"):
            list(job.finish())
        (job.folder / "000000002.json").unlink()
        with pytest.raises(DataError, match=r"000000002\.json: cannot be read .* --resume"):
            list(job.finish())


def test_finished_blocks_are_on_disk(scorer, folder, tmp_path, monkeypatch):
    """Before a block appears, its contents and name and those of the copies are synced."""
    synced = []
    fsync = os.fsync

    def record(handle):
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    copies = Copies(crops=tmp_path / "crops")
    with run(scorer, folder, tmp_path / "rows.csv", Task(copies=copies), block_size=40) as job:
        parts = job.folder
        (block,) = [at for at, path in enumerate(synced) if path.name.startswith(".000000000.json.")]
        assert synced[block + 1] == parts
        assert synced.index(tmp_path) < block  # the folder's own name
        last_copy = max(at for at, path in enumerate(synced) if path.suffix == ".part" and at < block)
        assert {tmp_path / "crops" / "0", tmp_path / "crops" / "1"} <= set(synced[last_copy:block])
        list(job.finish())
    assert synced[-1] == tmp_path


def test_a_run_whose_images_changed_is_not_resumed(scorer, folder, tmp_path):
    images, out = tmp_path / "images", tmp_path / "rows.csv"
    shutil.copytree(folder, images)
    list(run(scorer, folder, tmp_path / "whole.csv").finish())
    run(scorer, images, out).close()

    def refused():
        with pytest.raises(Error) as error, ScoreJob(out, open_images(images), scorer.settings(), 7) as job:
            job.begin(resume=True)
        return str(error.value)

    other, broken = images / "0" / "30.jpg", images / "0" / "04.jpg"
    before = other.stat()
    other.write_bytes((images / "0" / "28.jpg").read_bytes())
    assert "delete 000000002.json to score them again" in refused()
    changed = "rows of images that have changed since they were scored, first"
    assert f"a finished block has {changed} {other};" in refused()
    # A new modification time counts as a change, and so does a missing file.
    os.utime(broken, ns=(0, broken.stat().st_mtime_ns + 1))
    assert f"2 finished blocks have {changed} {broken};" in refused()
    assert "delete 000000000.json and 000000002.json to score them" in refused()
    other.unlink()
    other.symlink_to("gone.jpg")
    assert "2 finished blocks" in refused()
    # A restored file does not.
    other.unlink()
    other.write_bytes((folder / "0" / "30.jpg").read_bytes())
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "a finished block has" in refused()
    # Following the advice of the error helps.
    (tmp_path / "rows.csv.parts" / "000000000.json").unlink()
    list(run(scorer, images, out).finish())
    assert out.read_text().replace(str(images), str(folder)) == (tmp_path / "whole.csv").read_text()
    # A changed shard makes all blocks stale.
    shard = tmp_path / "faces.tar"
    with tarfile.open(shard, "w") as archive:
        archive.add(folder, "faces")
    run(scorer, shard, tmp_path / "rows.csv").close()
    run(scorer, shard, tmp_path / "rows.csv").close()
    os.utime(shard)
    with pytest.raises(Error, match=r"6 finished blocks have .*faces\.tar; .* delete the folder to score"):
        run(scorer, shard, tmp_path / "rows.csv")


def test_two_runs_may_not_write_the_same_file(scorer, folder, tmp_path):
    out = tmp_path / "rows.csv"
    with run(scorer, folder, out):
        with pytest.raises(Error, match=rf"rows\.csv: process {os.getpid()} on .* is writing it"):
            ScoreJob(out, open_images(folder), scorer.settings(), 7).begin(resume=True)
        list(run(scorer, folder, tmp_path / "other.csv").finish())
    list(run(scorer, folder, out).finish())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "rows.csv"]


def test_a_run_interrupted_during_cleanup_leaves_nothing_behind(scorer, folder, tmp_path, monkeypatch):
    def interrupt(folder):
        (folder / "job.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, run(scorer, folder, tmp_path / "rows.csv") as job:
        patch.setattr(shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(job.finish())
    assert (tmp_path / "rows.csv").exists()
    list(run(scorer, folder, tmp_path / "rows.csv").finish())
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_crops_and_copies_are_saved_and_nothing_is_overwritten(scorer, folder, tmp_path):
    rows = list(run(scorer, folder, tmp_path / "first.csv").finish())
    threshold = float(np.median([row.quality for row in rows if row.quality]))
    names = ("crops", "accepted", "rejected")
    copies = Copies(*(tmp_path / name for name in names))
    (tmp_path / "crops" / "0").mkdir(parents=True)
    (tmp_path / "crops" / "0" / "00_0.png").write_bytes(b"an unrelated file")
    for out in ("second.csv", "third.csv"):
        rows = list(run(scorer, folder, tmp_path / out, Task(threshold, copies=copies)).finish())
        kept = {name: {str(p.relative_to(tmp_path / name)) for p in (tmp_path / name).rglob("*.*")} for name in names}
        assert kept["accepted"] == {os.path.relpath(row.path, folder) for row in rows if row.accepted}
        assert kept["rejected"] == {os.path.relpath(row.path, folder) for row in rows if row.accepted is False}
        assert len(kept["crops"]) == 39 + 1
        assert (tmp_path / "crops" / "0" / "00_0.png").read_bytes() == b"an unrelated file"
        assert "0/00_0 (2).png" in kept["crops"]
    for name in ("accepted", "rejected"):
        for copy in kept[name]:
            assert (tmp_path / name / copy).read_bytes() == (folder / copy).read_bytes()
