"""The table that judges qualities on other networks' embeddings."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from facerts.datasets import Subset, open_source
from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder
from facerts.embedding.embed import embed_source
from facerts.images.align import TEMPLATE
from facerts.images.corruptions import KINDS
from facerts.metrics.compared_pairs import compare_all
from facerts.metrics.reject_areas import reject_areas
from tests.foreign import quality_description, write_description, write_embedder, write_quality
from tests.scripts import run_script

EVAL = Path(__file__).parents[1] / "eval"
CLEAN = ["--thresholds-on", "clean"]


def load(name: str) -> Any:
    sys.path.insert(0, str(EVAL))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EVAL))


table, image_sets = map(load, ("quality_across_recognizers", "image_sets"))


# Tables.


def test_where_nothing_is_wrong_there_is_nothing_to_compare() -> None:
    people = np.repeat(np.arange(20), 2)
    pairs = compare_all(np.eye(20, dtype=np.float32)[people], people)
    found = reject_areas(pairs, {"any": np.arange(40)}, [0.01], replicates=5)[0.01]
    areas = table.areas_to_end(found)
    assert table.formatted(areas["any"], ".3f") == "–"
    assert table.area_cells(areas, "any", "oracle") == ("–", "–")


# Sets of images.


@pytest.mark.parametrize("name", ["degraded", "misaligned"])
def test_what_becomes_of_an_image_hangs_on_its_index_and_the_seed_alone(drawn_faces: Path, name: str) -> None:
    source = open_source(drawn_faces)
    images = image_sets.open_image_set(name, source, 1)
    late = images.crop(9)
    again = image_sets.open_image_set(name, source, 1)
    assert np.array_equal(again.crop(9), late)
    assert image_sets.hash_crops(images) == image_sets.hash_crops(again)
    assert not np.array_equal(image_sets.open_image_set(name, source, 2).crop(9), late)
    ten = image_sets.open_image_set(name, Subset(source, [9] * 10), 1)
    assert len({ten.crop(row).tobytes() for row in range(10)}) == 10
    assert images.labels is source.labels
    assert [images.key(row) for row in range(3)] == [source.key(row) for row in range(3)]


def test_clean_images_are_as_they_are(drawn_faces: Path) -> None:
    source = open_source(drawn_faces)
    images = image_sets.open_image_set("clean", source, 1)
    assert image_sets.hash_crops(images) == image_sets.hash_crops(source)
    assert image_sets.hash_crops(images) != image_sets.hash_crops(
        image_sets.open_image_set("degraded", source, 1)
    )


@pytest.mark.slow
def test_degraded_images_are_of_every_kind_and_strength(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(image_sets.DEGRADED_BY) <= set(KINDS)
    drawn: list[tuple[str, float, tuple[int, ...]]] = []
    monkeypatch.setattr(image_sets, "degrade", lambda image, *how: drawn.append(how))
    for seed in (4, 5):
        for index in range(600):
            image_sets.degraded(draw_face(0, 0), index, seed)
    # What is random in a degradation is another for each image and seed.
    assert len({tuple(seed) for _, _, seed in drawn}) == len({strength for _, strength, _ in drawn}) == 1200
    kinds, strengths, _ = zip(*drawn[:600], strict=True)
    assert all(70 <= kinds.count(kind) <= 130 for kind in image_sets.DEGRADED_BY)
    assert np.histogram(strengths, bins=4, range=(0, 1))[0].min() > 120
    assert abs(np.corrcoef([image_sets.DEGRADED_BY.index(kind) for kind in kinds], strengths)[0, 1]) < 0.15


def test_misaligned_images_are_turned_shifted_and_cut_tighter_or_looser() -> None:
    """Seen by three spots of an image, each of a color of its own."""
    spots = np.array([[40.0, 46.0], [70.0, 46.0], [55.0, 74.0]])
    image = np.zeros((112, 112, 3), dtype=np.uint8)
    y, x = np.mgrid[:112, :112]
    for channel, (column, row) in enumerate(spots):
        image[..., channel] = 255 * np.exp(-((x - column) ** 2 + (y - row) ** 2) / 18)
    widths, shifts, turns = [], [], []
    for index in range(200):
        moved = image_sets.misaligned(image, index, 0).astype(np.float64)
        found = [
            np.array([(moved[..., c] * x).sum(), (moved[..., c] * y).sum()]) / moved[..., c].sum()
            for c in range(3)
        ]
        across = found[1] - found[0]
        widths.append(np.linalg.norm(across) / 30)
        turns.append(np.degrees(np.arctan2(across[1], across[0])))
        shifts.append(np.mean(found, axis=0) - spots.mean(axis=0))
    # The scale of a similarity fitted to five points with noise n (pixels) has a spread of n over their size.
    spread = 0.1 * 35.24 / np.sqrt(np.sum((TEMPLATE - TEMPLATE.mean(axis=0)) ** 2))
    tight = np.array(widths) > 1
    assert 75 <= tight.sum() <= 125
    by_coin = [np.array(widths)[rows] for rows in (tight, ~tight)]
    # Noise in the points that are fitted makes the fitted scale smaller, the same for both.
    assert np.mean(by_coin[0]) / np.mean(by_coin[1]) == pytest.approx(1.15 / 0.85, rel=0.03)
    assert np.mean([np.mean(one) for one in by_coin]) == pytest.approx(0.975, abs=0.025)
    assert np.std(by_coin[0]) == pytest.approx(1.15 * spread, rel=0.35)
    assert np.std(turns) == pytest.approx(np.degrees(spread), rel=0.25)
    assert np.std(shifts, axis=0) == pytest.approx(0.1 * 35.24 / np.sqrt(5), rel=0.35)


# The command.


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recognizers, one with a quality and one that hides its norm, and a model of quality alone."""
    folder = tmp_path_factory.mktemp("models")
    write_description(write_embedder(folder / "one.onnx", quality=True), quality="output:bright")
    write_description(write_embedder(folder / "two.onnx", size=5), input_color="BGR")
    write_quality(folder / "alone.onnx")
    (folder / "elsewhere.json").write_text(json.dumps(quality_description(name="Alone")))
    return folder


