from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.errors import Error
from facerts.training.augment import build_augmentation
from facerts.training.distillation.losses import open_distillation
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.methods import Batch
from facerts.training.recipe import Recipe
from tests.foreign import quality_description, slow_quality, write_description, write_embedder, write_quality
from tests.training.conftest import MakeRecipe

WEIGHT = 3.0
AUGMENTATION = "data.augmentation={views: 2, flip: true, no_face: 0.2}"


def teacher_of(folder: Path, *more: str) -> str:
    embedder = write_embedder(folder / "embedder.onnx", size=16)
    write_description(embedder)
    quality = write_quality(folder / "quality.onnx")
    described = f"{{model: {quality}, description: {json.dumps(quality_description())}}}"
    return (
        f"teacher={{models: [{embedder}], method_embedding: teachers, cosine: 0, similarities: 0, method: 1, "
        f"quality_weight: {WEIGHT}, qualities: [{', '.join([described, *more])}]}}"
    )


@pytest.fixture
def recipe(tmp_path: Path, make_recipe: MakeRecipe) -> Recipe:
    """People with two to eight images, and images without identity."""
    write_synthetic_faces(tmp_path / "unknown", identities=4, images=2, seed=9)
    for image in (tmp_path / "unknown").glob("*/*"):
        image.rename(tmp_path / "unknown" / f"{image.parent.name}_{image.name}")
    for folder in (tmp_path / "unknown").glob("*/"):
        folder.rmdir()
    return make_recipe(
        teacher_of(tmp_path), AUGMENTATION, f"data.unlabeled={tmp_path / 'unknown'}", "data.name=drawn",
        "data.terms=none", "data.unlabeled_share=0.25", "data.imbalance=4", "optim.batch_size=16",
        "method={name: crfiqa, target: cosine}",
        "backbone={name: patch8, width: 0.25, embedding_size: 16, embedding: false}",
    )  # fmt: skip


def slow_targets(recipe: Recipe, data: TrainingData, samples: list[int], views: list[int]) -> list[float]:
    """The target of each view, image by image."""
    crops = [data.source.crop(i) for i in range(len(data.source))]
    crops += [data.unlabeled.crop(i) for i in range(len(data.unlabeled))]
    people = [*data.source.labels.tolist(), *(1000 + i for i in range(len(data.unlabeled)))]
    embed = load_embedder(recipe.teacher.models[0])
    augment = build_augmentation(recipe.data.augmentation)

    def unit(vector: np.ndarray) -> np.ndarray:
        return vector / np.linalg.norm(vector)

    def embedded(crop: np.ndarray) -> np.ndarray:
        return unit(embed(crop[None]).embedding[0].astype(np.float64))

    originals = [unit(embedded(crop) + embedded(crop[:, ::-1])) for crop in crops]

    def others(index: int) -> list[int]:
        return [i for i, who in enumerate(people) if who == people[index] and i != index]

    def cosine(index: int, view: int) -> float:
        of_view = embedded(augment(crops[index], (recipe.seed, view, index)))
        center = unit(np.sum([originals[i] for i in others(index) or [index]], axis=0))
        return float(of_view @ center)

    def quality(index: int, view: int) -> float:
        return float(slow_quality(augment(crops[index], (recipe.seed, view, index))[None])[0])

    known = [index for index in range(len(crops)) if others(index)]
    assert 0 < len(crops) - len(known) < len(known)
    cosines, qualities = ([of(index, 0) for index in known] for of in (cosine, quality))

    def target(index: int, view: int) -> float:
        standardized = (quality(index, view) - np.mean(qualities)) / np.std(qualities)
        prior = np.mean(cosines) + np.std(cosines) * standardized
        count = len(others(index))
        return (count * cosine(index, view) + WEIGHT * prior) / (count + WEIGHT)

    return [target(*key) for key in zip(samples, views, strict=True)]


def test_the_target_is_shrunk_towards_the_qualities(recipe: Recipe, tmp_path: Path) -> None:
    data = TrainingData(recipe)
    distillation = open_distillation(recipe, data.source, data.unlabeled, tmp_path / "run")
    learner = Learner(recipe, data.identities, distillation)
    crops, labels, samples, views = next(data.batches(0, 1))
    loss = learner.step(crops, Batch(labels, samples, 0, recipe.seed, views=views), 0.0)
    expected = slow_targets(recipe, data, samples.tolist(), views.tolist())
    assert (labels < 0).sum() == 4
    assert len(set(np.bincount(data.source.labels))) > 2
    # Embeddings and qualities are kept in 16 bits.
    np.testing.assert_allclose(loss.per_image["own_cosine"].numpy(), expected, atol=3e-3)
    assert np.std(expected) > 0.03
    # Nothing learns to embed, so the only loss is the regression.
    assert set(loss.parts) == {"regression"}
    assert loss.total.item() == pytest.approx(10 * loss.parts["regression"].item(), rel=1e-6)


def test_two_models_count_alike_whatever_their_scale(recipe: Recipe, tmp_path: Path) -> None:
    first = recipe.teacher.qualities[0]
    larger = onnx.load(first.model)
    (matrix,) = larger.graph.initializer
    matrix.CopyFrom(numpy_helper.from_array(100 * numpy_helper.to_array(matrix), matrix.name))
    onnx.save(larger, tmp_path / "larger.onnx")
    again = first.model_copy(update={"model": str(tmp_path / "larger.onnx")})
    data = TrainingData(recipe)
    _, labels, samples, views = next(data.batches(0, 1))
    batch = Batch(labels, samples, 0, recipe.seed, views=views)
    priors = []
    for qualities in ([first], [first, again]):
        teacher = recipe.teacher.model_copy(update={"qualities": qualities})
        changed = recipe.model_copy(update={"teacher": teacher})
        distillation = open_distillation(changed, data.source, data.unlabeled, tmp_path / "run")
        outputs = distillation.method_outputs({}, batch, distillation.embed_views(torch.empty(0), batch))
        priors.append(outputs["prior"].numpy())
    np.testing.assert_allclose(*priors, atol=3e-3)
    assert np.std(priors[0]) > 0.03


def test_a_model_that_says_nothing_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    silent = onnx.load(recipe.teacher.qualities[0].model)
    (matrix,) = silent.graph.initializer
    matrix.CopyFrom(numpy_helper.from_array(0 * numpy_helper.to_array(matrix), matrix.name))
    onnx.save(silent, recipe.teacher.qualities[0].model)
    data = TrainingData(recipe)
    with pytest.raises(Error, match="model 1 gives all images the same quality"):
        open_distillation(recipe, data.source, data.unlabeled, tmp_path / "run")


@pytest.mark.parametrize(
    "spoil", ["method.target=ratio", "method={name: rts}", "data.augmentation.views=null"]
)
def test_qualities_that_nothing_would_learn_are_refused(
    spoil: str, tmp_path: Path, make_recipe: MakeRecipe
) -> None:
    sound = [teacher_of(tmp_path), AUGMENTATION, "method={name: crfiqa, target: cosine}"]
    make_recipe(*sound)
    with pytest.raises(Error, match="are a part of what crfiqa learns"):
        make_recipe(*sound, spoil)
