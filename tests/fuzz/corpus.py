"""The hostile files of the tests, as initial cases."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.sandbox import Files
from tests.hostile import archives, arrays, images, lists, onnx_files, pickles, records, results

# Larger files are slow to mutate and add little.
MAX_CASE_BYTES = 100_000


@lru_cache
def hostile_images(suffix: str) -> list[Files]:
    found = [content for name, (content, _) in images.refused().items() if name.endswith(suffix)]
    found += [content for name, content in images.ordinary().items() if name.endswith(suffix)]
    return _small([{f"a{suffix}": content} for content in found])


@lru_cache
def hostile_sets() -> list[Files]:
    return _small([{"a.bin": content} for content in pickles.HOSTILE.values()])


@lru_cache
def hostile_shards() -> list[Files]:
    return _small([{"a.tar": content} for content in archives.HOSTILE.values()])


@lru_cache
def hostile_tables() -> list[Files]:
    return _small([{"a.npz": content} for content in arrays.HOSTILE.values()])


@lru_cache
def hostile_lists() -> list[Files]:
    return _small([{"a.txt": content} for content in (*lists.HOSTILE.values(), *lists.REFUSED.values())])


@lru_cache
def hostile_records() -> list[Files]:
    return _small([{"train.rec": held.rec, "train.idx": held.idx} for held in records.HOSTILE.values()])


@lru_cache
def hostile_descriptions() -> list[Files]:
    return _small([{"a.json": content} for content in onnx_files.DESCRIPTIONS.values()])


@lru_cache
def hostile_models() -> list[Files]:
    found = []
    for write in onnx_files.MODELS.values():
        with TemporaryDirectory() as folder:
            write(Path(folder) / "a.onnx")
            found.append({path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())})
    return _small(found)


@lru_cache
def hostile_results() -> list[Files]:
    return _small([{"result.json": content} for content in results.TEXTS.values()])


def _small(found: list[Files]) -> list[Files]:
    return [files for files in found if sum(map(len, files.values())) <= MAX_CASE_BYTES]