def command(models: Path, faces: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    given = [
        *["--data", faces, "--recognizer", models / "one.onnx", f"second={models / 'two.onnx'}"],
        *["--fmr", 0.05, 0.01, "--replicates", 20, "--threads", 1, *arguments],
    ]
    return run_script(EVAL / "quality_across_recognizers.py", *given)


def tables(text: str) -> list[list[list[str]]]:
    """Cells of the tables, their headers first."""
    found: list[list[list[str]]] = []
    for before, line in zip(["", *text.splitlines()], text.splitlines(), strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
    return [[rows[0], *rows[2:]] for rows in found]


def test_the_table_has_every_set_recognizer_and_quality_and_candidates_cost_their_own_passes(
    models: Path, drawn_faces: Path, tmp_path: Path
) -> None:
    alone = [f"q={models / 'alone.onnx'}", "--describe", f"q={models / 'elsewhere.json'}"]
    cache, out = tmp_path / "cache", tmp_path / "out.json"
    first = command(models, drawn_faces, "--quality", *alone, "--cache", cache)
    assert first.returncode == 0, first.stderr
    kept = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len(kept) == 9  # two recognizers and a quality on each of three sets

    ran = command(
        *[models, drawn_faces, "--quality", models / "one.onnx", *alone, "--cache", cache],
        *["--against", "q", "--out", out],
    )
    assert ran.returncode == 0, ran.stderr
    now = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len(now) == 12
    assert kept.items() <= now.items()
    assert ran.stderr.count("embedding") == 0

    *of_sets, areas, differences = tables(ran.stdout)
    assert [len(rows) for rows in of_sets] == [1 + 2 * 4] * 3
    assert [row[:2] for row in of_sets[1][1:5]] == [
        ["one", label] for label in ("one", "q", "norm", "oracle")
    ]
    assert [row[0] for row in areas] == ["quality", "one", "q", "norm", "oracle", "random"]
    assert [row[0] for row in differences] == ["quality", "one", "norm", "oracle"]
    assert areas[0][1:] == [f"{name}, FMR {fmr}" for name in image_sets.IMAGE_SETS for fmr in (0.05, 0.01)]

    told = json.loads(out.read_text())
    assert len(told["results"]) == 3 * 2 * 2
    for one in told["means"]:
        column = areas[0].index(f"{one['set']}, FMR {one['fmr']:g}")
        assert [row[column].split()[0] for row in areas[1:-1]] == [
            f"{a['area']:.3f}" for a in one["areas"].values()
        ]
    assert set(told["qualities"]) == {"one", "q"}
    value = {(one["set"], one["recognizer"], one["fmr"]): one["areas"] for one in told["results"]}
    for column, (name, fmr) in enumerate([(s, f) for s in image_sets.IMAGE_SETS for f in (0.05, 0.01)], 1):
        both = [value[name, recognizer, fmr]["one"] for recognizer in ("one", "second")]
        assert areas[1][column].split()[0] == f"{np.mean([one['area'] for one in both]):.3f}"
        assert differences[1][column].split()[0] == f"{np.mean([one['difference'] for one in both]):+.3f}"


def test_a_number_of_the_table_is_that_of_the_recognizer_on_the_degraded_images(
    models: Path, drawn_faces: Path, tmp_path: Path
) -> None:
    ran = command(
        *[models, drawn_faces, "--quality", models / "one.onnx", "--sets", "clean", "degraded"],
        *["--seed", 7, "--out", tmp_path / "out.json"],
    )
    assert ran.returncode == 0, ran.stderr
    images = image_sets.open_image_set("degraded", open_source(drawn_faces), 7)
    outputs = embed_source(load_embedder(models / "two.onnx"), images, flip=False, progress=False)
    bright = embed_source(load_embedder(models / "one.onnx"), images, flip=False, progress=False).quality
    assert images.labels is not None
    assert bright is not None
    assert outputs.norm is not None
    found = reject_areas(
        compare_all(outputs.embedding, images.labels),
        {"one": bright, "norm": outputs.norm},
        [0.05, 0.01],
        replicates=20,
        seed=7,
    )
    told = json.loads((tmp_path / "out.json").read_text())
    (entry,) = [
        one
        for one in told["results"]
        if (one["set"], one["recognizer"], one["fmr"]) == ("degraded", "second", 0.01)
    ]
    assert entry["threshold"] == pytest.approx(found[0.01].threshold, abs=1e-5)
    for label in ("one", "norm", "oracle"):
        assert entry["areas"][label]["area"] == pytest.approx(found[0.01].areas[label][0.3].value, abs=1e-9)
        interval = found[0.01].areas[label][0.3].interval()
        assert interval is not None
        assert entry["areas"][label]["ci95"] == pytest.approx(list(interval))
    assert told["sets"]["degraded"] == image_sets.hash_crops(images)


def test_the_clean_sets_thresholds_serve_the_degraded_set(
    models: Path, drawn_faces: Path, tmp_path: Path
) -> None:
    told = {}
    for name, more in {
        "own": ["--sets", "clean", "degraded"],
        "kept": ["--sets", "degraded", *CLEAN],
    }.items():
        out = tmp_path / f"{name}.json"
        ran = command(models, drawn_faces, "--quality", models / "one.onnx", *more, "--out", out)
        assert ran.returncode == 0, ran.stderr
        results = json.loads(out.read_text())["results"]
        told[name] = {(one["set"], one["recognizer"], one["fmr"]): one for one in results}
    assert "impostor pairs of clean" in ran.stdout
    assert [rows[1][0] for rows in tables(ran.stdout)] == ["one", "one", "norm"]
    for (name, label, fmr), entry in told["kept"].items():
        assert name == "degraded"
        assert entry["threshold"] == told["own"]["clean", label, fmr]["threshold"]
        assert entry["threshold"] != told["own"]["degraded", label, fmr]["threshold"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quality", "norm={one}"], "'norm' is a reserved label"),
        (["--quality", "{one}", "--against", "onee"], "no such quality, did you mean 'one'?"),
        (["--quality", "{one}", "{one}"], "two models are called 'one'"),
        (["--quality", "{one}", "--describe", "q={one}"], "no model has this label"),
        (["--quality", "{one}", "--describe", "{one}"], "name the model that it describes"),
        (["--quality", "{two}", "--fmr", "1e-6"], "needs at least 1,000,000 impostor pairs"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_sentence(
    models: Path, drawn_faces: Path, arguments: list[str], message: str
) -> None:
    names = {"one": models / "one.onnx", "two": models / "two.onnx"}
    ran = command(models, drawn_faces, *[text.format(**names) for text in arguments])
    assert ran.returncode == 2
    assert message in " ".join(ran.stderr.split())


def test_images_without_people_are_refused(models: Path, drawn_faces: Path, tmp_path: Path) -> None:
    shutil.copy(next(drawn_faces.rglob("*.*g")), tmp_path / "face.png")
    ran = command(models, tmp_path, "--quality", models / "one.onnx")
    assert ran.returncode == 2
    assert "its images have no identities" in " ".join(ran.stderr.split())


@pytest.mark.slow
def test_lightqnet_is_described_in_this_repository(
    models: Path, drawn_faces: Path, reference_models: Path, tmp_path: Path
) -> None:
    ran = command(
        *[
            models,
            drawn_faces,
            "--quality",
            f"LightQNet={reference_models / 'lightqnet.onnx'}",
            "--sets",
            "clean",
        ],
        *["--describe", f"LightQNet={EVAL / 'lightqnet.json'}"],
    )
    assert ran.returncode == 0, ran.stderr
