from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from facerts.training.class_head.partial_fc import ClassCenters
from facerts.training.methods.godin import GODIN, MIN_DIVISOR, divisor
from facerts.training.nn.twin_heads import HeadSpec
from tests.losses import batch_of, slow_softmax


def test_the_divisor_divides_all_logits_of_its_image() -> None:
    torch.manual_seed(1)
    centers, embedding = ClassCenters(5, 6).double(), torch.randn(5, 6, dtype=torch.float64)
    x, labels = torch.randn(5, 1, dtype=torch.float64), [0, 1, 2, 3, 4]
    method = GODIN(GODIN.Config(logit_scale=8, margin=0.2), 6)
    loss = method.loss({"embedding": embedding, "divisor": x}, batch_of(labels), centers).total.item()
    scales = [8 * (1 + math.exp(-value)) for value in x.flatten().tolist()]
    expected = slow_softmax(
        embedding, centers.weight, labels, scales, lambda angle, row: math.cos(angle + 0.2)
    )
    assert loss == pytest.approx(expected, rel=1e-9)


def test_the_divisor_does_not_vanish() -> None:
    assert divisor(torch.tensor([[-1000.0]])).item() == pytest.approx(MIN_DIVISOR)


def test_a_large_divisor_is_a_poor_image_also_where_it_saturates() -> None:
    method = GODIN(GODIN.Config(), 6)
    assert method.heads() == {"divisor": HeadSpec(1, batch_norm=True)}
    x = torch.tensor([[-2.0], [0.0], [3.0], [20.0], [21.0]])
    scored = method.score({"embedding": torch.randn(5, 6), "divisor": x})
    g = 1 / (1 + np.exp(-x.double().flatten().numpy()))
    np.testing.assert_allclose(scored["uncertainty"], g, rtol=1e-6)
    np.testing.assert_allclose(scored["quality"], -np.log(g / (1 - g)), rtol=1e-5, atol=1e-6)
    assert scored["uncertainty"][3] == scored["uncertainty"][4]
    assert scored["quality"][3] > scored["quality"][4]
