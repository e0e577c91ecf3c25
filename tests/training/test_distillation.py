import numpy as np
import pytest
import torch
from torch.nn import functional as F

from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.errors import Error
from facerts.hub.find import find_model
from facerts.losses import LossValue
from facerts.training.checkpoint import load_network
from facerts.training.distillation import Distillation, open_distillation
from facerts.training.learner import Learner
from facerts.training.loader import Batch, TrainingData
from facerts.training.loop import train
from facerts.training.recipe import Teacher
from facerts.training.teachers import embed_cached, joined, open_teachers
from tests.foreign import joined_embeddings

SIZE = 16
SHORT = ("optim.epochs=1", "optim.milestones=[]")


def unit(count, seed):
    values = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(values)


def method_loss(value):
    return LossValue(torch.tensor(value, dtype=torch.float64), {"cross_entropy": torch.tensor(value)})


def test_a_teacher_embeds_each_image_and_its_mirror_once(teacher, other_teacher, drawn_faces, tmp_path, monkeypatch):
    source, cache = open_source(drawn_faces), tmp_path / "cache"
    teachers, others = open_teachers([str(teacher)]), open_teachers([str(other_teacher)])
    embeddings = embed_cached(teachers, source, cache)
    embedder = load_embedder(teacher)
    crop = source.crop(5)[None]
    summed = embedder(crop).embedding[0] + embedder(np.ascontiguousarray(crop[:, :, ::-1])).embedding[0]
    assert embeddings[5] == pytest.approx(summed / np.linalg.norm(summed), abs=1e-6)
    # Each teacher has a file of its own in the cache.
    embed_cached(others, source, cache)
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setattr("facerts.training.teachers.embed_source", None)
    assert np.array_equal(embed_cached(teachers, source, cache), embeddings)
    (tmp_path / "file").touch()
    with pytest.raises(Error, match="file is a file, but a cache is a folder"):
        embed_cached(teachers, source, tmp_path / "file")


def test_the_cosine_of_several_teachers_is_the_mean_of_theirs(teacher, crops):
    # A teacher may be a model that ships, by its name.
    models = str(teacher), "facerts-small"
    together = joined([each(crops).embedding for each in open_teachers(models)]).astype(np.float64)
    assert together.shape == (len(crops), SIZE + 128)
    each = [load_embedder(find_model(model))(crops).embedding.astype(np.float64) for model in models]
    np.testing.assert_allclose(together @ together.T, sum(unit @ unit.T for unit in each) / 2, atol=1e-6)


def test_the_loss_of_two_teachers_against_a_loop():
    """A slow reference in float64: cosines of each teacher, projection by a singular value decomposition."""
    one, two = unit(9, 2).numpy(), F.normalize(torch.randn(9, 3, dtype=torch.float64)).numpy()
    labels, samples = np.array([0, 0, 1, 1, 2, 2]), torch.tensor([4, 8, 0, 7])
    together = np.concatenate([one, two], axis=1) / np.sqrt(2)
    teacher = Distillation(
        Teacher(models=["a", "b"], cosine=3, similarities=7, method=0.5), together, labels, 3, size=4
    )
    student = torch.randn(4, 4, dtype=torch.float64)
    batch = Batch.of(torch.empty(4), torch.tensor([2, -1, 0, -1]), samples)
    loss = teacher.loss(student, batch, method_loss(2.0))

    s = [row / np.linalg.norm(row) for row in student.numpy()]
    directions = np.linalg.svd(together, full_matrices=False)[2][:4]
    # The signs of the directions are arbitrary; use those of the projection.
    signs = np.sign((directions * teacher.projection.numpy().T).sum(axis=1))
    targets = [signs * (directions @ row) for row in together[samples]]
    distance = np.mean([1 - s[i] @ target / np.linalg.norm(target) for i, target in enumerate(targets)])
    errors = []
    for i in range(4):
        for j in range(4):
            if i != j:
                a, b = samples[i], samples[j]
                cosine = (one[a] @ one[b] + two[a] @ two[b]) / 2
                errors.append((s[i] @ s[j] - cosine) ** 2)
    assert loss.parts["teacher_distance"].item() == pytest.approx(distance, rel=1e-5)
    assert loss.parts["teacher_similarities"].item() == pytest.approx(np.mean(errors), rel=1e-9)
    assert loss.total.item() == pytest.approx(3 * distance + 7 * np.mean(errors) + 0.5 * 2.0, rel=1e-5)


