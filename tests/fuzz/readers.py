"""The readers to fuzz: for each kind of file, how a user would read it, and valid files to start from.

A case is a folder of files, by name. Where a format holds parts behind checksums or in an archive, the parts are what
is mutated, and ``pack`` makes the file of them, so that mutations get past the outermost check.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
import yaml
from PIL import Image

from facerts.curation.output_spec import OutputSpec
from facerts.curation.rearrange import pack
from facerts.datasets import Source, open_source
from facerts.datasets.bin_set import write_bin
from facerts.datasets.listed_pairs import load_pair_list
from facerts.datasets.open_source import open_images
from facerts.datasets.synthetic import SyntheticSource, draw_face, write_synthetic_faces
from facerts.embedding import read_description
from facerts.evaluation.image_groups import read_groups
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.score_table import read_scores
from facerts.images import decode
from facerts.people import read_people
from facerts.report import sections
from facerts.report.people_page import write_people_page
from facerts.report.subject import load_subjects
from facerts.scoring.pair_list import read_pair_list
from facerts.serving.uploads import Expected, read_json
from tests.fuzz import corpus
from tests.fuzz.sandbox import Files, Read
from tests.hostile import archives, arrays, galleries, lists, onnx_files, pickles, results
from tests.hostile.readers import (
    read_checkpoint,
    read_exported,
    read_gallery,
    read_images,
    read_model,
    read_recipe,
    read_table,
)

# Maximum number of images to read of a source, so that a mutated count alone does not make a case slow.
MAX_IMAGES = 50


@dataclass(frozen=True)
class Reader:
    """A reader of a kind of file.

    Attributes:
        read: reads a folder with such files as a user would; raises an ``Error`` if they are bad.
        seeds: valid files; the first can be read.
        pack: builds the file from its parts, or with new checksums.
        parse: parses a text file into a tree, for formats that are trees.
        write: writes a tree as text.
        hostile: further files, which need not be readable.
    """

    read: Read
    seeds: Callable[[], list[Files]]
    pack: Callable[[Files], Files] | None = None
    parse: Callable[[bytes], Any] | None = None
    write: Callable[[Any], bytes] | None = None
    hostile: Callable[[], list[Files]] = list

    def whole(self, parts: Files) -> Files:
        """The files as a user would have them."""
        return parts if self.pack is None else self.pack(parts)


def _of(read: Callable[[Path], object], name: str = "*") -> Read:
    """A reader of a folder by one of a file, the only one of such a name."""
    return partial(_read_file, read, name)


def _read_file(read: Callable[[Path], object], name: str, folder: Path) -> None:
    (path,) = folder.glob(name)
    read(path)


def _decode(path: Path) -> None:
    decode(path.read_bytes(), where=path.name)


def _read_source(path: Path, open_it: Callable[[Path], Source] = open_source) -> None:
    """Read every image as scoring does: a bad image is skipped, and it is an error only if none can be read."""
    source = open_it(path)
    errors = read_images(source, MAX_IMAGES, lambda source, index: source.crop(index))
    if errors and len(errors) == min(len(source), MAX_IMAGES):
        raise errors[0]


def _read_pairs_to_verify(path: Path) -> None:
    for row in read_pair_list(path):
        # A row whose label is wrong keeps its paths.
        assert row.error is not None or (row.first and row.second)


def _read_scores(path: Path) -> None:
    if not read_scores(path).columns:
        raise AssertionError("a table without scores")


def _read_groups(path: Path) -> None:
    values, _ = read_groups(path).of(["a/1.jpg", "2.jpg"])
    assert all(len(of_images) == 2 for of_images in values.values())


def _drawn(count: int = 3) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    return [draw_face(number, 0) for number in range(count)]


def _encoded(suffix: str, *options: int) -> bytes:
    return bytes(cv2.imencode(suffix, draw_face(1, 1)[..., ::-1], list(options))[1])


def _saved(form: str, mode: str = "RGB", frames: int = 1, **options: Any) -> bytes:
    images = [Image.fromarray(face).convert(mode) for face in _drawn(frames)]
    file = io.BytesIO()
    if frames > 1:
        options = {**options, "save_all": True, "append_images": images[1:]}
    images[0].save(file, form, **options)
    return file.getvalue()


@lru_cache
def _jpegs() -> list[Files]:
    turned = Image.Exif()
    turned[0x0112] = 6
    return [
        {"a.jpg": data}
        for data in (
            _encoded(".jpg"),
            _saved("JPEG", progressive=True),
            _saved("JPEG", "CMYK"),
            _saved("JPEG", "L", progressive=True, exif=turned),
            _encoded(".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 4),
        )
    ]


@lru_cache
def _pngs() -> list[Files]:
    deep = bytes(cv2.imencode(".png", draw_face(2, 0).astype(np.uint16) * 257)[1])
    modes = [_saved("PNG", mode) for mode in ("RGB", "RGBA", "L", "P", "1")]
    return [{"a.png": data} for data in (*modes, deep, _saved("PNG", frames=3))]


def _png_checksums(files: Files) -> Files:
    """The chunks as they are, each with a right checksum."""
    return {name: _chunks_summed(data) for name, data in files.items()}


def _chunks_summed(data: bytes) -> bytes:
    whole, place = bytearray(data), 8
    while place + 12 <= len(whole):
        length = struct.unpack_from(">I", whole, place)[0]
        end = place + 8 + length
        if end + 4 > len(whole):
            break
        struct.pack_into(">I", whole, end, zlib.crc32(whole[place + 4 : end]))
        place = end + 4
    return bytes(whole)


@lru_cache
def _webps() -> list[Files]:
    return [
        {"a.webp": data}
        for data in (
            _encoded(".webp", cv2.IMWRITE_WEBP_QUALITY, 80),
            _saved("WEBP", lossless=True),
            _saved("WEBP", "RGBA"),
            _saved("WEBP", frames=3),
        )
    ]


@lru_cache
def _gifs() -> list[Files]:
    return [{"a.gif": _saved("GIF", mode, frames)} for mode in ("RGB", "L") for frames in (1, 3)]


@lru_cache
def _bmps() -> list[Files]:
    return [{"a.bmp": _saved("BMP", mode)} for mode in ("RGB", "L", "P", "1")] + [{"a.bmp": _core_bitmap()}]


def _core_bitmap() -> bytes:
    """With the header of twelve bytes that OS/2 had."""
    rows = np.zeros((16, 48), np.uint8).tobytes()
    header = struct.pack("<IHHHH", 12, 16, 16, 1, 24)
    return b"BM" + struct.pack("<IHHI", 26 + len(rows), 0, 0, 26) + header + rows


@lru_cache
def _record_sets() -> list[Files]:
    with TemporaryDirectory() as folder:
        pack([SyntheticSource(2, 2)], OutputSpec(Path(folder) / "set"))
        return [{path.name: path.read_bytes() for path in (Path(folder) / "set").iterdir()}]


@lru_cache
def _bin_sets() -> list[Files]:
    images = [_encoded(".jpg")] * 4
    with TemporaryDirectory() as folder:
        write_bin(Path(folder) / "a.bin", images, [True, False])
        seeds = [(Path(folder) / "a.bin").read_bytes()]
    arrays = [np.frombuffer(image, np.uint8) for image in images]
    for protocol in (0, 2, 4, 5):
        seeds += [pickle.dumps(held, protocol) for held in ((images, [True, False]), (arrays, np.array([1, 0])))]
    return [{"a.bin": seed} for seed in seeds]


@lru_cache
def _shards() -> list[Files]:
    return [{f"person/{number}.jpg".replace("/", "|"): _encoded(".jpg") for number in range(3)}]


def _tar(files: Files) -> Files:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name.replace("|", "/"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return {"a.tar": file.getvalue()}


@lru_cache
def _lists() -> list[Files]:
    files = {f"{number}.jpg": _encoded(".jpg") for number in range(3)}
    text = "\n".join(files) + "\n"
    return [
        {"a.txt": text.encode(), **files},
        {"a.txt": b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(), **files},
    ]


@lru_cache
def _score_tables() -> list[Files]:
    return [{"scores.csv": b'image,sharpness,remark\n/x/a/1.jpg,0.5,"good, ""sharp"""\n2.jpg,-1e3,\n'}]


