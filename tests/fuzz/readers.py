"""The readers to fuzz: for each kind of file, how a user would read it, and files to start from.

A case is a folder of files, by name. Where a format holds parts behind checksums or in an archive, the parts are what
is mutated, and ``pack`` makes the file of them, so that mutations get past the outermost check. Parts of an archive are
called ``ARCHIVE|MEMBER``.
"""

import asyncio
import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import h11
import numpy as np
import yaml
from starlette.requests import Request

from facerts.curation.output_spec import OutputSpec
from facerts.curation.rearrange import pack
from facerts.datasets import open_source, pairs_from_identities
from facerts.datasets.bin_set import write_bin
from facerts.datasets.listed_pairs import load_pair_list
from facerts.datasets.open_source import open_images
from facerts.datasets.synthetic import SyntheticSource, write_synthetic_faces
from facerts.embedding import read_description
from facerts.errors import DataError
from facerts.evaluation.image_groups import read_groups
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.saved_result import load_saved
from facerts.evaluation.score_table import read_scores
from facerts.galleries import Gallery
from facerts.images import decode
from facerts.people import find_people, move_faces, name_person, read_people
from facerts.report import sections
from facerts.report.people_page import write_people_page
from facerts.scoring.pair_list import read_pair_list
from facerts.serving.schemas import Options
from facerts.serving.strict_parser import StrictParser
from facerts.serving.uploads import Expected, read_json, read_uploads
from tests.conftest import write_pairs
from tests.foreign import write_description, write_embedder
from tests.galleries.test_gallery import draw
from tests.hostile import archives, arrays, galleries, images, lists, onnx_files, pickles, recipes, records, results
from tests.hostile.readers import (
    read_checkpoint,
    read_exported,
    read_gallery,
    read_images,
    read_model,
    read_recipe,
    read_table,
)
from tests.people.photos import open_scorer, write_people

Files = dict[str, bytes]
# Maximum number of images to read of a source, so that a mutated count alone does not make a case slow.
MAX_IMAGES = 50
# Larger files are slow to mutate and add little.
MAX_CASE_BYTES = 100_000
FACE = images.ordinary()["baseline.jpg"]


@dataclass(frozen=True)
class Reader:
    """A reader of a kind of file.

    Attributes:
        read: reads a folder with such files as a user would; raises an ``Error`` if they are bad.
        seeds: valid files; the first can be read.
        pack: builds the file from its parts, or with new checksums.
        hostile: further files, which need not be readable.
    """

    read: Callable[[Path], None]
    seeds: Callable[[], list[Files]]
    pack: Callable[[Files], Files] = dict
    hostile: Callable[[], list[Files]] = list


def _of(read, name="*"):
    """A reader of a folder by one of a file, the only one of such a name."""
    return partial(_read_file, read, name)


def _read_file(read, name, folder):
    (path,) = folder.glob(name)
    read(path)


def _decode(path):
    decode(path.read_bytes(), where=path.name)


def _read_source(path, open_it=open_source):
    """Read every image as scoring does: a bad image is skipped, and it is an error only if none can be read."""
    source = open_it(path)
    errors = read_images(source, MAX_IMAGES, lambda source, index: source.crop(index))
    if errors and len(errors) == min(len(source), MAX_IMAGES):
        raise errors[0]


def _read_pairs_to_verify(path):
    for row in read_pair_list(path):
        # A row whose label is wrong keeps its paths.
        assert row.error is not None or (row.first and row.second)


def _read_scores(path):
    if not read_scores(path).columns:
        raise AssertionError("a table without scores")


def _read_groups(path):
    values, _ = read_groups(path).of(["a/1.jpg", "2.jpg"])
    assert all(len(of_images) == 2 for of_images in values.values())


def _read_people(folder):
    people = read_people(folder)
    list(people.faces())
    write_people_page(people)