UNLABELED = ("data.unlabeled_share=0.25", "optim.batch_size=16", "data.name=drawn", "data.terms=none")


def first_step(recipe, folder):
    """The data, a learner with its teachers, and the first batch."""
    data = TrainingData(recipe)
    teacher = open_distillation(recipe, data.source, data.unlabeled, folder)
    return data, Learner(recipe, data.identities, teacher), next(data.batches(0, 1))


def test_unlabeled_images_do_not_change_the_loss_of_the_method(teacher, make_recipe, unlabeled_faces, tmp_path):
    """The method's loss of a batch equals that of its labeled images alone, including noise and centers."""
    recipe = make_recipe(f"teacher={{models: [{teacher}]}}", f"data.unlabeled={unlabeled_faces}", *UNLABELED, *SHORT)
    _, learner, batch = first_step(recipe, tmp_path)
    assert batch.labels.tolist()[12:] == [-1] * 4
    assert (batch.labels[:12] >= 0).all()
    outputs = {
        "embedding": torch.randn(16, SIZE, requires_grad=True),
        "log_scale": torch.randn(16, 16, requires_grad=True),
    }
    whole = learner._loss(outputs, batch, 0, 1.0)
    whole.total.backward()
    known = batch.rows(slice(12))
    alone = learner.loss.of_batch(
        {name: value[:12] for name, value in outputs.items()},
        known.labels,
        samples=known.samples,
        step=0,
        centers=learner.teacher.centers_for(known),
    )
    for name, value in alone.parts.items():
        assert torch.equal(whole.parts[name], value), name
    assert torch.equal(whole.per_image["v"], alone.per_image["v"])
    assert not outputs["log_scale"].grad[12:].any()
    assert outputs["embedding"].grad[12:].abs().sum(dim=1).min() > 0


def test_with_teachers_embeddings_an_unlabeled_image_is_a_person_of_its_own(
    teacher, make_recipe, unlabeled_faces, tmp_path
):
    recipe = make_recipe(
        f"teacher={{models: [{teacher}], method_embedding: teachers}}",
        "data.augmentation={views: 2, flip: false}",
        f"data.unlabeled={unlabeled_faces}",
        *UNLABELED,
        *SHORT,
    )
    data, learner, given = first_step(recipe, tmp_path)
    distillation, samples = learner.teacher, given.samples
    batch = distillation.method_batch(given)
    assert torch.equal(batch.labels[:12], given.labels[:12])
    assert batch.labels[12:].tolist() == (data.identities + samples[12:] - len(data)).tolist()
    assert distillation.centers.num_classes == data.identities + 10
    views = distillation.embed_views(batch)
    found, _ = distillation.centers_for(batch).own_and_nearest(distillation.project(views), batch.labels)
    # The cosine of a view of an unlabeled image and of the image itself, by the teacher alone.
    alone = open_teachers([str(teacher)])
    originals = np.stack([data.unlabeled.crop(index - len(data)) for index in samples[12:].tolist()])
    expected = (joined_embeddings(alone, originals) * joined_embeddings(alone, given.crops[12:].numpy())).sum(axis=1)
    np.testing.assert_allclose(found[12:], expected, atol=1e-4, rtol=1e-4)

    outputs = {"embedding": torch.randn(16, SIZE), "log_scale": torch.zeros(16, 16, requires_grad=True)}
    learner._loss(outputs, given, 0, 1.0).total.backward()
    assert outputs["log_scale"].grad[12:].abs().sum(dim=1).min() > 0