def _group_tables() -> list[Files]:
    return [{"groups.csv": b'image,age,"sex, as given"\n/x/a/1.jpg,34,woman\n2.jpg,,"a ""man"""\n'}]


@lru_cache
def _pair_lists(ending: str) -> list[Files]:
    files = {f"{number}.jpg": _encoded(".jpg") for number in range(4)}
    rows = [(f"{a}.jpg", f"{b}.jpg", int(a == b), a % 2) for a in range(4) for b in range(4)]
    if ending == "txt":
        text = "".join(f"{first} {second} {same}\n" for first, second, same, _ in rows)
    else:
        text = "first,second,same,fold\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    return [{f"a.{ending}": text.encode(), **files}]


def _member(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


@lru_cache
def _tables() -> list[Files]:
    random = np.random.default_rng(0)
    return [
        {
            "names.npy": _member(np.array(["a.jpg", "b.jpg", "c.jpg"])),
            "embeddings.npy": _member(random.normal(size=(3, 8)).astype(np.float32)),
            "quality.npy": _member(random.normal(size=3)),
        }
    ]


def _zip(name: str) -> Callable[[Files], Files]:
    def packed(files: Files) -> Files:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for member, content in files.items():
                archive.writestr(member.replace("|", "/"), content)
        return {name: file.getvalue()}

    return packed


@lru_cache
def _galleries() -> list[Files]:
    angles = np.linspace(0, 5, 6)
    arrays = {
        "format": "facerts.gallery/1",
        "model": "drawn",
        "model_sha256": "a" * 64,
        "people": ["a", "b", "c"],
        "templates": [[1.0, 0.0]] * 3,
        "person": [0, 0, 1, 1, 2, 2],
        "path": [f"{number}.jpg" for number in range(6)],
        "embedding": np.stack([np.cos(angles), np.sin(angles)], axis=1).tolist(),
        "quality": [0.5, -1.0, 0.0, 1e-3, 2.0, 1.0],
        "percentile": [50.0, 0.1, 8.0, 9.0, 100.0, 0.0],
        "reasons": ["", "blurred", "not_a_face", "", "cut_off;noisy", ""],
    }
    return [{"a.json": _to_json(arrays)}]


@lru_cache
def _people() -> list[Files]:
    """The files of a folder of people; the two with arrays as documents."""
    angles, nothing = np.linspace(0, 5, 3), [[math.nan] * 4]
    names = [f"{number:064x}" for number in range(3)]
    faces = {
        "format": "facerts.found-faces/1",
        "settings": "{}",
        "model": "drawn",
        "model_sha256": "a" * 64,
        "path": ["a.jpg", "b.jpg", "copy.jpg", "broken.jpg"],
        "image": [0, 1, 1, -1],
        "size": [10, 20, 20, 3],
        "mtime": [1, 2, 3, 4],
        "error": ["", "", "", "broken.jpg: no image"],
        "sha256": names[:2],
        "face_image": [0, 0, 1],
        "number": [0, 1, 0],
        "box": [[0.0, 0.0, 9.0, 9.0], [20.0, 0.0, 29.0, 9.0], *nothing],
        "points": [[1.0] * 10] * 3,
        "embedding": np.stack([np.cos(angles), np.sin(angles)], axis=1).tolist(),
        "quality": [0.5, -1.0, 0.0],
        "percentile": [50.0, 0.1, 8.0],
        "reasons": ["", "blurred", "not_a_face"],
    }
    groups = {
        "format": "facerts.people-groups/4",
        "min_quality": -0.5,
        "highest": 3,
        "decisions": 2,
        "table": "faces-0123456789abcdef.npz",
        "group": [1, 3, -1],
        "probability": [1.0, 0.5, 0.2],
        "suggested": [1, 3, 1],
        "alike": [[1, 3]],
        "alike_probability": [0.3],
    }
    box = [0.0, 0.0, 9.0, 9.0]
    decisions: list[dict[str, Any]] = [
        {"format": "facerts.people-decisions/3"},
        {"action": "name", "to": 1, "joined": [[names[0], box]], "name": "Anna", "time": "2030"},
        {"action": "move", "faces": [[names[1], None]], "was": [2], "to": 1, "joined": [[names[0], box]]},
        {"action": "move", "faces": [[names[0], [20.0, 0.0, 29.0, 9.0]]], "was": [3]},
        {"action": "undo"},
    ]
    lines = "".join(json.dumps(line) + "\n" for line in decisions)
    return [
        {
            "faces-0123456789abcdef.json": _to_json(faces),
            "groups.json": _to_json(groups),
            "decisions.jsonl": lines.encode(),
        }
    ]


def _pack_people(files: Files) -> Files:
    packed = {name: content for name, content in files.items() if name == "decisions.jsonl"}
    for name in files.keys() - packed.keys():
        (content,) = _npz({name: files[name]}).values()
        packed[name.replace(".json", ".npz")] = content
    return packed


def _read_people(folder: Path) -> None:
    people = read_people(folder)
    list(people.faces())
    write_people_page(people)


def _npz(files: Files) -> Files:
    """The arrays in a document; the document itself if they are none."""
    (content,) = files.values()
    file = io.BytesIO()
    try:
        arrays = {name: np.array(values) for name, values in json.loads(content).items()}
        if any(array.dtype.kind == "O" for array in arrays.values()):
            raise ValueError("Python objects")
        np.savez(file, **arrays)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {"a.npz": content}
    return {"a.npz": file.getvalue()}


@lru_cache
def _parquets() -> list[Files]:
    import pyarrow
    from pyarrow import parquet

    random, file = np.random.default_rng(0), io.BytesIO()
    columns = {
        "name": ["a.jpg", "b.jpg"],
        "embedding": random.normal(size=(2, 8)).tolist(),
        "quality": [0.1, 0.2],
    }
    parquet.write_table(pyarrow.table(columns), file)
    return [{"a.parquet": file.getvalue()}]


@lru_cache
def _recipes() -> list[Files]:
    fields = {
        "name": "fuzzed",
        "seed": 1,
        "data": {
            "name": "drawn",
            "terms": "none",
            "train": ["a", "b"],
            "augmentation": {"flip": True, "change": 0.2},
        },
        "validation": {"heldout": "val.tar"},
        "backbone": {"name": "iresnet18", "width": 0.25, "embedding_size": 16},
        "method": {"name": "rts", "margin": 0.5},
        "teacher": {"models": ["a.onnx"]},
        "optim": {"epochs": 2, "batch_size": 8, "milestones": [1]},
    }
    return [{"a.yaml": yaml.safe_dump(fields).encode()}]


@lru_cache
def _models() -> list[Files]:
    from tests.foreign import write_description, write_embedder

    with TemporaryDirectory() as folder:
        path = write_embedder(Path(folder) / "a.onnx", quality=True)
        write_description(path)
        return [{file.name: file.read_bytes() for file in sorted(Path(folder).iterdir(), reverse=True)}]


def _descriptions() -> list[Files]:
    return [{"a.json": _models()[0]["a.json"]}]


def _read_result(folder: Path) -> None:
    """All but the figures and the comparison of ``hostile.readers``, which take a second each."""
    subjects = load_subjects([folder])
    with naming_folders([folder]):
        for section in (sections.summary, sections.verdicts, sections.provenance):
            section(subjects)


@lru_cache
def _results() -> list[Files]:
    from facerts.datasets import pairs_from_identities
    from facerts.evaluation.benchmark_runs import run_pairs
    from facerts.evaluation.evaluation_options import EvaluationOptions
    from tests.conftest import write_pairs
    from tests.evaluation.conftest import Plain

    with TemporaryDirectory() as folder:
        people, out = Path(folder) / "people", Path(folder) / "out"
        write_synthetic_faces(people, identities=10, images=3, seed=11)
        pairs = write_pairs(
            pairs_from_identities(open_source(people), genuine=30, impostors=30, seed=2), people / "p.csv"
        )
        run_pairs(Plain(), ["verification"], [pairs], out, EvaluationOptions(keep_crops=False))
        return [{path.name: path.read_bytes() for path in sorted(out.iterdir())}]


@lru_cache
def _checkpoints() -> list[Files]:
    from facerts.training.checkpoint import FILE, save_checkpoint
    from facerts.training.learner import Learner
    from facerts.training.recipe import Recipe

    recipe = Recipe.model_validate(
        {
            "name": "tiny",
            "data": {"name": "drawn", "terms": "none", "train": "none"},
            "backbone": {"name": "mobilefacenet", "width": 0.125, "embedding_size": 4},
            "method": {"name": "rts"},
            "optim": {"epochs": 1, "batch_size": 4},
            "compute": {"device": "cpu", "precision": "fp32"},
        }
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        save_checkpoint(path, recipe, {"step": 1, "position": 1.0, **Learner(recipe, 2).state_dict()})
        return [{FILE: path.read_bytes()}]


@lru_cache
def _exported_files() -> list[Files]:
    from facerts.training.checkpoint import FILE
    from facerts.training.export import export_run

    with TemporaryDirectory() as folder:
        run, out = Path(folder) / "run", Path(folder) / "a.onnx"
        run.mkdir()
        (run / FILE).write_bytes(_checkpoints()[0][FILE])
        export_run(run, out)
        return [{out.name: out.read_bytes()}]


def _bodies() -> list[Files]:
    return [{"body": b'{"images": ["/9j/", "data:image/png;base64,iVBO"], "largest": true}'}]


def _read_body(path: Path) -> None:
    read_json(path.read_bytes(), Expected("image", 16, ("keep", "largest")))


def _to_json(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def _to_yaml(tree: Any) -> bytes:
    return yaml.safe_dump(tree).encode()


READERS = {
    "jpeg": Reader(_of(_decode), _jpegs, hostile=partial(corpus.hostile_images, ".jpg")),
    "png": Reader(_of(_decode), _pngs, pack=_png_checksums, hostile=partial(corpus.hostile_images, ".png")),
    "webp": Reader(_of(_decode), _webps, hostile=partial(corpus.hostile_images, ".webp")),
    "gif": Reader(_of(_decode), _gifs, hostile=partial(corpus.hostile_images, ".gif")),
    "bmp": Reader(_of(_decode), _bmps, hostile=partial(corpus.hostile_images, ".bmp")),
    "records": Reader(_read_source, _record_sets, hostile=corpus.hostile_records),
    "bin": Reader(_of(_read_source), _bin_sets, hostile=partial(corpus.alone, "a.bin", pickles.HOSTILE)),
    "tar": Reader(_of(_read_source), _shards, pack=_tar, hostile=partial(corpus.alone, "a.tar", archives.HOSTILE)),
    "list": Reader(
        _of(partial(_read_source, open_it=open_images), "a.txt"),
        _lists,
        hostile=partial(corpus.alone, "a.txt", {**lists.HOSTILE, **lists.REFUSED}),
    ),
    "pairs (txt)": Reader(_of(load_pair_list, "*.txt"), partial(_pair_lists, "txt")),
    "pairs (csv)": Reader(_of(load_pair_list, "*.csv"), partial(_pair_lists, "csv")),
    "groups (csv)": Reader(_of(_read_groups), _group_tables),
    "scores (csv)": Reader(_of(_read_scores), _score_tables),
    "pairs to verify (txt)": Reader(_of(_read_pairs_to_verify, "*.txt"), partial(_pair_lists, "txt")),
    "pairs to verify (csv)": Reader(_of(_read_pairs_to_verify, "*.csv"), partial(_pair_lists, "csv")),
    "npz": Reader(_of(read_table), _tables, pack=_zip("a.npz"), hostile=partial(corpus.alone, "a.npz", arrays.HOSTILE)),
    "gallery": Reader(
        _of(read_gallery),
        _galleries,
        pack=_npz,
        parse=json.loads,
        write=_to_json,
        hostile=partial(corpus.alone, "a.npz", {**arrays.HOSTILE, **galleries.HOSTILE}),
    ),
    "people": Reader(_read_people, _people, pack=_pack_people, parse=json.loads, write=_to_json),
    "parquet": Reader(_of(read_table), _parquets),
    "recipe": Reader(_of(read_recipe), _recipes, parse=yaml.safe_load, write=_to_yaml),
    "description": Reader(
        _of(read_description),
        _descriptions,
        parse=json.loads,
        write=_to_json,
        hostile=partial(corpus.alone, "a.json", onnx_files.DESCRIPTIONS),
    ),
    "onnx": Reader(_of(read_model, "a.onnx"), _models, parse=json.loads, write=_to_json, hostile=corpus.hostile_models),
    "checkpoint": Reader(_of(read_checkpoint), _checkpoints),
    "exported": Reader(_of(read_exported, "a.onnx"), _exported_files, hostile=corpus.hostile_models),
    "result": Reader(
        _read_result,
        _results,
        parse=json.loads,
        write=_to_json,
        hostile=partial(corpus.alone, "result.json", results.TEXTS),
    ),
    "body": Reader(_of(_read_body), _bodies),
}
