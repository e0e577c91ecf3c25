from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from facerts.data import open_source
from facerts.embedder import load_embedder
from facerts.errors import Error
from facerts.methods import Batch, Loss
from facerts.train.checkpoint import load_network
from facerts.train.loader import TrainingData
from facerts.train.loop import train
from facerts.train.recipe import Recipe, Teacher, load_recipe
from facerts.train.teacher import Teacher as Distillation
from facerts.train.teacher import open_teacher, teacher_embeddings
from tests.foreign import write_description, write_embedder

MakeRecipe = Callable[..., Recipe]
SIZE = 16
SHORT = ("optim.epochs=1", "optim.milestones=[]")


@pytest.fixture(scope="module")
def teacher_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_embedder(tmp_path_factory.mktemp("teacher") / "teacher.onnx", size=SIZE)
    write_description(path)
    return path


def unit(count: int, seed: int) -> torch.Tensor:
    values = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(values)


def distillation(**weights: float) -> tuple[Distillation, torch.Tensor, Batch]:
    """A teacher of six images of three people, the embeddings of a batch of four of them, and the batch."""
    labels = np.array([0, 0, 1, 1, 2, 2])
    teacher = Distillation(Teacher(model="none", **weights), unit(6, 0).numpy(), labels)
    samples = torch.tensor([4, 0, 3, 1])
    embedding = (2.5 * unit(4, 1)).requires_grad_()
    return teacher, embedding, Batch(torch.from_numpy(labels)[samples], samples, step=0, seed=0)


def method_loss(value: float) -> Loss:
    return Loss(torch.tensor(value, dtype=torch.float64), {"cross_entropy": torch.tensor(value)})


def test_the_loss_is_what_a_loop_over_images_and_pairs_gives() -> None:
    teacher, embedding, batch = distillation(cosine=3.0, similarities=7.0, method=0.5)
    loss = teacher.loss(embedding, batch, method_loss(2.0))
    s = (embedding / embedding.norm(dim=1, keepdim=True)).detach().numpy()
    t = unit(6, 0).numpy()[batch.samples.numpy()]
    distance = sum(1.0 - float(s[i] @ t[i]) for i in range(4)) / 4
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    similarities = sum(float(s[i] @ s[j] - t[i] @ t[j]) ** 2 for i, j in pairs) / len(pairs)
    assert loss.total.item() == pytest.approx(3 * distance + 7 * similarities + 0.5 * 2.0, rel=1e-6)
    assert loss.parts["teacher_distance"].item() == pytest.approx(distance, rel=1e-6)
    assert loss.parts["teacher_similarities"].item() == pytest.approx(similarities, rel=1e-6)
    assert loss.parts["cross_entropy"].item() == 2.0


def test_its_gradient_is_that_of_finite_differences() -> None:
    teacher, embedding, batch = distillation()
    assert torch.autograd.gradcheck(
        lambda given: teacher.loss(given, batch, method_loss(0.0)).total, (embedding,)
    )


def test_an_image_is_left_out_of_its_own_mean() -> None:
    teacher, embedding, batch = distillation()
    cosines = teacher.centres_for(batch).cosines(embedding.detach())
    t = unit(6, 0)
    for row, sample in enumerate(batch.samples.tolist()):
        person = sample // 2
        for other in range(3):
            images = [i for i in (2 * other, 2 * other + 1) if other != person or i != sample]
            wanted = F.cosine_similarity(embedding[row].detach(), t[images].sum(dim=0), dim=0)
            assert cosines[row, other].item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_persons_only_image_stays_its_own_mean() -> None:
    teacher = Distillation(Teacher(model="none"), unit(3, 0).numpy(), np.array([0, 0, 1]))
    batch = Batch(torch.tensor([1]), torch.tensor([2]), step=0, seed=0)
    embedding = unit(1, 1)
    cosine = teacher.centres_for(batch).cosines(embedding)[0, 1].item()
    assert cosine == pytest.approx(float(embedding[0] @ unit(3, 0)[2]), rel=1e-6)


def test_the_teacher_sees_pictures_as_they_are_and_mirrored_and_is_asked_once(
    teacher_model: Path, drawn_faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, cache = open_source(drawn_faces), tmp_path / "teacher.npz"
    embeddings = teacher_embeddings(Teacher(model=str(teacher_model)), source, cache)
    embedder = load_embedder(teacher_model)
    crop = source.crop(5)[None]
    summed = embedder(crop).embedding[0] + embedder(np.ascontiguousarray(crop[:, :, ::-1])).embedding[0]
    assert embeddings[5] == pytest.approx(summed / np.linalg.norm(summed), abs=1e-6)
    monkeypatch.setattr("facerts.train.teacher.embed_source", None)
    again = teacher_embeddings(Teacher(model=str(teacher_model), cache=str(cache)), source, tmp_path / "no")
    assert np.array_equal(again, embeddings)


def test_a_network_comes_closer_to_its_teacher_and_resumes_as_if_nothing_had_happened(
    teacher_model: Path, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    how = (f"teacher={{model: {teacher_model}}}", "backbone.dropout=0.2", "optim.milestones=[]")
    recipe = make_recipe(*how, "optim.epochs=10", "logging.checkpoint_steps=1000")
    train(recipe, tmp_path / "whole")
    trained = load_network(tmp_path / "whole").network
    data = TrainingData(recipe)
    wanted = teacher_embeddings(recipe.teacher, data.source, tmp_path / "whole" / "teacher.npz")  # type: ignore[arg-type]

    def closeness(network: torch.nn.Module) -> float:
        crops = np.stack([data.source.crop(index) for index in range(len(data))])
        images = torch.from_numpy(crops).permute(0, 3, 1, 2).float().sub(127.5).div(127.5)
        with torch.no_grad():
            return float(F.cosine_similarity(network(images)["embedding"], torch.from_numpy(wanted)).mean())

    few = train(make_recipe(*how, "optim.epochs=0.25"), tmp_path / "few")
    assert closeness(trained) > closeness(load_network(few).network) + 0.2


def test_a_resumed_run_gives_the_same_weights(
    teacher_model: Path, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(f"teacher={{model: {teacher_model}}}", *SHORT, "logging.checkpoint_steps=2")
    whole = load_network(train(recipe, tmp_path / "whole"))
    steps = TrainingData.batches

    def two_steps(data: TrainingData, start: int, stop: int) -> object:
        yield from steps(data, start, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingData, "batches", two_steps)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "cut")
    monkeypatch.setattr(TrainingData, "batches", steps)
    resumed = load_network(train(recipe, tmp_path / "cut", resume=True))
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name


def test_an_embedding_of_another_size_is_refused_before_training(
    teacher_model: Path, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = make_recipe(f"teacher={{model: {teacher_model}}}", "backbone.embedding_size=8")
    with pytest.raises(Error, match=r"16 numbers.*embedding_size must be 16"):
        open_teacher(recipe, TrainingData(recipe).source, tmp_path)


def test_no_teacher_is_asked_for_nothing(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe()
    assert open_teacher(recipe, TrainingData(recipe).source, tmp_path) is None


def test_an_unknown_key_of_the_teacher_names_the_nearest(make_recipe: MakeRecipe) -> None:
    with pytest.raises(Error, match=r"teacher\.cosin.*teacher\.cosine"):
        make_recipe("teacher={model: m.onnx, cosin: 3}")


def test_the_shipped_recipe_embeds_as_its_teacher_does() -> None:
    recipe = load_recipe("facerts_small")
    assert recipe.teacher is not None
    assert recipe.backbone.embedding_size == 128
