import csv
import json
import math
import re
from functools import partial

import numpy as np
import pyarrow.parquet
import pytest

import facerts
from facerts.datasets import open_images
from facerts.datasets.synthetic import draw_face
from facerts.errors import Error, ImageError, ModelError
from facerts.images import encode_jpeg, encode_png
from facerts.io.map_ahead import map_ahead
from facerts.scoring import Face, LazyImage, Row, RowBuilder, Scorer, lazy_images, open_sink, score_images
from facerts.scoring.sinks import FORMULA_PREFIXES, from_cell, write_embeddings
from tests.detectors import TWO_FACES
from tests.foreign import SIZE, slow_embedding, write_description, write_embedder


@pytest.fixture
def scorer(tmp_path):
    model = write_embedder(tmp_path / "model.onnx")
    write_description(model, thresholds={"0.95": {"quality": 3.5, "data_sha256": "0" * 64}})
    return facerts.load(model, detector="none")


def test_an_unreadable_image_becomes_a_row_with_its_error(scorer, tmp_path):
    good = tmp_path / "good.png"
    good.write_bytes(encode_png(draw_face(0, 0)))
    (tmp_path / "zero.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("hello")
    (tmp_path / "cut.jpg").write_bytes(encode_jpeg(draw_face(0, 0))[:500])
    (tmp_path / "wide.png").write_bytes(encode_png(draw_face(0, 0)[:50]))
    (tmp_path / "tiny.png").write_bytes(encode_png(draw_face(0, 0)[:1, :1]))
    names = ["zero.jpg", "text.jpg", "good.png", "cut.jpg", "wide.png", "tiny.png", "missing.jpg"]
    words = [
        "empty",
        "not a JPEG",
        "",
        "truncated",
        "not an aligned crop",
        "tiny.png: 1 x 1 pixels",
        "No such",
    ]
    for row, expected in zip(scorer.score([tmp_path / name for name in names]), words, strict=True):
        assert expected in (row.error or "")
        assert bool(expected) == bool(row.error)
    assert "image 0: 15 x 15 pixels are too few" in str(scorer.score(draw_face(0, 0)[:15, :15])[0].error)
    line = np.zeros(4, dtype=np.uint8)
    assert "(H, W, 3)" in str(scorer.score([line])[0].error)


def test_a_threshold_accepts_or_rejects_and_says_why(scorer, tmp_path):
    faces = [draw_face(identity, 0) for identity in range(6)]
    qualities = sorted(row.quality or 0 for row in scorer.score(faces))
    rows = scorer.score(faces, min_quality=qualities[3])
    assert sum(row.accepted is True for row in rows) == 3
    assert all(("below_threshold" not in row.reasons) == row.accepted for row in rows)
    assert all(row.accepted is None for row in scorer.score(faces))
    assert scorer.threshold(0.95) == 3.5
    assert scorer.score(faces, keep=0.95) == scorer.score(faces, min_quality=3.5)
    with pytest.raises(ModelError, match=r"no threshold that keeps 0\.9 .*calibrate it"):
        scorer.threshold(0.9)
    with pytest.raises(ModelError, match="give only one"):
        scorer.score(faces, keep=0.95, min_quality=1.0)
    model = write_description(write_embedder(tmp_path / "plain.onnx"), quality="none")
    with pytest.raises(ModelError, match="has no quality"):
        facerts.load(model).score(faces, min_quality=1.0)


def test_a_threshold_that_is_not_a_number_is_refused(scorer):
    image = np.full((112, 112, 3), 30, dtype=np.uint8)
    for use in (scorer.score, scorer.faces, partial(scorer.verify, image, threshold=0.3)):
        with pytest.raises(Error, match="the minimum quality is not a number"):
            use(image, min_quality=math.nan)


def test_a_photo_gives_a_row_for_each_face_or_one_without_a_face(scorer):
    first, second = draw_face(0, 0), draw_face(1, 0)
    finding = Scorer(scorer.quality, scorer.recognizer, TWO_FACES)
    rows = finding.score([np.concatenate([first, second], axis=1), first], min_quality=0.0)
    assert [row.face for row in rows] == [0, 1, None]
    assert [row.quality for row in rows[:2]] == [
        pytest.approx(row.quality, rel=1e-3) for row in scorer.score([first, second])
    ]
    assert len(rows[0].points) == 10
    assert (rows[2].reasons, rows[2].accepted, rows[2].error) == (("no_face",), False, None)
    photo = np.concatenate([first, second], axis=1)
    assert [row.face for row in finding.score([photo, photo], largest=True)] == [0, 0]
    with pytest.raises(ImageError, match="image 1: no face found"):
        finding.embed([photo, first])


@pytest.mark.parametrize(("workers", "parallel_batches"), [(1, 1), (4, 3)])
def test_rows_keep_the_order_of_the_images(scorer, drawn_faces, workers, parallel_batches):
    source = open_images(drawn_faces)
    scored = [
        face
        for (face,) in score_images(
            RowBuilder(scorer.recognizer.opened),
            lazy_images(source),
            batch_size=5,
            workers=workers,
            parallel_batches=parallel_batches,
        )
    ]
    assert [entry.row.path for entry in scored] == [source.location(i) for i in range(len(source))]
    crops = np.stack([source.crop(index) for index in range(len(source))])
    np.testing.assert_allclose(
        [entry.row.quality for entry in scored], np.linalg.norm(slow_embedding(crops), axis=1), rtol=1e-5
    )
    for entry, crop in zip(scored, crops, strict=True):
        assert entry.crop is not None
        np.testing.assert_array_equal(entry.crop, crop)


class RecordsBatches:
    """A model that records its batch sizes."""

    def __init__(self, model):
        self.name, self.method, self.sha256 = model.name, model.method, model.sha256
        self._model = model
        self.batches = []

    def __call__(self, crops):
        self.batches.append(len(crops))
        return self._model(crops)


def test_no_batch_crosses_a_block_boundary(scorer, drawn_faces):
    source = open_images(drawn_faces)
    model = RecordsBatches(scorer.recognizer.opened)
    list(score_images(RowBuilder(model), lazy_images(source, 0, 13), batch_size=4, block_size=6))
    assert model.batches == [4, 2, 4, 2, 1]


def test_text_that_a_format_cannot_store_is_escaped_in_all(tmp_path):
    row = Row("a\0b\udcff.jpg", error="\ud800", reasons=("\udfff", "blurred"))
    for suffix in ("csv", "jsonl", "parquet"):
        with open_sink(tmp_path / f"rows.{suffix}") as put:
            put(row)
    (line,) = pyarrow.parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert (line["path"], line["error"]) == ("a\\x00b\\udcff.jpg", "\\ud800")
    assert line["reasons"] == ["\\udfff", "blurred"]
    assert json.loads((tmp_path / "rows.jsonl").read_text(encoding="utf-8")) == line
    (cells,) = csv.DictReader((tmp_path / "rows.csv").open(encoding="utf-8"))
    assert (cells["path"], cells["error"]) == (line["path"], line["error"])
    assert cells["reasons"] == "\\udfff;blurred"


HARMFUL = [
    *(
        '=HYPERLINK("http://evil.example")',
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "-",
        "@SUM(1)",
        "\t=1",
        "\r=1",
        "\n=1",
    ),
    *("＝1", "a\r=cmd.jpg", "a\n=cmd.jpg", 'a";=cmd.jpg', "a;=cmd.jpg", "a,=cmd.jpg", "a\t=cmd.jpg"),
]
HARMLESS = ["a=b.jpg", "photos/-1.jpg", "'", "''", "'=1", "ü.jpg", "1e5"]


def test_no_cell_of_a_csv_is_a_formula_and_names_survive_the_round_trip(tmp_path):
    texts = [*HARMFUL, *HARMLESS]
    with open_sink(tmp_path / "rows.csv") as put:
        for text in texts:
            put(Row(text, 0, box=[-3.5, 1, 2, 3], quality=-1.25, reasons=(text,), error=text, model_sha256="f"))
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for name in ("path", "reasons", "error"):
        assert [from_cell(row[name]) for row in rows] == texts
        assert not any(row[name].startswith(FORMULA_PREFIXES) for row in rows)
    # Numbers stay numbers.
    assert {(row["box"], row["quality"]) for row in rows} == {("-3.5 1 2 3", "-1.25")}
    # Whatever a program takes for the end of a cell or line, no text can start a new one.
    written = (tmp_path / "rows.csv").read_text(encoding="utf-8")
    outside = re.sub(r'"(?:[^"]|"")*"', "text", written)
    assert set(outside) <= set("text,0123456789.-\n")


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_an_interrupted_sink_leaves_the_old_file(tmp_path, name):
    (tmp_path / name).write_text("old")

    def interrupted():
        with open_sink(tmp_path / name) as put:
            put(Row("a.jpg"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / name).read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(Error, match=r"\.csv, \.jsonl, \.parquet"), open_sink(tmp_path / "rows.xls"):
        pass


def test_embeddings_are_written_with_the_errors(scorer, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.png").write_bytes(encode_png(draw_face(number, 0)))
    (folder / "bad.png").write_bytes(b"no")
    write_embeddings(tmp_path / "e.npz", list(scorer.score_each(folder)))
    with np.load(tmp_path / "e.npz") as stored:
        assert stored["embeddings"].shape == (3, 8)
        np.testing.assert_allclose(np.linalg.norm(stored["embeddings"], axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(stored["norm"], stored["quality"])
        assert stored["failed_paths"].tolist() == [str(folder / "bad.png")]
    points = [10.0, 20.0, 13.0, 24.0, 0, 0, 0, 0, 0, 0]
    face = Face(Row("a.jpg", 0, points=points, det_score=0.75), None, np.eye(2, dtype=np.float32)[0], 2.0)
    write_embeddings(tmp_path / "photos.npz", [face])
    with np.load(tmp_path / "photos.npz") as stored:
        assert (stored["det_score"].tolist(), stored["face_size"].tolist()) == ([0.75], [5.0])
    with pytest.raises(Error, match="any of the 0 images"):
        write_embeddings(tmp_path / "none.npz", [])
    with pytest.raises(Error, match=r"of the 1 images \(1 could not be read, the first: .*bad\.png: not a JPEG"):
        write_embeddings(tmp_path / "none.npz", list(scorer.score_each(folder / "bad.png")))


def layouts(crops):
    """The same crops in arrays of other memory layouts."""
    wide = np.zeros((len(crops), 112, 120, 3), dtype=np.uint8)
    wide[:, :, 4:116] = crops
    frozen = crops.copy()
    frozen.flags.writeable = False
    reversed_channels = crops[..., ::-1].copy()[..., ::-1]
    strided = np.repeat(crops, 2, axis=0)[::2]
    planes = crops.transpose(0, 3, 1, 2).copy().transpose(0, 2, 3, 1)
    return [crops, np.asfortranarray(crops), wide[:, :, 4:116], reversed_channels, strided, planes, frozen]


def test_memory_layout_does_not_matter(scorer, crops):
    raw = slow_embedding(crops)
    norm = np.linalg.norm(raw, axis=1)
    for arrays in layouts(crops):
        for images in (arrays, list(arrays)):
            np.testing.assert_allclose([row.quality for row in scorer.score(images)], norm, rtol=1e-5)
        outputs = scorer.embed(arrays)
        np.testing.assert_allclose(outputs.embedding, raw / norm[:, None], atol=2e-6)
        np.testing.assert_array_equal(arrays, crops)


def test_a_single_crop_and_an_empty_batch_are_accepted(scorer, crops):
    assert scorer.score(crops[3]) == scorer.score(crops[3:4]) == scorer.score([crops[3]])
    assert scorer.score([]) == scorer.score(crops[:0]) == []
    assert scorer.embed(crops[:0]).embedding.shape == (0, SIZE)


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        (lambda crops: crops / 255, "(112, 112, 3) float64"),
        (lambda crops: crops.astype(np.float32), "(112, 112, 3) float32"),
        (lambda crops: crops.astype(np.int64), "(112, 112, 3) int64"),
        (lambda crops: crops.transpose(0, 3, 1, 2), "(3, 112, 112) uint8"),
        (lambda crops: crops[..., :2], "(112, 112, 2) uint8"),
    ],
    ids=["fractions", "float", "integers", "planes", "two channels"],
)
def test_an_invalid_array_is_reported_with_shape_and_type(scorer, crops, change, shape):
    arrays = change(crops)
    for number, row in enumerate(scorer.score(arrays)):
        assert row.quality is None
        assert f"image {number}: an array must be (H, W, 3) uint8 RGB" in str(row.error)
        assert shape in str(row.error)
    with pytest.raises((ImageError, ModelError), match=r"3\) uint8 RGB") as raised:
        scorer.embed(arrays)
    assert shape[1:] in str(raised.value)


def test_few_crops_wait_to_be_scored(scorer, monkeypatch):
    monkeypatch.setitem(map_ahead.__kwdefaults__ or {}, "max_bytes", 1000)
    photos = []

    def find(photo):
        photos.append(photo)
        return TWO_FACES(photo)

    images = [LazyImage(str(number), lambda: np.zeros((112, 224, 3), np.uint8)) for number in range(100)]
    scored = score_images(RowBuilder(scorer.recognizer.opened), images, detector=find, batch_size=2, workers=2)
    assert len(next(scored)) == 2
    # Three of the network, one that waits, and those of two threads.
    assert len(photos) <= 6
    # Threads that wait are no reason not to stop.
    scored.close()
