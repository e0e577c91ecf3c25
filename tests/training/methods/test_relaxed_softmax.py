from __future__ import annotations

import math

import pytest
import torch

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods.relaxed_softmax import MIN_ALPHA, RelaxedSoftmax, inverse_temperature
from facerts.training.nn.twin_heads import HeadSpec
from tests.losses import batch_of, slow_softmax


def test_alpha_is_one_at_zero_positive_and_rising() -> None:
    x = torch.linspace(-200, 200, 4001, dtype=torch.float64).unsqueeze(1)
    alpha = inverse_temperature(x)
    assert alpha[2000].item() == pytest.approx(1, abs=1e-12)
    assert (alpha >= MIN_ALPHA).all()
    assert (alpha.diff() >= 0).all()
    assert torch.isfinite(1 / alpha).all()


def test_alpha_multiplies_all_logits_of_its_image() -> None:
    torch.manual_seed(1)
    centers, embedding = ClassCenters(5, 6).double(), torch.randn(5, 6, dtype=torch.float64)
    x, labels = torch.randn(5, 1, dtype=torch.float64), [0, 1, 2, 3, 4]
    method = RelaxedSoftmax(RelaxedSoftmax.Config(logit_scale=8, margin=0.2), 6)
    loss = method.loss({"embedding": embedding, "confidence": x}, batch_of(labels), centers).total.item()
    alphas = [math.log(1 + math.exp(value) * (math.e - 1)) for value in x.flatten().tolist()]
    expected = slow_softmax(
        embedding,
        centers.weight,
        labels,
        [8 * alpha for alpha in alphas],
        lambda angle, row: math.cos(angle + 0.2),
    )
    assert loss == pytest.approx(expected, rel=1e-9)


def test_quality_is_alpha_and_uncertainty_the_temperature() -> None:
    method = RelaxedSoftmax(RelaxedSoftmax.Config(), 6)
    assert method.heads() == {"confidence": HeadSpec(1, batch_norm=True)}
    scored = method.score({"embedding": torch.randn(3, 6), "confidence": torch.tensor([[-1.0], [0], [2]])})
    assert (scored["quality"].diff() > 0).all()
    torch.testing.assert_close(scored["quality"][1], torch.tensor(1.0))
    torch.testing.assert_close(scored["quality"] * scored["uncertainty"], torch.ones(3))
