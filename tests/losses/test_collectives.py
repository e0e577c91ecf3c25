"""Several processes train like a single one: the same gradients, the same result, and recovery after a crash."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from facerts.datasets.synthetic import draw_face
from facerts.errors import Error
from facerts.evaluation.while_training import to_network_input
from facerts.losses import LOSSES, ClassificationLoss
from facerts.losses.collectives import Processes, average_gradients, current_processes
from facerts.losses.partial_fc import PartialFC
from facerts.nn import FaceNetwork
from facerts.training.checkpoint import FILE, load_checkpoint, save_checkpoint
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.recipe import Recipe
from tests.command import free_port
from tests.loss_examples import Images, value_of

CLASSIFY = sorted(name for name, method in LOSSES.items() if issubclass(method, ClassificationLoss))
BATCH, IDENTITIES, FEATURES, SIZE, STEPS = 12, 11, 6, 5, 3


def batch_of(processes, step):
    """This process's share of a step's features, labels and keys."""
    generator = torch.Generator().manual_seed(step)
    features = torch.randn(BATCH, FEATURES, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(0, IDENTITIES, (BATCH,), generator=generator)
    samples = torch.randint(0, 10_000, (BATCH,), generator=generator)
    mine = processes.own_rows(BATCH)
    return features[mine], Images(labels[mine], samples[mine], step, 0.8)


def gradients_of(name, processes, chunk=4):
    """Gradients of network, state and all centers after a few steps, their norm, and the state itself."""
    torch.manual_seed(0)
    method = LOSSES[name](embedding_size=SIZE)
    heads = {head: nn.Linear(FEATURES, spec.size, dtype=torch.float64) for head, spec in method.heads().items()}
    network = nn.ModuleDict({"embedding": nn.Linear(FEATURES, SIZE, dtype=torch.float64), **heads})
    centers = PartialFC(IDENTITIES, SIZE, chunk=chunk, processes=processes).double()
    whole = [*network.parameters(), *method.state.double().parameters()]
    optimizer = torch.optim.SGD([*whole, *centers.parameters()], lr=0.05)
    for step in range(STEPS):
        features, batch = batch_of(processes, step)
        outputs = {head: layer(features) for head, layer in network.items()}
        optimizer.zero_grad()
        value_of(method, outputs, batch, centers).total.backward()
        average_gradients(whole, processes)
        norm = clip_grad_norm_(whole, 1.0)
        optimizer.step()
    rows = [len(processes.own_classes(IDENTITIES, rank)) for rank in range(processes.count)]
    assert centers.weight.grad is not None
    found = [norm, *(p.grad for p in whole if p.grad is not None), *method.state.buffers()]
    for shared in (centers.weight.grad, centers.weight.detach()):
        together = processes.gather_on_first(shared, rows)
        if together is not None:
            found.append(together)
    return found


def gradients(processes, names):
    return {name: gradients_of(name, processes) for name in names}


def talk(rank, count, port, program, argument, out):
    """Let each process run a program; the first saves the results."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=count)
    processes = current_processes()
    results = program(processes, argument)
    if processes.first:
        torch.save(results, out)
    torch.distributed.destroy_process_group()


def in_processes(count, program, argument, folder):
    """The results of a program in so many processes, which import PyTorch once for all of them."""
    multiprocessing.set_forkserver_preload([__name__])
    arguments = (count, free_port(), program, argument, str(folder / "results.pt"))
    torch.multiprocessing.start_processes(talk, arguments, nprocs=count, start_method="forkserver")
    return torch.load(folder / "results.pt")


@pytest.fixture(scope="module")
def alone():
    return gradients(Processes(), CLASSIFY)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_give_the_gradients_of_one(alone, tmp_path, count):
    together = in_processes(count, gradients, CLASSIFY, tmp_path)
    for name in CLASSIFY:
        assert len(together[name]) == len(alone[name]) > 2
        for mine, expected in zip(together[name], alone[name], strict=True):
            assert mine.abs().max() > 0
            torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10, msg=f"{name}: {mine} {expected}")


