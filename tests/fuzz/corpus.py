"""The hostile files of the tests, as initial cases."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.sandbox import Files
from tests.hostile import images, onnx_files, records

# Larger files are slow to mutate and add little.
MAX_CASE_BYTES = 100_000


def alone(name: str, contents: Mapping[str, bytes]) -> list[Files]:
    """Each content as a folder's only file, of this name."""
    return _small([{name: content} for content in contents.values()])


@lru_cache
def hostile_images(suffix: str) -> list[Files]:
    found = [content for name, (content, _) in images.refused().items() if name.endswith(suffix)]
    found += [content for name, content in images.ordinary().items() if name.endswith(suffix)]
    return _small([{f"a{suffix}": content} for content in found])


@lru_cache
def hostile_records() -> list[Files]:
    return _small([{"train.rec": held.rec, "train.idx": held.idx} for held in records.HOSTILE.values()])


@lru_cache
def hostile_models() -> list[Files]:
    found = []
    for write in onnx_files.MODELS.values():
        with TemporaryDirectory() as folder:
            write(Path(folder) / "a.onnx")
            found.append({path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())})
    return _small(found)


def _small(found: list[Files]) -> list[Files]:
    return [files for files in found if sum(map(len, files.values())) <= MAX_CASE_BYTES]