def _read_result(folder):
    """All but the figures and the comparison of ``hostile.readers``, which take a second each."""
    subjects = load_saved([folder])
    with naming_folders([folder]):
        for section in (sections.summary, sections.verdicts, sections.provenance):
            section(subjects)


def _read_body(path):
    read_json(path.read_bytes(), Expected("image", 16, ("keep", "largest")))


def _read_form(path):
    async def receive():
        return {"type": "http.request", "body": path.read_bytes(), "more_body": False}

    scope = {"type": "http", "query_string": b"", "headers": [(b"content-type", b"multipart/form-data; boundary=X")]}
    asyncio.run(read_uploads(Request(scope, receive), Options(), maximum=16))


def _read_request(path):
    parser = StrictParser()
    parser.receive_data(path.read_bytes())
    try:
        while not isinstance(event := parser.next_event(), h11.ConnectionClosed):
            if event in (h11.NEED_DATA, h11.PAUSED):
                break
    except h11.RemoteProtocolError as error:
        raise DataError(str(error)) from error


def _small(found):
    return [files for files in found if sum(map(len, files.values())) <= MAX_CASE_BYTES]


def _alone(name, contents):
    """Each content as a folder's only file, of this name."""
    return lambda: _small({name: content} for content in contents.values())


def _files(folder):
    """The files of a folder, the arrays of ``.npz`` files as parts."""
    found = {}
    for path in sorted(filter(Path.is_file, folder.iterdir())):
        if path.suffix != ".npz":
            found[path.name] = path.read_bytes()
            continue
        with zipfile.ZipFile(path) as archive:
            found |= {f"{path.name}|{member}": archive.read(member) for member in archive.namelist()}
    return found


def _packed(files):
    """The archives of their parts, beside the other files."""
    whole = {}
    members = {}
    for name, content in files.items():
        archive, bar, member = name.partition("|")
        if bar:
            members.setdefault(archive, {})[member] = content
        else:
            whole[name] = content
    return whole | {name: (_tar if name.endswith(".tar") else _zip)(parts) for name, parts in members.items()}


def _zip(files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def _tar(files):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _png_checksums(files):
    """The chunks as they are, each with a right checksum."""
    return {name: _chunks_summed(data) for name, data in files.items()}


def _chunks_summed(data):
    whole, place = bytearray(data), 8
    while place + 12 <= len(whole):
        length = struct.unpack_from(">I", whole, place)[0]
        end = place + 8 + length
        if end + 4 > len(whole):
            break
        struct.pack_into(">I", whole, end, zlib.crc32(whole[place + 4 : end]))
        place = end + 4
    return bytes(whole)


def _image(suffix, pack=dict):
    """The reader of a kind of image, from ordinary ones, and from hostile ones."""
    refused = {name: content for name, (content, _) in images.refused().items() if name.endswith(suffix)}
    ordinary = {name: content for name, content in images.ordinary().items() if name.endswith(suffix)}
    return Reader(_of(_decode), _alone(f"a{suffix}", ordinary), pack, _alone(f"a{suffix}", refused))


@cache
def _record_sets():
    with TemporaryDirectory() as folder:
        pack([SyntheticSource(2, 2)], OutputSpec(Path(folder) / "set"))
        return [_files(Path(folder) / "set")]


def _hostile_records():
    return _small({"train.rec": held.rec, "train.idx": held.idx} for held in records.HOSTILE.values())


@cache
def _bin_sets():
    faces = [FACE] * 4
    with TemporaryDirectory() as folder:
        write_bin(Path(folder) / "a.bin", faces, [True, False])
        seeds = [_files(Path(folder))]
    held = [np.frombuffer(face, np.uint8) for face in faces], np.array([1, 0])
    return seeds + [{"a.bin": pickle.dumps(held, protocol)} for protocol in (0, 2, 4, 5)]


def _lists(text, name="a.txt"):
    """A list of images that lie beside it."""
    return lambda: [{name: text, **{f"{number}.jpg": FACE for number in range(4)}}]


PAIRS = [(f"{first}.jpg", f"{second}.jpg", str(int(first == second))) for first in range(4) for second in range(4)]
PAIR_LISTS = {
    "txt": "".join(f"{' '.join(pair)}\n" for pair in PAIRS).encode(),
    "csv": "".join(f"{','.join(pair)}\n" for pair in [("first", "second", "same"), *PAIRS]).encode(),
}


@cache
def _tables():
    # Much larger than the headers, which hardly bear a change.
    numbers = np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32)
    with TemporaryDirectory() as folder:
        names = np.array([f"{number}.jpg" for number in range(60)])
        np.savez(Path(folder) / "a.npz", names=names, embeddings=numbers, quality=numbers[:, 0])
        return [_files(Path(folder))]


