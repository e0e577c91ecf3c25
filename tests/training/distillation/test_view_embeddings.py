from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch

from facerts.embedding import OnnxEmbedder
from facerts.errors import Error
from facerts.training.distillation import view_embeddings
from facerts.training.distillation.losses import open_distillation
from facerts.training.distillation.teachers import TeacherEnsemble
from facerts.training.loader import TrainingData
from facerts.training.methods import Batch
from facerts.training.recipe import Recipe
from tests.foreign import write_description, write_embedder
from tests.training.conftest import MakeRecipe

STEPS = 12  # three epochs of four
AUGMENTATION = "data.augmentation={views: 2, flip: true, points_jitter: 0.05, zoom: 1, no_face: 0.2}"


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("teachers")
    paths = [write_embedder(folder / f"{size}.onnx", size=size, seed=size) for size in (12, 16)]
    for path in paths:
        write_description(path)
    return [str(path) for path in paths]


@pytest.fixture
def recipe(teachers: list[str], make_recipe: MakeRecipe) -> Recipe:
    return make_recipe(
        f"teacher={{models: [{', '.join(teachers)}], method_embedding: teachers, zoom: false}}",
        AUGMENTATION,
        "optim.epochs=3",
    )


def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many crops teachers are asked for from here on."""
    counts: list[int] = []
    call = OnnxEmbedder.__call__
    monkeypatch.setattr(
        OnnxEmbedder, "__call__", lambda self, crops: counts.append(len(crops)) or call(self, crops)
    )
    return counts


def test_views_come_again_and_teachers_have_been_asked_for_each(
    recipe: Recipe, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = TrainingData(recipe)
    distillation = open_distillation(recipe, data.source, None, tmp_path)
    counts = asked(monkeypatch)
    seen: dict[tuple[int, int], torch.Tensor] = {}
    teachers_views = TrainingData(make_recipe(AUGMENTATION.replace("zoom: 1", "zoom: 0"))).batches(0, STEPS)
    together = TeacherEnsemble(recipe.teacher.models)
    for (crops, labels, samples, views), (plain, *_) in zip(
        data.batches(0, STEPS), teachers_views, strict=True
    ):
        for crop, *key in zip(crops, samples.tolist(), views.tolist(), strict=True):
            assert torch.equal(seen.setdefault(tuple(key), crop), crop)
        assert not counts
        found = distillation.embed_views(crops, Batch(labels, samples, 0, 0, views=views))
        assert not counts
        # In 16 bits; an embedding of another image would be far away.
        np.testing.assert_allclose(found, together.embed_crops(plain.numpy()), atol=1e-3)
        counts.clear()
    assert sorted(seen) == [(index, view) for index in range(64) for view in range(2)]
    assert not torch.equal(seen[0, 0], seen[0, 1])


def test_interrupted_it_asks_for_what_is_missing_only(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view_embeddings, "FILE_IMAGES", 24)
    data = TrainingData(recipe)
    open_distillation(recipe, data.source, None, tmp_path)
    # 64 images, two views, two teachers, two bytes a number.
    assert f"2 teachers for 2 views of 64 images: 0 MB in {tmp_path / 'teachers'}" in capsys.readouterr().err
    files = sorted((tmp_path / "teachers").glob("*.npy"))
    assert len(files) == 3 * 2 * 2
    assert sum(np.load(file).nbytes for file in files) == 64 * 2 * (12 + 16) * 2
    kept = {file: file.stat().st_mtime_ns for file in files}
    shutil.copy(files[0], tmp_path / "copy")
    files[0].unlink()
    counts = asked(monkeypatch)
    open_distillation(recipe, data.source, None, tmp_path)
    counts.remove(1)  # One crop for each teacher, whose size is not known.
    counts.remove(1)
    assert sum(counts) == len(np.load(files[0]))
    assert files[0].read_bytes() == (tmp_path / "copy").read_bytes()
    assert all(file.stat().st_mtime_ns == time for file, time in kept.items() if file != files[0])


def test_damaged_files_are_computed_again(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = TrainingData(recipe)
    open_distillation(recipe, data.source, None, tmp_path)
    files = sorted((tmp_path / "teachers").glob("*.npy"))
    before = [file.read_bytes() for file in files]
    files[0].write_bytes(before[0][:-10])
    files[1].write_bytes(b"")
    np.save(files[2], np.zeros((3, 12), np.float16))
    open_distillation(recipe, data.source, None, tmp_path)
    assert [file.read_bytes() for file in files] == before
    assert capsys.readouterr().err.count("computed again") == 3


def test_it_says_beforehand_that_the_disk_is_too_small(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000))
    data = TrainingData(recipe)
    with pytest.raises(Error, match=r"needs 0\.0 GB, and 0\.0 GB are free; set fewer"):
        open_distillation(recipe, data.source, None, tmp_path)
    assert not list((tmp_path / "teachers").glob("*.part"))


def test_views_of_a_method_with_several_are_refused(teachers: list[str], make_recipe: MakeRecipe) -> None:
    with pytest.raises(Error, match=r"supcon draws several views"):
        make_recipe(f"teacher={{models: {teachers}, target: view}}", AUGMENTATION, "method.name=supcon")
