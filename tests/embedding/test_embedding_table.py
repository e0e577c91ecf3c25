import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from facerts.datasets import open_source
from facerts.datasets.bin_set import write_bin
from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder, load_table
from facerts.errors import DataError, MissingExtraError
from facerts.images import encode_png
from facerts.io import npz
from facerts.io.files import sha256_file
from facerts.scoring import RowBuilder, lazy_images, score_images
from facerts.scoring.sinks import write_embeddings
from tests.evaluation.conftest import unit
from tests.foreign import write_description, write_embedder
from tests.hostile.sandbox import read_bounded

FACE = encode_png(draw_face(0, 0))
KEYS = ["Ann/Ann_0001.jpg", "Ann/Ann_0002.jpg", "Bob/Bob_0001.jpg", "Bob/Bob_0002.jpg"]


@pytest.fixture
def faces(tmp_path):
    """Four images of two people, with the keys above."""
    for key in KEYS:
        path = tmp_path / "lfw" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FACE)
    return open_source(tmp_path / "lfw")


@pytest.fixture
def numbered(tmp_path):
    """A .bin set of four images, whose keys are numbers."""
    write_bin(tmp_path / "set.bin", [FACE] * 4, [True, False])
    return open_source(tmp_path / "set.bin")


def vectors(count=4, size=6):
    """Embeddings with lengths far from 1."""
    return np.random.default_rng(1).normal(size=(count, size)).astype(np.float32) * 3


def write_npz(path, /, **arrays):
    np.savez(path, **arrays)
    return path


