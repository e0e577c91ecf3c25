"""eval/convergence.py: the gap is the loss's slope in the temperature, and accuracy is that of the training images."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from facerts.training.classifier import load_classifier
from facerts.training.loader import TrainingData
from facerts.training.methods.rts import RTSConfig
from tests.scripts import EVAL, cells_of, load_script, run_script

script = load_script("convergence")


@pytest.mark.parametrize("scale", ["vector", "shared"])
def test_the_gap_is_the_slope_of_the_loss_in_the_log_temperature(scale: str) -> None:
    torch.manual_seed(3)
    settings = RTSConfig(scale=scale, degrees=6, margin=0.3, logit_scale=12.0)
    cosine = 2 * torch.rand(5, 9, dtype=torch.float64) - 1
    labels = torch.tensor([0, 3, 8, 3, 1])
    v = 0.5 + torch.rand(5, 6 if scale == "vector" else 1, dtype=torch.float64)
    found = script.gap(SimpleNamespace(method=SimpleNamespace(config=settings)), cosine, labels, v)

    target = torch.cos(torch.arccos(cosine[torch.arange(5), labels]) + 0.3)
    logits = 12.0 * cosine.index_put((torch.arange(5), labels), target)
    log_t = torch.log(v.mean(dim=1) * 6 / 4).requires_grad_()
    loss = F.cross_entropy(logits / log_t.exp().unsqueeze(1), labels, reduction="sum")
    (slope,) = torch.autograd.grad(loss, log_t)
    torch.testing.assert_close(found, -slope)


def test_a_run_is_measured_on_its_training_images(trained_run: Path, tmp_path: Path) -> None:
    shutil.copytree(trained_run, tmp_path / "rts_seed1")
    values = tmp_path / "values.csv"
    printed = run_script(EVAL / "convergence.py", tmp_path, "RTS=rts", "--values", values).stdout
    assert run_script(EVAL / "convergence.py", values, "RTS=rts").stdout == printed
    header, row = cells_of(printed)
    shown = dict(zip(header, row, strict=True))
    classifier = load_classifier(trained_run)
    source = TrainingData(classifier.recipe).source
    images = np.stack([source.crop(index) for index in range(len(source))]).transpose(0, 3, 1, 2)
    with torch.no_grad():
        outputs = classifier.network((torch.from_numpy(images).float() - 127.5) / 127.5)
    distance = torch.cdist(F.normalize(outputs["embedding"]), F.normalize(classifier.centers.weight))
    right = float(np.mean(distance.argmin(dim=1).numpy() == source.labels))
    assert float(shown["training accuracy"]) == pytest.approx(100 * right, abs=0.01)
    v = outputs["log_scale"].exp().mean(dim=1).numpy()
    assert float(shown["v: 5%"]) == pytest.approx(np.percentile(v, 5), abs=1e-3)
    assert float(shown["range of v"]) == pytest.approx(
        100 * (np.percentile(v, 95) / np.percentile(v, 5) - 1), abs=0.1
    )
    assert float(shown["λ(v − 1)/2"]) == pytest.approx(10 * (v.mean() - 1) / 2, abs=0.01)


def test_labels_without_runs_are_errors(tmp_path: Path) -> None:
    ran = run_script(EVAL / "convergence.py", tmp_path, "rts")
    assert ran.returncode == 2
    assert "no rts_seedN with a checkpoint.pt" in ran.stderr