WAYS = {
    "plainly": (),
    "in parts": ("compute.accumulate=2",),
    "computing again": ("compute.recompute=true",),
    "on a frozen network": ("backbone.frozen=true",),
    "by AdamW with an average": ("optim.algorithm=adamw", "optim.average=0.9", "optim.clip_norm=0.5"),
}


def trained(recipe, processes):
    """Weights after a few steps in float64, with fixed BatchNorm statistics, which are not shared between processes."""
    data = TrainingData(recipe, processes)
    learner = Learner(recipe, data.identities, processes=processes)
    for step, batch in enumerate(data.batches(0, STEPS)):
        learner.step(batch, step, 0.01, 0.8)
    state = learner.state_dict()
    network = {f"network.{name}": value for name, value in state["network"].items()}
    average = {f"average.{name}": value for name, value in (state["average"] or {}).items()}
    return {**network, **average, "centers": state["centers"]["weight"]}


@contextmanager
def exactly():
    """Float64 throughout, and fixed statistics."""

    def keep(self, mode=True):
        nn.Module.train(self, mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
                module.eval()
        return self

    def wide(crops, channels_last):
        return to_network_input(crops).double()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaceNetwork, "train", keep)
        patch.setattr("facerts.training.learner.to_network_input", wide)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


def learn(processes, recipes):
    """The weights after each recipe."""
    with exactly():
        return {way: trained(Recipe.model_validate_json(text), processes) for way, text in recipes.items()}


@pytest.mark.slow
def test_several_processes_train_the_same_network_as_one(make_recipe, tmp_path):
    start = make_recipe("backbone.dropout=0")
    save_checkpoint(
        tmp_path / "start.pt", start, {"step": 0, "position": 0.0, **Learner(start, IDENTITIES).state_dict()}
    )
    common = ("backbone.dropout=0", f"backbone.weights={tmp_path / 'start.pt'}")
    recipes = {way: make_recipe(*common, *overrides) for way, overrides in WAYS.items()}
    texts = {way: recipe.model_dump_json() for way, recipe in recipes.items()}
    alone, together = learn(Processes(), texts), in_processes(2, learn, texts, tmp_path)
    begun = {f"network.{name}": value for name, value in Learner(start, IDENTITIES).network.state_dict().items()}
    for way in WAYS:
        moved = [name for name, value in begun.items() if (alone[way][name] - value).abs().max() > 1e-6]
        heads_alone = all(name.startswith("network.heads.") for name in moved)
        assert len(moved) >= 2
        assert heads_alone == (way == "on a frozen network")
        torch.testing.assert_close(together[way], alone[way], rtol=1e-8, atol=1e-10)


def test_a_sample_of_centers_includes_those_of_the_batch_and_changes_with_the_step():
    centers = PartialFC(200, SIZE, sample=0.1, seed=3)
    embedding, labels = torch.randn(6, SIZE), torch.tensor([7, 7, 150, 3, 199, 0])
    seen = []
    for step in (4, 5, 4):
        centers.begin(step)
        centers.weight.grad = None
        entropy = centers(embedding, labels, lambda cosine: cosine - 0.1, torch.tensor(9.0))
        entropy.sum().backward()
        assert centers.weight.grad is not None
        drawn = centers.weight.grad.abs().sum(dim=1).nonzero().squeeze(1)
        assert len(drawn) == 20
        assert set(labels.tolist()) <= set(drawn.tolist())
        cosine = F.normalize(embedding) @ F.normalize(centers.weight[drawn]).T
        own = drawn.unsqueeze(0) == labels.unsqueeze(1)
        logits = 9.0 * (cosine - 0.1 * own)
        torch.testing.assert_close(entropy, F.cross_entropy(logits, own.int().argmax(dim=1), reduction="none"))
        seen.append(drawn.tolist())
    assert seen[0] == seen[2] != seen[1]
    # If a batch has more people than the sample would have centers, all of them are sampled.
    centers = PartialFC(200, SIZE, sample=0.001)
    centers(embedding, labels, lambda cosine: cosine, torch.tensor(9.0)).sum().backward()
    assert centers.weight.grad is not None
    assert int((centers.weight.grad.abs().sum(dim=1) > 0).sum()) == 5