def write_parquet(path, /, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_rows_come_in_the_order_of_the_images(tmp_path, faces):
    embeddings, order = vectors(), [2, 0, 3, 1]
    path = write_npz(
        tmp_path / "theirs.npz",
        names=np.array(KEYS)[order],
        embeddings=embeddings[order],
        quality=np.array(order, dtype=np.float64),
        sharpness=np.array(order, dtype=np.float16),
        det_score=np.array(order),
    )
    table = load_table(path)
    outputs = table.outputs(faces)
    np.testing.assert_allclose(outputs.embedding, unit(embeddings), atol=1e-6)
    assert outputs.embedding.dtype == np.float32
    assert outputs.quality.tolist() == [0, 1, 2, 3]
    assert outputs.uncertainty.tolist() == [0, -1, -2, -3]
    assert {key: values.tolist() for key, values in outputs.extras.items()} == {
        "sharpness": [0, 1, 2, 3],
        "det_score": [0, 1, 2, 3],
    }
    assert (table.name, table.method, table.sha256) == ("theirs", "unknown", sha256_file(path))


def test_the_file_of_the_embed_command_gives_the_models_outputs(tmp_path, drawn_faces):
    model = write_description(write_embedder(tmp_path / "m.onnx", quality=True), quality="output:bright")
    embedder, source = load_embedder(model), open_source(drawn_faces)
    write_embeddings(
        tmp_path / "faces.npz", [face for (face,) in score_images(RowBuilder(embedder), lazy_images(source))]
    )
    expected = embedder(np.stack([source.crop(index) for index in range(len(source))]))
    read = load_table(tmp_path / "faces.npz").outputs(source)
    for name in ("embedding", "norm", "quality", "uncertainty"):
        np.testing.assert_allclose(getattr(read, name), getattr(expected, name), rtol=1e-5, atol=1e-6)


def test_a_column_of_nan_is_ignored(tmp_path, faces):
    nothing, embeddings = np.full(4, np.nan), vectors()
    columns = {"quality": nothing, "uncertainty": nothing, "norm": nothing, "face_size": nothing}
    outputs = load_table(write_npz(tmp_path / "t.npz", names=KEYS, embeddings=embeddings, **columns)).outputs(faces)
    assert outputs.quality is None
    assert outputs.uncertainty is None
    assert outputs.extras == {}
    np.testing.assert_allclose(outputs.norm, np.linalg.norm(embeddings, axis=1), rtol=1e-5)


def test_the_norm_is_the_tables_or_the_length_if_that_is_not_1(tmp_path, faces):
    def norm(**arrays):
        return load_table(write_npz(tmp_path / "t.npz", names=KEYS, **arrays)).outputs(faces).norm

    embeddings = vectors()
    np.testing.assert_allclose(norm(embeddings=embeddings), np.linalg.norm(embeddings, axis=1), rtol=1e-5)
    assert norm(embeddings=unit(embeddings).astype(np.float16)) is None
    assert norm(embeddings=embeddings, norm=np.arange(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("prefix", ["/data/lfw/", "C:\\data\\lfw\\", "./", ""])
def test_names_may_be_longer_paths_than_the_keys(tmp_path, faces, prefix):
    names = [prefix + (key.replace("/", "\\") if "\\" in prefix else key) for key in KEYS[::-1]]
    outputs = load_table(write_npz(tmp_path / "t.npz", paths=names, embeddings=vectors()[::-1])).outputs(faces)
    np.testing.assert_allclose(outputs.embedding, unit(vectors()), atol=1e-6)


def test_keys_match_whole_path_components(tmp_path, faces):
    names = ["/data/Maryann/Ann_0001.jpg", *KEYS[1:]]
    with pytest.raises(DataError, match=r"1 of 4 images of lfw have no row, the first is Ann/Ann_0001\.jpg"):
        load_table(write_npz(tmp_path / "t.npz", names=names, embeddings=vectors())).outputs(faces)


def test_a_row_belongs_to_the_longest_matching_key(tmp_path):
    (tmp_path / "faces" / "Ann").mkdir(parents=True)
    for name in ("1.png", "Ann/1.png"):
        (tmp_path / "faces" / name).write_bytes(FACE)
    (tmp_path / "faces" / "list.txt").write_text("1.png\nAnn/1.png\n")
    source = open_source(tmp_path / "faces" / "list.txt")
    names = ["/data/Ann/1.png", "/data/1.png"]
    outputs = load_table(write_npz(tmp_path / "t.npz", names=names, embeddings=np.eye(2))).outputs(source)
    assert outputs.embedding.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(DataError, match=r"1 of 2 images .* the first is 1\.png"):
        load_table(write_npz(tmp_path / "t.npz", names=names[:1], embeddings=np.eye(1))).outputs(source)


def test_two_rows_that_end_with_a_key_are_refused_unless_one_equals_it(tmp_path, faces):
    names = [f"/a/{KEYS[0]}", f"/b/{KEYS[0]}", *KEYS[1:]]
    with pytest.raises(
        DataError, match=r"t\.npz: rows 0 \(a/Ann/Ann_0001\.jpg\) and 1 \(b/Ann.*both end with Ann/Ann_0001"
    ):
        load_table(write_npz(tmp_path / "t.npz", names=names, embeddings=vectors(5))).outputs(faces)
    names = [f"/a/{KEYS[0]}", *KEYS]
    outputs = load_table(write_npz(tmp_path / "t.npz", names=names, embeddings=vectors(5))).outputs(faces)
    np.testing.assert_allclose(outputs.embedding, unit(vectors(5)[1:]), atol=1e-6)


def test_rows_without_names_are_taken_in_order_if_images_are_numbered(tmp_path, numbered, faces):
    table = load_table(write_npz(tmp_path / "t.npz", embeddings=vectors()))
    np.testing.assert_allclose(table.outputs(numbered).embedding, unit(vectors()), atol=1e-6)
    with pytest.raises(DataError, match=r"no names, .* add names such as Ann/Ann_0001\.jpg"):
        table.outputs(faces)
    short = load_table(write_npz(tmp_path / "short.npz", embeddings=vectors(3)))
    with pytest.raises(DataError, match=r"short\.npz: 3 rows without names cannot be the 4 images of set"):
        short.outputs(numbered)


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed_size_list"])
def test_a_parquet_table_is_read_like_an_npz(tmp_path, faces, kind):
    embeddings = vectors()
    types = {
        "list": pyarrow.list_(pyarrow.float64()),
        "large_list": pyarrow.large_list(pyarrow.float32()),
        "fixed_size_list": pyarrow.list_(pyarrow.float32(), 6),
    }
    path = write_parquet(
        tmp_path / "t.parquet",
        path=[f"/data/{key}" for key in KEYS],
        embedding=pyarrow.array(embeddings.tolist(), type=types[kind]),
        quality=pyarrow.array([1, 2, 3, 4]),
        norm=pyarrow.array([None] * 4, type=pyarrow.float64()),
        blur=pyarrow.array([0.5, None, 1.0, 2.0]),
        remark=["none"] * 4,
    )
    outputs = load_table(path).outputs(faces)
    np.testing.assert_allclose(outputs.embedding, unit(embeddings), atol=1e-6)
    np.testing.assert_allclose(outputs.norm, np.linalg.norm(embeddings, axis=1), rtol=1e-5)
    assert outputs.quality.tolist() == [1, 2, 3, 4]
    assert list(outputs.extras) == ["blur"]
    np.testing.assert_array_equal(outputs.extras["blur"], [0.5, np.nan, 1, 2])


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_variances_are_scaled_with_their_embeddings(tmp_path, faces, ending):
    embeddings, variance = vectors(), np.random.default_rng(2).uniform(0.1, 1, (4, 6))
    path = tmp_path / f"t.{ending}"
    if ending == "npz":
        write_npz(path, names=KEYS, embeddings=embeddings, variance=variance)
    else:
        write_parquet(path, name=KEYS, embedding=embeddings.tolist(), variance=variance.tolist())
    outputs = load_table(path).outputs(faces)
    # Standard deviations are divided by the embedding's length.
    ratio = np.sqrt(outputs.extras["variance"]) / np.linalg.norm(outputs.embedding, axis=1, keepdims=True)
    expected = np.sqrt(variance) / np.linalg.norm(embeddings, axis=1, keepdims=True)
    np.testing.assert_allclose(ratio, expected, rtol=1e-5)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "t.parquet", name=KEYS, embedding=vectors().tolist())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[cpu\]'"):
        load_table(path)


def changed(row, value):
    embeddings = vectors()
    embeddings[row] = value
    return embeddings


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"embeddings": changed(2, np.nan)}, r"embeddings of row 2 \(Bob/Bob_0001\.jpg\) is not a finite"),
        ({"embeddings": vectors().astype(np.float64) * 1e300}, r"embeddings of row 0 .* not a finite"),
        ({"embeddings": changed(1, 0)}, r"row 1 \(Ann/Ann_0002\.jpg\) has length 0 and so no direction"),
        ({"embeddings": changed(1, 3e38)}, r"row 1 \(Ann/Ann_0002\.jpg\) has length inf"),
        ({"embeddings": vectors()[0]}, r"embeddings must be \(N, d\), .* not \(6,\)"),
        ({"embeddings": np.zeros((0, 6))}, r"embeddings must be \(N, d\), .* not \(0, 6\)"),
        ({"embeddings": vectors().astype(str)}, "embeddings must be numbers, not <U"),
        ({"names": KEYS[:3]}, r"names must be \(4,\), one for each embedding, not \(3,\)"),
        ({"names": np.arange(4)}, "names must be text, but that of row 0 is 0"),
        ({"names": np.array(KEYS, dtype=object)}, "array 'names' cannot be read .* no Python objects"),
        (
            {"names": [*KEYS[:3], KEYS[0]]},
            r"rows 0 and 3 are both named Ann/.* \(several faces in one photo\?\)",
        ),
        ({"names": [*KEYS[:3], KEYS[0].replace("/", "\\")]}, "rows 0 and 3 are both named"),
        ({"quality": np.ones((4, 1))}, r"quality must be \(4,\), .* not \(4, 1\)"),
        ({"quality": np.array([1, 2, np.nan, 3])}, r"quality of row 2 \(Bob/Bob_0001\.jpg\) is not a finite"),
        ({"det_score": np.ones(3)}, r"det_score must be \(4,\)"),
        ({"variance": np.ones((4, 5))}, r"variance must be \(4, 6\), one per entry .*, not \(4, 5\)"),
        ({"variance": np.ones((3, 6))}, r"variance must be \(4, 6\), .* not \(3, 6\)"),
        ({"variance": np.full((4, 6), "x")}, "variance must be numbers, not <U"),
    ],
)
def test_a_broken_table_is_refused_with_file_and_row(tmp_path, arrays, message):
    path = write_npz(tmp_path / "t.npz", **{"names": KEYS, "embeddings": vectors(), **arrays})
    with pytest.raises(DataError, match=rf"t\.npz: .*{message}"):
        load_table(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"embedding": [[1.0, 2.0], [1.0]]},
            "embedding of row 1 is missing, or its length differs from that of row 0",
        ),
        ({"embedding": [[1.0, 2.0], None]}, "embedding of row 1 is missing"),
        ({"embedding": [None, [1.0, 2.0]]}, "embedding of row 0 is missing"),
        ({"embedding": [[1.0, None], [1.0, 2.0]]}, r"embedding of row 0 \(a\) is not a finite number"),
        ({"embedding": [["x"], ["y"]]}, "embedding must be numbers, not object"),
        ({"embedding": [1.0, 2.0]}, "embedding must be a list of numbers in each row, not double"),
        (
            {"variance": [[1.0, 2.0], [1.0]]},
            "variance of row 1 is missing, or its length differs from that of row 0",
        ),
        ({"name": ["a", None]}, "name must be text, but that of row 1 is None"),
        ({"embedding": pyarrow.array([], pyarrow.list_(pyarrow.float32())), "name": []}, r"not \(0, 0\)"),
    ],
)
def test_a_broken_parquet_table_is_refused_with_file_and_row(tmp_path, columns, message):
    whole = {"name": ["a", "b"], "embedding": [[1.0, 2.0], [3.0, 4.0]]}
    with pytest.raises(DataError, match=rf"t\.parquet: .*{message}"):
        load_table(write_parquet(tmp_path / "t.parquet", **{**whole, **columns}))


