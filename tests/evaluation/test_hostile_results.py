"""Results and tables that claim what they do not hold: refused with a sentence, in bounded memory and time."""

import json
import shutil

import numpy as np
import pytest

from facerts.errors import DataError
from facerts.evaluation.result_folder import load_result
from facerts.io.npz import read_npz
from tests.contents import write_each
from tests.hostile import arrays, results
from tests.hostile.sandbox import read_bounded


@pytest.fixture(scope="module")
def good(benchmark_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("good") / "result"
    results.write_result(folder, benchmark_folder / "people.bin")
    return folder


def test_no_table_asks_for_more_than_it_holds(tmp_path):
    for path, sentence in read_bounded("table", write_each(tmp_path, arrays.HOSTILE, ".npz")).items():
        assert sentence.startswith(f"{path}: "), sentence


def test_arrays_of_every_plain_kind_come_back(tmp_path):
    kept = {
        "flags": np.array([True, False]),
        "counts/deep": np.arange(6, dtype=np.int8).reshape(2, 3),
        "shares": np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3)),
        "text": np.array(["a", "Größe", "\udcff", "\U0010ffff"]),
        "nothing": np.empty((0, 512), dtype=np.float32),
        "number": np.array(3.0),
        "zeros": np.zeros((1000, 1000)),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "kept.npz", **kept)
        back = read_npz(tmp_path / "kept.npz")
        assert back.keys() == kept.keys()
        for name, array in kept.items():
            np.testing.assert_array_equal(back[name], array)
            assert back[name].dtype == array.dtype


@pytest.mark.parametrize("text", results.TEXTS.values(), ids=results.TEXTS)
def test_what_is_no_result_is_named(good, tmp_path, text):
    shutil.copy(good / "arrays.npz", tmp_path)
    (tmp_path / "result.json").write_bytes(text)
    with pytest.raises(DataError, match=r"result\.json: "):
        load_result(tmp_path)


@pytest.mark.slow
def test_no_result_ends_a_report_otherwise_than_with_a_sentence(good, tmp_path):
    content = json.loads((good / "result.json").read_text(encoding="utf-8"))
    folders = [tmp_path / str(number) for number in range(len(results.CHANGES) + 1)]
    for folder in folders:
        shutil.copytree(good, folder)
    for folder, change in zip(folders[:-1], results.CHANGES.values(), strict=True):
        (folder / "result.json").write_bytes(change(content))
    *messages, unchanged = read_bounded("result", folders).values()
    assert unchanged == ""
    assert {what for what, sentence in zip(results.CHANGES, messages, strict=True) if not sentence} == set()
    for folder, (what, sentence) in zip(folders, zip(results.CHANGES, messages, strict=True), strict=False):
        assert sentence.startswith(f"{folder / 'result.json'}: {results.KEYS[what]}"), sentence
        assert sentence.endswith(("; evaluate again", "than any result", "not a finite number")), sentence
        assert "\n" not in sentence
        assert len(sentence) < 500 + len(str(folder))


@pytest.mark.slow
def test_no_log_ends_a_report_otherwise_than_with_a_sentence(tmp_path):
    endless = b'{"kind": "train", "epoch": ' + b"9" * 400 + b"}"
    lines = [b"\xff", endless, b"[" * 100_000, b"[]", b'{"kind": 3, "epoch": "x"}', b'{"kind": "train", "lr": 1}']
    logs = [tmp_path / str(number) / "log.jsonl" for number in range(len(lines))]
    for log, line in zip(logs, lines, strict=True):
        log.parent.mkdir()
        log.write_bytes(b'{"kind": "train", "epoch": 1, "lr": 0.1}\n' + line + b"\n")
    messages = read_bounded("log", logs).values()
    assert [line for line, sentence in zip(lines, messages, strict=True) if not sentence] == []
