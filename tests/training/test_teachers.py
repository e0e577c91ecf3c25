import shutil
from collections import namedtuple

import numpy as np
import pytest
import torch

from facerts.embedding import OnnxEmbedder
from facerts.errors import Error
from facerts.images.changes import CHANGES
from facerts.training.augment import KeptViews
from facerts.training.distillation import open_distillation
from facerts.training.loader import TrainingData
from facerts.training.teachers import open_teachers
from tests.foreign import joined_embeddings

STEPS = 24  # six epochs of four
AUGMENTATION = "data.augmentation={views: 3, flip: true, rotation: 10, change: 0.5}"


@pytest.fixture
def recipe(teacher, other_teacher, make_recipe):
    return make_recipe(
        f"teacher={{models: [{other_teacher}, {teacher}], method_embedding: teachers}}",
        AUGMENTATION,
        "optim.epochs=6",
    )


def asked(monkeypatch):
    """How many crops teachers are asked for from here on."""
    counts = []
    call = OnnxEmbedder.__call__
    monkeypatch.setattr(OnnxEmbedder, "__call__", lambda self, crops: counts.append(len(crops)) or call(self, crops))
    return counts


def test_views_come_again_and_teachers_have_been_asked_for_each(recipe, tmp_path, monkeypatch):
    data = TrainingData(recipe)
    distillation = open_distillation(recipe, data.source, None, tmp_path)
    counts = asked(monkeypatch)
    seen = {}
    together = open_teachers(recipe.teacher.models)
    kept = KeptViews(recipe.data.augmentation, recipe.seed)
    for batch in data.batches(0, STEPS):
        crops, _, samples, views, _ = batch
        found = distillation.embed_views(batch)
        assert not counts
        asked_for = []
        for crop, *key in zip(crops.numpy(), samples.tolist(), views.tolist(), strict=True):
            seen.setdefault(tuple(key), []).append(crop)
            asked_for.append(kept.view(data.source.crop(key[0]), key[1], key[0]))
        # In 16 bits; an embedding of another image would be far away.
        np.testing.assert_allclose(found, joined_embeddings(together, np.stack(asked_for)), atol=1e-3)
        counts.clear()
    assert sorted(seen) == [(index, view) for index in range(64) for view in range(3)]
    # Six epochs show each of three views twice, half of them mirrored.
    mirrored = 0
    for (index, view), (first, second) in seen.items():
        assert np.array_equal(first, second) or np.array_equal(first, second[:, ::-1])
        mirrored += not np.array_equal(first, second)
        original = data.source.crop(index)
        is_original = np.array_equal(first, original) or np.array_equal(first, original[:, ::-1])
        assert is_original == (view == 0)
    assert 0.3 < mirrored / len(seen) < 0.7


def test_runs_with_other_seeds_see_the_same_views(recipe, tmp_path, monkeypatch):
    data = TrainingData(recipe)
    open_distillation(recipe, data.source, None, tmp_path)
    counts = asked(monkeypatch)
    other = recipe.model_copy(update={"seed": recipe.seed + 1})
    open_distillation(other, data.source, None, tmp_path)
    assert not counts
    batches = [next(TrainingData(each).batches(0, 1)) for each in (recipe, other)]
    assert not torch.equal(batches[0][2], batches[1][2])
    image = data.source.crop(3)
    views = [KeptViews(each.data.augmentation, each.seed).view(image, 1, 3) for each in (recipe, other)]
    assert np.array_equal(*views)


def test_methods_with_several_views_get_different_ones(make_recipe):
    recipe = make_recipe(AUGMENTATION, "method.name=supcon", "data.per_identity=2")
    _, _, samples, views, *_ = next(TrainingData(recipe).batches(0, 1))
    assert torch.equal(samples[:16], samples[16:])
    assert torch.equal((views[:16] + 1) % 3, views[16:])


def test_interrupted_it_asks_for_what_is_missing_only(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("facerts.training.teachers.FILE_IMAGES", 24)
    data = TrainingData(recipe)
    open_distillation(recipe, data.source, None, tmp_path)
    # 64 images, three views, two teachers, two bytes a number.
    assert f"2 teachers for 3 views of 64 images: 0 MB in {tmp_path / 'teachers'}" in capsys.readouterr().err
    files = sorted((tmp_path / "teachers").glob("*.npy"))
    assert len(files) == 3 * 3 * 2
    assert sum(np.load(file).nbytes for file in files) == 64 * 3 * (12 + 16) * 2
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


def test_a_longer_list_of_changes_makes_other_views(recipe, tmp_path, monkeypatch):
    data = TrainingData(recipe)
    counts = asked(monkeypatch)
    for views in (3, 0, 2):
        counts.clear()
        if views == 2:
            monkeypatch.setitem(CHANGES, "inverted", CHANGES["gray"])
        open_distillation(recipe, data.source, None, tmp_path)
        # Two teachers, each of which is asked for one more image to learn the size of its answers.
        assert sum(counts) == (2 * views * 64 + 2 if views else 0)


def test_each_view_is_made_once_for_all_teachers(recipe, tmp_path, monkeypatch):
    made = []
    view = KeptViews.view

    def counted(self, image, number, index, **options):
        made.append((number, index))
        return view(self, image, number, index, **options)

    monkeypatch.setattr(KeptViews, "view", counted)
    open_distillation(recipe, TrainingData(recipe).source, None, tmp_path)
    assert sorted(made) == [(number, index) for number in range(3) for index in range(64)]


def test_damaged_files_are_computed_again(recipe, tmp_path, capsys):
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


def test_it_says_beforehand_that_the_disk_is_too_small(recipe, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000))
    data = TrainingData(recipe)
    with pytest.raises(Error, match=r"needs 0\.0 GB, and 0\.0 GB are free; set fewer"):
        open_distillation(recipe, data.source, None, tmp_path)
    assert not list((tmp_path / "teachers").glob("*.part"))