@pytest.mark.parametrize(
    "columns",
    [
        {"name": [f"{row}" for row in range(500)], "embedding": [[1.0]] * 500},
        {"name": ["a"], "embedding": [[1.0] * 12_000]},
        {"name": ["a" * 1000] * 50 + ["b" * 1000] * 50, "embedding": [[1.0]] * 100},
    ],
    ids=["rows", "numbers", "names"],
)
def test_a_parquet_table_cannot_expand_to_any_size(tmp_path, monkeypatch, columns):
    path = write_parquet(tmp_path / "t.parquet", **columns)
    monkeypatch.setattr(npz, "MAX_RATIO", 0)
    monkeypatch.setattr(npz, "MAX_BYTES", 90_000)
    with pytest.raises(DataError, match=r"t\.parquet: it takes more memory than the 90,000 bytes"):
        load_table(path)


def test_contradictory_metadata_of_a_parquet_table_do_not_end_the_process(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", name=["a", "b"], embedding=[[1.0], [2.0]])
    content = path.read_bytes()
    # The type of the names, text, becomes that of booleans.
    text, boolean = (b"\x15" + kind + b"%\x02\x18\x04name" for kind in (b"\x0c", b"\0"))
    assert content.count(text) == 1
    path.write_bytes(content.replace(text, boolean))
    (message,) = read_bounded("table", [path]).values()
    assert message.startswith(f"{path}: not a readable Parquet file")


def test_files_that_are_not_tables_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"gone\.npz: no such table"):
        load_table(tmp_path / "gone.npz")
    with pytest.raises(DataError, match=r"t\.csv: a table of embeddings must be a \.npz or \.parquet file"):
        load_table(tmp_path / "t.csv")
    for name in ("text.npz", "text.parquet"):
        (tmp_path / name).write_text("hello")
        with pytest.raises(DataError, match=rf"text\{Path(name).suffix}: not a"):
            load_table(tmp_path / name)
    whole = write_npz(tmp_path / "whole.npz", names=KEYS, embeddings=vectors()).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.npz: not an \.npz file, or truncated"):
        load_table(tmp_path / "cut.npz")
    broken = whole.replace(vectors().tobytes(), bytes(vectors().nbytes))
    assert broken != whole
    (tmp_path / "broken.npz").write_bytes(broken)
    with pytest.raises(DataError, match=r"broken\.npz: array 'embeddings' cannot be read \(Bad CRC"):
        load_table(tmp_path / "broken.npz")
    with pytest.raises(DataError, match=r"t\.npz: it has neither embeddings nor embedding, only names"):
        load_table(write_npz(tmp_path / "t.npz", names=KEYS))


def test_a_parquet_table_whose_names_are_not_utf8_is_refused_with_its_name(tmp_path):
    path = tmp_path / "t.parquet"
    table = pyarrow.table({"name": KEYS, "embedding": vectors().tolist()})
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"Ann/", b"\x80nn/"))
    with pytest.raises(DataError, match=r"t\.parquet: not a readable Parquet file .*can't decode byte 0x80"):
        load_table(path)
