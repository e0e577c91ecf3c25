import json

import numpy as np
import pytest
import torch

from facerts.embedding import load_embedder
from facerts.errors import Error
from facerts.training import expected_cosine
from facerts.training.augment import KeptViews
from facerts.training.distillation import open_distillation
from facerts.training.expected_cosine import FOLDS, ExpectedCosines
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from tests.foreign import quality_description, slow_quality, write_quality

WEIGHT = 3.0
AUGMENTATION = "data.augmentation={views: 2, flip: false, change: 0.5}"


def teacher_of(teacher, folder):
    quality = write_quality(folder / "quality.onnx")
    described = f"{{model: {quality}, description: {json.dumps(quality_description())}}}"
    return (
        f"teacher={{models: [{teacher}], method_embedding: teachers, cosine: 0, similarities: 0, method: 1, "
        f"expected_weight: {WEIGHT}, qualities: [{described}]}}"
    )


@pytest.fixture
def recipe(tmp_path, teacher, drawn_faces, unlabeled_faces, make_recipe):
    """People with two or eight images, and images without identity."""
    for image in drawn_faces.glob("*/*"):
        if image.parent.name < "person_0004" or image.stem < "0002":
            copied = tmp_path / "known" / image.parent.name / image.name
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(image.read_bytes())
    return make_recipe(
        teacher_of(teacher, tmp_path), AUGMENTATION, f"data.unlabeled={unlabeled_faces}", "data.name=drawn",
        "data.terms=none", "data.unlabeled_share=0.25", f"data.train={tmp_path / 'known'}", "optim.batch_size=16",
        "method={name: crfiqa, target: cosine}",
        "backbone={name: patch8, width: 0.25, embedding_size: 16, embedding: false}",
    )  # fmt: skip


class SlowTargets:
    """What is learned from each view, image by image."""

    def __init__(self, recipe, data):
        self.crops = [data.source.crop(i) for i in range(len(data.source))]
        self.crops += [data.unlabeled.crop(i) for i in range(len(data.unlabeled))]
        self.people = [*data.source.labels.tolist(), *(1000 + i for i in range(len(data.unlabeled)))]
        self._embed = load_embedder(recipe.teacher.models[0])
        self._kept = KeptViews(recipe.data.augmentation, recipe.seed)

    def others(self, index):
        return [i for i, who in enumerate(self.people) if who == self.people[index] and i != index]

    def view(self, index, view):
        return self._kept.view(self.crops[index], view, index)

    def cosine(self, index, view):
        others = self.others(index) or [index]
        center = np.sum([self._unit(self.crops[i]) for i in others], axis=0)
        return float(self._unit(self.view(index, view)) @ center / np.linalg.norm(center))

    def _unit(self, crop):
        vector = self._embed(crop[None]).embedding[0].astype(np.float64)
        return vector / np.linalg.norm(vector)

    def answer(self, index, view):
        crop = self.view(index, view)[None]
        outputs = self._embed(crop)
        return np.concatenate([outputs.embedding[0], np.log(outputs.norm), slow_quality(crop)])


def test_the_target_is_shrunk_towards_what_is_expected(recipe, tmp_path):
    data = TrainingData(recipe)
    distillation = open_distillation(recipe, data.source, data.unlabeled, tmp_path / "run")
    learner = Learner(recipe, data.identities, distillation)
    batch = next(data.batches(0, 1))
    _, labels, samples, views, _ = batch
    loss = learner.step(batch, 0, 0.0)
    slow = SlowTargets(recipe, data)
    expected = distillation._expected.values
    targets = []
    for index, view in zip(samples.tolist(), views.tolist(), strict=True):
        count = len(slow.others(index))
        of_view = count * slow.cosine(index, view) if count else 0.0
        targets.append((of_view + WEIGHT * expected[index, view]) / (count + WEIGHT))
    assert (labels < 0).sum() == 4
    assert set(np.bincount(data.source.labels)) == {2, 8}
    assert set(views.tolist()) == {0, 1}
    # Embeddings are kept in 16 bits.
    np.testing.assert_allclose(loss.per_image["own_cosine"].numpy(), targets, atol=3e-3)
    assert np.std(targets) > 0.03
    # Nothing learns to embed, so the only loss is the regression.
    assert set(loss.parts) == {"regression", "gradient_norm"}
    assert loss.total.item() == pytest.approx(10 * loss.parts["regression"].item(), rel=1e-6)


def test_all_answers_are_learned_from(recipe, tmp_path):
    data = TrainingData(recipe)
    distillation = open_distillation(recipe, data.source, data.unlabeled, tmp_path / "run")
    slow = SlowTargets(recipe, data)
    rows = np.array([0, 9, len(slow.crops) - 1]), np.array([0, 1, 1])
    wanted = [slow.answer(*key) for key in zip(*(values.tolist() for values in rows), strict=True)]
    np.testing.assert_allclose(distillation._views.answers(*rows), wanted, rtol=2e-3, atol=2e-3)


class Answers:
    """Answers about one view of each image that tell all of its cosine, or what each image's person is."""

    count, identity = 1, "drawn"

    def __init__(self, values):
        self.values = values

    def answers(self, samples, views):
        return self.values[samples].astype(np.float32)


def people_and_cosines():
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(300), 4)
    return labels, random.normal(0.6, 0.1, 1200).astype(np.float32)


def fitted(values, folder, monkeypatch):
    monkeypatch.setattr(expected_cosine, "EPOCHS", 60)
    labels, cosines = people_and_cosines()
    found = ExpectedCosines(Answers(values), labels, lambda samples, _: cosines[samples], 8, 1.0, folder)
    return found.values[:, 0]


def test_what_the_answers_tell_is_expected(tmp_path, monkeypatch):
    _, cosines = people_and_cosines()
    noise = np.random.default_rng(1).normal(size=(1200, 3))
    expected = fitted(np.column_stack([3 - 7 * cosines, noise]), tmp_path, monkeypatch)
    assert np.corrcoef(expected, cosines)[0, 1] > 0.95
    np.testing.assert_allclose(expected.mean(), cosines.mean(), atol=0.02)


def test_nobody_is_expected_from_what_was_learned_of_the_same_person(tmp_path, monkeypatch):
    """Answers that tell only who a person is would otherwise tell what cosines the person's images have."""
    labels, cosines = people_and_cosines()
    means = np.bincount(labels, cosines)[labels] / 4
    code = np.random.default_rng(2).normal(size=(300, 64))[labels]
    assert abs(np.corrcoef(fitted(code, tmp_path, monkeypatch), means)[0, 1]) < 0.3


def test_expectations_are_kept_and_leave_the_generator_alone(tmp_path, monkeypatch):
    _, cosines = people_and_cosines()
    state = torch.get_rng_state()
    first = fitted(cosines[:, None], tmp_path, monkeypatch)
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setattr(expected_cosine, "cross_fitted", None)
    assert np.array_equal(fitted(cosines[:, None], tmp_path, monkeypatch), first)


def test_too_few_people_are_refused(tmp_path):
    labels = np.append(np.repeat(np.arange(2 * FOLDS - 1), 2), 99)
    with pytest.raises(Error, match=f"learned from {2 * FOLDS} people with two images or more, and there are 7"):
        ExpectedCosines(Answers(np.zeros((15, 1))), labels, lambda samples, _: samples, 8, 1.0, tmp_path)