def test_a_batch_has_its_share_of_unlabeled_images_and_all_come_before_any_comes_again(
    teacher, make_recipe, unlabeled_faces
):
    recipe = make_recipe(f"teacher={{models: [{teacher}]}}", f"data.unlabeled={unlabeled_faces}", *UNLABELED, *SHORT)
    data = TrainingData(recipe)
    rows = [samples.tolist() for _, _, samples, *_ in data.batches(0, 5)]
    seen = [row for batch in rows for row in batch[12:]]
    labeled = len(data)
    assert sorted(seen[:10]) == sorted(seen[10:20]) == list(range(labeled, labeled + 10))
    assert seen[:10] != seen[10:20]
    assert all(row < labeled for batch in rows for row in batch[:12])
    assert [samples.tolist() for _, _, samples, *_ in data.batches(3, 5)] == rows[3:]


def test_teachers_embed_each_view_independently(teacher, other_teacher, make_recipe, tmp_path):
    models = f"models: [{teacher}, {other_teacher}]"
    recipe = make_recipe(
        f"teacher={{{models}, target: view, method_embedding: teachers}}",
        *SHORT,
        "data.augmentation={views: 2, change: 1, flip: false}",
    )
    _, learner, batch = first_step(recipe, tmp_path)
    outputs = {
        "embedding": torch.randn(16, SIZE, requires_grad=True),
        "log_scale": torch.zeros(16, 16, requires_grad=True),
    }
    loss = learner._loss(outputs, batch, 0, 1.0)
    views = learner.teacher.embed_views(batch)
    # In 16 bits.
    asked = joined_embeddings(open_teachers(recipe.teacher.models), batch.crops.numpy())
    np.testing.assert_allclose(views, asked, atol=1e-3)
    target = F.normalize(views @ learner.teacher.projection)
    expected = 1 - F.cosine_similarity(outputs["embedding"].detach(), target).mean()
    assert loss.parts["teacher_distance"].item() == pytest.approx(expected.item(), rel=1e-5)
    # The gradient of the method's loss reaches its own head, but not the embedding, which it does not use.
    reached = torch.autograd.grad(
        learner.loss.of_batch(
            learner.teacher.method_outputs(outputs, batch, views),
            batch.labels,
            samples=batch.samples,
            step=0,
            centers=learner.teacher.centers_for(batch),
        ).total,
        (outputs["embedding"], outputs["log_scale"]),
        allow_unused=True,
    )
    assert reached[0] is None
    assert reached[1].abs().sum() > 0


def test_a_resumed_run_gives_the_same_weights(
    teacher, other_teacher, unlabeled_faces, make_recipe, tmp_path, monkeypatch
):
    recipe = make_recipe(
        f"teacher={{models: [{teacher}, {other_teacher}], target: view, method_embedding: teachers}}",
        "data.augmentation={views: 2, change: 1}", f"data.unlabeled={unlabeled_faces}", *UNLABELED,
        "optim.average=0.9", *SHORT, "logging.checkpoint_steps=2",
    )  # fmt: skip
    whole = load_network(train(recipe, tmp_path / "whole"))
    steps = TrainingData.batches

    def two_steps(data, start, stop):
        yield from steps(data, start, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingData, "batches", two_steps)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "cut")
    monkeypatch.setattr(TrainingData, "batches", steps)
    resumed = load_network(train(recipe, tmp_path / "cut", resume=True))
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name


def test_an_embedding_larger_than_the_teachers_is_refused_before_training(teacher, make_recipe, tmp_path):
    recipe = make_recipe(f"teacher={{models: [{teacher}]}}", "backbone.embedding_size=17")
    with pytest.raises(Error, match=r"embedding_size 17 must be at most 16, the size of the embeddings"):
        open_distillation(recipe, TrainingData(recipe).source, None, tmp_path)


def test_a_resumed_run_keeps_its_projection(teacher, other_teacher, make_recipe, tmp_path):
    """Another machine may compute directions of opposite sign, with which the network could not continue."""
    recipe = make_recipe(f"teacher={{models: [{teacher}, {other_teacher}]}}", *SHORT)
    source = TrainingData(recipe).source
    learners = [Learner(recipe, 8, open_distillation(recipe, source, None, tmp_path / "cache")) for _ in range(2)]
    learners[0].teacher.load_projection(-learners[0].teacher.projection)
    targets = learners[0].teacher.targets
    assert not torch.equal(targets, learners[1].teacher.targets)
    learners[1].load_state_dict(learners[0].state_dict())
    assert torch.equal(targets, learners[1].teacher.targets)