OVERRIDES = ("optim.epochs=6", "optim.milestones=[]", "logging.checkpoint_steps=2", "backbone.dropout=0")


def torchrun(count, recipe, run, *options):
    """A command that trains in several processes, and restarts them if one dies."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "2"),
        *("--nproc-per-node", str(count), "-m", "facerts", "train", str(recipe), *OVERRIDES),
        *("--out", str(run), *options),
    ]


@pytest.fixture
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_training_recovers_from_the_death_of_a_process(recipe_file, tmp_path, monkeypatch):
    monkeypatch.setenv("LOGLEVEL", "INFO")
    run = tmp_path / "run"
    command = torchrun(2, recipe_file, run, "--resume")
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (run / FILE).exists() and process.poll() is None:
            time.sleep(0.01)
        os.kill(int(children.read_text().split()[-1]), signal.SIGKILL)
        _, output = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "will restart worker group" in output
    recipe, state = load_checkpoint(run / FILE)
    assert state["step"] == 6 * (len(TrainingData(recipe)) // recipe.optim.batch_size)


def test_the_shares_of_all_processes_are_the_batch(make_recipe):
    recipe = make_recipe()
    whole = next(iter(TrainingData(recipe).batches(3, 4)))
    parts = [next(iter(TrainingData(recipe, Processes(rank, 4)).batches(3, 4))) for rank in range(4)]
    for mine, expected in zip(zip(*parts, strict=True), whole, strict=True):
        assert torch.equal(torch.cat(mine), expected)
    with pytest.raises(Error, match=r"optim\.batch_size 16 .* multiple of the number of processes, 3"):
        TrainingData(recipe, Processes(0, 3))


def test_a_batch_in_parts_has_the_gradients_of_the_whole(make_recipe, monkeypatch):
    wide = lambda crops, channels_last: to_network_input(crops).double()  # noqa: E731
    monkeypatch.setattr("facerts.training.learner.to_network_input", wide)
    # The centers have a gradient with a single part too.
    monkeypatch.setattr(Learner, "_can_update_rows", lambda self: False)
    # BatchNorm normalizes each part separately; with fixed statistics the parts are independent.
    monkeypatch.setattr(FaceNetwork, "train", lambda self, mode=True: nn.Module.train(self, False))
    found = []
    for accumulate in (1, 4):
        recipe = make_recipe("backbone.dropout=0", f"compute.accumulate={accumulate}")
        data = TrainingData(recipe)
        learner = Learner(recipe, data.identities)
        trained = [*learner.network.double().parameters(), *learner.centers.double().parameters()]
        learner.step(next(iter(data.batches(0, 1))), 0, 0.01)
        found.append([p.grad for p in trained if p.grad is not None])
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-8, atol=1e-10)


def test_methods_that_need_all_images_or_centers_train_in_one_process(make_recipe):
    recipe = make_recipe("method={name: tightness}")
    with pytest.raises(Error, match="tightness trains in a single process only"):
        Learner(recipe, 8, processes=Processes(0, 2))
    with pytest.raises(Error, match="fp16 trains in a single process only"):
        Learner(make_recipe("compute.precision=fp16"), 8, processes=Processes(0, 2))


def test_an_average_of_the_weights_is_what_is_validated(make_recipe):
    recipe = make_recipe("optim.average=0.5")
    data = TrainingData(recipe)
    learner = Learner(recipe, data.identities)
    name, weight = next(iter(learner.network.named_parameters()))
    expected = weight.detach().clone()
    for step, batch in enumerate(data.batches(0, 3)):
        learner.step(batch, step, 0.05)
        now = learner.network.get_parameter(name).detach()
        # The first update copies the weights.
        expected = now.clone() if step == 0 else 0.5 * expected + 0.5 * now
    assert learner.average is not None
    torch.testing.assert_close(learner.average.module.get_parameter(name), expected)
    again = Learner(recipe, data.identities)
    again.load_state_dict(learner.state_dict())
    crops = draw_face(0, 0)[None]
    assert (again.embedder()(crops).embedding == learner.embedder()(crops).embedding).all()
