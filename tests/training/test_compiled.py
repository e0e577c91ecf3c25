"""Compiled steps give the same results as plain ones, and a clear error where nothing can be compiled."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from facerts import nn as networks
from facerts.training.learner import Learner
from facerts.training.loader import Batch
from facerts.training.recipe import Recipe

IMAGES, PEOPLE = 8, 4

pytestmark = pytest.mark.slow
needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="torch.compile needs g++, or the compiler that CXX names, and it is not there",
)


class Small(nn.Sequential):
    """A trunk with one layer of each kind that real trunks have, so that it compiles in seconds."""

    features = 4 * 7 * 7

    def __init__(self, *, width, dropout, input_size):
        super().__init__(
            nn.AvgPool2d(8),
            nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.PReLU(4),
            nn.Dropout(dropout),
            nn.Flatten(),
        )


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setitem(networks.BACKBONES, "small", Small)


def recipe(compile, dropout=0.0):
    return Recipe.model_validate(
        {
            "name": "small",
            "seed": 2,
            "data": {"name": "none", "terms": "none", "train": "none"},
            "backbone": {"name": "small", "embedding_size": 8, "dropout": dropout},
            "method": {"name": "rts", "logit_scale": 8},
            "optim": {"epochs": 1, "batch_size": IMAGES},
            "compute": {"device": "cpu", "precision": "fp32", "threads": 1, "compile": compile},
        }
    )


def take_steps(learner, start, stop):
    losses = []
    for step in range(start, stop):
        random = torch.Generator().manual_seed(step)
        crops = torch.randint(0, 256, (IMAGES, 112, 112, 3), dtype=torch.uint8, generator=random)
        batch = Batch.of(crops, torch.arange(IMAGES) % PEOPLE, torch.arange(IMAGES))
        losses.append(learner.step(batch, step, 0.02).total.item())
    return losses


def weights(learner):
    return {**learner.network.state_dict(), "centers": learner.centers.weight.detach()}


@needs_compiler
def test_a_compiled_step_gives_the_loss_and_the_weights_of_a_plain_one():
    plain, fused = Learner(recipe(False), PEOPLE), Learner(recipe(True), PEOPLE)
    start = {name: value.clone() for name, value in weights(plain).items()}
    assert take_steps(fused, 0, 3) == pytest.approx(take_steps(plain, 0, 3), rel=1e-5)
    torch.testing.assert_close(weights(fused), weights(plain), rtol=1e-4, atol=1e-5)
    # Three steps move weights by far more than that tolerance.
    assert (weights(fused)["trunk.1.weight"] - start["trunk.1.weight"]).abs().max() > 1e-3
    # Validation is not compiled, but uses the weights trained by the compiled steps.
    crops = torch.randint(0, 256, (3, 112, 112, 3), dtype=torch.uint8).numpy()
    torch.testing.assert_close(
        torch.from_numpy(fused.embedder()(crops).embedding),
        torch.from_numpy(plain.embedder()(crops).embedding),
        rtol=1e-3,
        atol=1e-4,
    )


WITHOUT_COMPILER = """
from facerts import nn as networks
from facerts.errors import Error
from facerts.training.learner import Learner
from tests.training.test_compiled import PEOPLE, Small, recipe, take_steps

networks.BACKBONES["small"] = Small
learner = Learner(recipe(True), PEOPLE)
try:
    take_steps(learner, 0, 1)
except Error as error:
    print(error)
"""


def test_a_missing_compiler_is_a_clear_error(tmp_path):
    # In a new process, because PyTorch remembers a compiler, and without a cache, with which it would not need one.
    environment = {**os.environ, "CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith("compute.compile: PyTorch cannot compile the network here: ")
    assert "No working C++ compiler found" in ran.stdout
    assert ran.stdout.endswith("or train with compute.compile=false\n")
