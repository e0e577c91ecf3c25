"""Methods that learn a factor of each image's logits: GODIN's 1/g, and Relaxed Softmax's α."""

import math

import numpy as np
import pytest
import torch

from facerts.losses import LOSSES
from facerts.losses.godin import MIN_DIVISOR, divisor
from facerts.losses.partial_fc import PartialFC
from facerts.losses.relaxed_softmax import MIN_ALPHA, inverse_temperature
from facerts.nn.twin_heads import HeadSpec
from tests.loss_examples import batch_of, slow_softmax, value_of


@pytest.mark.parametrize(
    ("name", "head", "factor"),
    [
        ("godin", "divisor", lambda x: 1 + math.exp(-x)),
        ("relaxed_softmax", "confidence", lambda x: math.log(1 + math.exp(x) * (math.e - 1))),
    ],
)
def test_the_factor_multiplies_all_logits_of_its_image(name, head, factor):
    torch.manual_seed(1)
    centers, embedding = PartialFC(5, 6).double(), torch.randn(5, 6, dtype=torch.float64)
    x, labels = torch.randn(5, 1, dtype=torch.float64), [0, 1, 2, 3, 4]
    method = LOSSES[name](embedding_size=6, logit_scale=8, margin=0.2)
    assert method.heads() == {head: HeadSpec(1, batch_norm=True)}
    loss = value_of(method, {"embedding": embedding, head: x}, batch_of(labels), centers).total.item()
    scales = [8 * factor(value) for value in x.flatten().tolist()]
    expected = slow_softmax(embedding, centers.weight, labels, scales, lambda angle, row: math.cos(angle + 0.2))
    assert loss == pytest.approx(expected, rel=1e-9)


def test_the_divisor_does_not_vanish():
    assert divisor(torch.tensor([[-1000.0]])).item() == pytest.approx(MIN_DIVISOR)


def test_a_large_divisor_is_a_poor_image_also_where_it_saturates():
    x = torch.tensor([[-2.0], [0.0], [3.0], [20.0], [21.0]])
    method = LOSSES["godin"](embedding_size=6)
    scored = method.score({"embedding": torch.randn(5, 6), "divisor": x})
    g = 1 / (1 + np.exp(-x.double().flatten().numpy()))
    np.testing.assert_allclose(scored["uncertainty"], g, rtol=1e-6)
    np.testing.assert_allclose(scored["quality"], -np.log(g / (1 - g)), rtol=1e-5, atol=1e-6)
    assert scored["uncertainty"][3] == scored["uncertainty"][4]
    assert scored["quality"][3] > scored["quality"][4]


def test_quality_is_alpha_which_is_one_at_zero_positive_and_rising():
    x = torch.linspace(-200, 200, 4001, dtype=torch.float64).unsqueeze(1)
    alpha = inverse_temperature(x)
    assert alpha[2000].item() == pytest.approx(1, abs=1e-12)
    assert (alpha >= MIN_ALPHA).all()
    assert (alpha.diff() >= 0).all()
    assert torch.isfinite(1 / alpha).all()
    method = LOSSES["relaxed_softmax"](embedding_size=6)
    scored = method.score({"embedding": torch.randn(4001, 6), "confidence": x})
    torch.testing.assert_close(scored["quality"], alpha)
    torch.testing.assert_close(scored["uncertainty"], 1 / alpha)