@cache
def _parquets():
    import pyarrow
    from pyarrow import parquet

    columns = {"name": ["a.jpg", "b.jpg"], "embedding": np.eye(2, 8).tolist(), "quality": [0.1, 0.2]}
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return [{"a.parquet": file.getvalue()}]


@cache
def _galleries():
    known = draw(3, 2)
    known.reasons[:3] = ["blurred", "not_a_face", "cut_off;noisy"]
    with TemporaryDirectory() as folder:
        Gallery(Path(folder) / "a.npz").replace(known)
        return [_files(Path(folder))]


@cache
def _people():
    with TemporaryDirectory() as folder:
        photos, out = Path(folder) / "photos", Path(folder) / "people"
        write_people(photos, range(3), range(3))
        (photos / "broken.png").write_bytes(b"no image")
        find_people(open_scorer(Path(folder)), photos, out)
        name_person(out, "1", "Anna")
        move_faces(out, [str(photos / "p1_0.png")], "Anna")
        move_faces(out, [str(photos / "p2_0.png")], "nobody")
        kept = {name: content for name, content in _files(out).items() if not name.endswith((".html", ".csv"))}
        return [kept]


@cache
def _models():
    with TemporaryDirectory() as folder:
        write_description(write_embedder(Path(folder) / "a.onnx", quality=True))
        return [_files(Path(folder))]


def _descriptions():
    return [{"a.json": _models()[0]["a.json"]}]


@cache
def _hostile_models():
    found = []
    for write in onnx_files.MODELS.values():
        with TemporaryDirectory() as folder:
            write(Path(folder) / "a.onnx")
            found.append(_files(Path(folder)))
    return _small(found)


@cache
def _results():
    from facerts.evaluation.benchmark_runs import run_pairs
    from facerts.evaluation.evaluation_options import EvaluationOptions
    from tests.evaluation.conftest import Plain

    with TemporaryDirectory() as folder:
        people, out = Path(folder) / "people", Path(folder) / "out"
        write_synthetic_faces(people, identities=10, images=3, seed=11)
        pairs = write_pairs(
            pairs_from_identities(open_source(people), genuine=30, impostors=30, seed=2), people / "p.csv"
        )
        run_pairs(Plain(), ["verification"], [pairs], out, EvaluationOptions(keep_crops=False))
        return [{path.name: path.read_bytes() for path in sorted(out.iterdir())}]


@cache
def _checkpoints():
    from facerts.training.checkpoint import FILE, save_checkpoint
    from facerts.training.learner import Learner
    from facerts.training.recipe import Recipe

    small = {"name": "mobilefacenet", "width": 0.125, "embedding_size": 4}
    compute = {"device": "cpu", "precision": "fp32"}
    recipe = Recipe.model_validate({**recipes.GOOD, "backbone": small, "compute": compute})
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        save_checkpoint(path, recipe, {"step": 1, "position": 1.0, **Learner(recipe, 2).state_dict()})
        return [_files(Path(folder))]


