"""Replacing metadata, checked against the onnx package and ONNX Runtime."""

from __future__ import annotations

import os
import re
from pathlib import Path

import onnx
import onnxruntime
import pytest
from google.protobuf.message import DecodeError

from facerts.errors import ModelError
from facerts.onnx import wire
from facerts.onnx.wire import replace_entry
from tests.foreign import write_embedder

KEY = "facerts"
VALUE = '{"name": "Gesichter, 顔", "long": "' + "x" * 20_000 + '"}'
ENTRIES: list[list[tuple[str, str]]] = [
    [],
    [(KEY, "old")],
    [("author", "somebody"), (KEY, "old"), ("facerts2", "another"), ("", "no key"), ("empty", "")],
    [(KEY, "first"), ("between", "stays"), (KEY, "second")],
]


def write_model(path: Path, entries: list[tuple[str, str]]) -> Path:
    """A model with fields before and after its metadata."""
    model = onnx.load(str(write_embedder(path)))
    model.producer_name, model.model_version, model.doc_string = "tests", -3, "ä" * 300
    for key, value in entries:
        model.metadata_props.add(key=key, value=value)
    node, opset = onnx.helper.make_node("Identity", ["x"], ["y"]), onnx.helper.make_opsetid("", 17)
    model.functions.append(onnx.helper.make_function("d", "f", ["x"], ["y"], [node], [opset]))
    model.opset_import.add(domain="d", version=1)
    path.write_bytes(model.SerializeToString())
    return path


def properties(path: Path) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in onnx.load(str(path)).metadata_props]


def rest(path: Path) -> bytes:
    """The model without its metadata, as protobuf serializes it."""
    model = onnx.load(str(path))
    del model.metadata_props[:]
    return model.SerializeToString(deterministic=True)


@pytest.mark.parametrize("entries", ENTRIES, ids=len)
@pytest.mark.parametrize("in_place", [True, False])
def test_an_entry_is_replaced_and_everything_else_unchanged(
    tmp_path: Path, entries: list[tuple[str, str]], in_place: bool
) -> None:
    model = write_model(tmp_path / "m.onnx", entries)
    before, untouched = model.read_bytes(), rest(model)
    out = model if in_place else tmp_path / "deep" / "out.onnx"
    replace_entry(model, out, KEY, VALUE)
    others = [entry for entry in entries if entry[0] != KEY]
    index = next((i for i, entry in enumerate(entries) if entry[0] == KEY), len(entries))
    assert properties(out) == [*others[:index], (KEY, VALUE), *others[index:]]
    assert rest(out) == untouched
    onnx.checker.check_model(str(out))
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map[KEY] == VALUE
    if not in_place:
        assert model.read_bytes() == before
    if not entries:
        assert out.read_bytes().startswith(before)
    # Restoring the old value restores the file byte for byte.
    if [key for key, _ in entries].count(KEY) == 1:
        replace_entry(out, out, KEY, dict(entries)[KEY])
        assert out.read_bytes() == before
    assert not list(tmp_path.rglob("*.part"))


def test_a_cut_at_any_byte_is_named_with_file_and_offset_and_nothing_is_written(tmp_path: Path) -> None:
    cut = write_model(tmp_path / "cut.onnx", ENTRIES[2])
    whole, out = cut.read_bytes(), tmp_path / "out.onnx"
    refused = 0
    # All bytes inside the graph are treated alike.
    cuts = [size for size in range(len(whole)) if size < 400 or size > len(whole) - 300 or size % 50 == 0]
    for size in reversed(cuts):
        os.truncate(cut, size)
        parsed = onnx.ModelProto()
        try:
            parsed.ParseFromString(whole[:size])
        except DecodeError:
            refused += 1
            with pytest.raises(ModelError, match=r"cut\.onnx: .* at byte (\d+) .*truncated") as error:
                replace_entry(cut, out, KEY, VALUE)
            assert int(re.findall(r"at byte (\d+)", str(error.value))[0]) <= size
            assert not out.exists()
        else:
            if parsed.HasField("graph"):
                replace_entry(cut, out, KEY, VALUE)
                out.unlink()
            else:
                with pytest.raises(ModelError, match="contains no graph"):
                    replace_entry(cut, out, KEY, VALUE)
    assert refused > 0.9 * len(cuts)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "m.onnx", ENTRIES[1])
    before = model.read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("facerts.io.files.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_entry(model, model, KEY, VALUE)
    assert model.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


GRAPH = b"\x3a\x00"  # field 7, empty


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it contains no graph"),
        (b"hello, not a model here", "byte 2 .kind 4"),
        (GRAPH + b"\x72\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00", "field 14 at byte 2 needs 9,223,372"),
        (GRAPH + b"\xff" * 20, "no number ends within 10 bytes of byte 2"),
        (GRAPH + b"\x72\x80", "number at byte 3 is incomplete"),
        (GRAPH + b"\x73", r"no field .* at byte 2 \(kind 3\)"),
        (GRAPH + b"\x02\x00", r"no field .* at byte 2 \(number 0\)"),
        (GRAPH + b"\x70\x05", "field 14 at byte 2 is not metadata"),
        (GRAPH + b"\x72\x03\x0a\x09k", "field 1 at byte 4 needs 9 bytes, but only 1"),
        (GRAPH + b"\x09\x00\x00", "field 1 at byte 2 needs 8 bytes"),
    ],
)
def test_hostile_bytes_are_refused_with_a_clear_error(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=rf"m\.onnx: .*{words}"):
        replace_entry(path, path, KEY, VALUE)
    assert path.read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_file_cannot_make_the_reader_exceed_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "m.onnx", [(KEY, VALUE)])
    with monkeypatch.context() as limits:
        limits.setattr(wire, "MAX_FIELDS", 5)
        with pytest.raises(ModelError, match="more than 5 fields by byte"):
            replace_entry(model, model, KEY, VALUE)
    with monkeypatch.context() as limits:
        limits.setattr(wire, "MAX_FILE", model.stat().st_size)
        with pytest.raises(ModelError, match="limited to 2 GiB"):
            replace_entry(model, model, KEY, VALUE + " ")