@cache
def _exported_files():
    from facerts.training.checkpoint import FILE
    from facerts.training.export import export_run

    with TemporaryDirectory() as folder:
        run, out = Path(folder) / "run", Path(folder) / "a.onnx"
        run.mkdir()
        (run / FILE).write_bytes(_checkpoints()[0][FILE])
        export_run(run, out)
        return [{out.name: out.read_bytes()}]


SHARD = {f"a.tar|person/{number}.jpg": FACE for number in range(3)}
SCORES = b'image,sharpness,remark\n/x/a/1.jpg,0.5,"good, ""sharp"""\n2.jpg,-1e3,\n'
GROUPS = b'image,age,"sex, as given"\n/x/a/1.jpg,34,woman\n2.jpg,,"a ""man"""\n'
BODY = b'{"images": ["/9j/", "data:image/png;base64,iVBO"], "largest": true}'
FORM = (
    b'--X\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    + FACE
    + b'\r\n--X\r\nContent-Disposition: form-data; name="keep"\r\n\r\n0.95\r\n--X--\r\n'
)
HEAD = b"POST /v1/score?aligned=true HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
REQUESTS = {
    "length": HEAD + b"Content-Length: %d\r\n\r\n" % len(FACE) + FACE,
    "chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(FACE) + FACE + b"\r\n0\r\n\r\n",
}
READERS = {
    **{kind: _image(f".{kind}") for kind in ("jpg", "webp", "gif", "bmp")},
    "png": _image(".png", _png_checksums),
    "records": Reader(_read_source, _record_sets, hostile=_hostile_records),
    "bin": Reader(_of(_read_source), _bin_sets, hostile=_alone("a.bin", pickles.HOSTILE)),
    "tar": Reader(_of(_read_source), lambda: [SHARD], _packed, _alone("a.tar", archives.HOSTILE)),
    "list": Reader(
        _of(partial(_read_source, open_it=open_images), "a.txt"),
        _lists(b"0.jpg\n1.jpg\r\n2.jpg\n"),
        hostile=_alone("a.txt", {**lists.HOSTILE, **lists.REFUSED}),
    ),
    **{
        f"pairs ({kind})": Reader(_of(load_pair_list, f"*.{kind}"), _lists(PAIR_LISTS[kind], f"a.{kind}"))
        for kind in PAIR_LISTS
    },
    "pairs to verify": Reader(_of(_read_pairs_to_verify, "*.csv"), _alone("a.csv", {"": PAIR_LISTS["csv"]})),
    "groups": Reader(_of(_read_groups), _alone("groups.csv", {"": GROUPS})),
    "scores": Reader(_of(_read_scores), _alone("scores.csv", {"": SCORES})),
    "npz": Reader(_of(read_table), _tables, _packed, _alone("a.npz", arrays.HOSTILE)),
    "gallery": Reader(_of(read_gallery), _galleries, _packed, _alone("a.npz", {**arrays.HOSTILE, **galleries.HOSTILE})),
    "people": Reader(_read_people, _people, _packed),
    "parquet": Reader(_of(read_table), _parquets),
    "recipe": Reader(
        _of(read_recipe),
        _alone("a.yaml", {"": yaml.safe_dump(recipes.GOOD).encode()}),
        hostile=_alone("a.yaml", recipes.HOSTILE),
    ),
    "description": Reader(_of(read_description), _descriptions, hostile=_alone("a.json", onnx_files.DESCRIPTIONS)),
    "onnx": Reader(_of(read_model, "a.onnx"), _models, hostile=_hostile_models),
    "checkpoint": Reader(_of(read_checkpoint), _checkpoints),
    "exported": Reader(_of(read_exported, "a.onnx"), _exported_files, hostile=_hostile_models),
    "result": Reader(_read_result, _results, hostile=_alone("result.json", results.TEXTS)),
    "body": Reader(_of(_read_body), _alone("body", {"": BODY})),
    "form": Reader(_of(_read_form), _alone("form", {"": FORM})),
    "request": Reader(_of(_read_request), _alone("request", REQUESTS)),
}
