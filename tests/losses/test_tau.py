import math

import pytest
import torch
from torch.nn import functional as F

from facerts.losses.partial_fc import PartialFC
from facerts.losses.tau import TaU, temperature
from facerts.nn.twin_heads import HeadSpec
from tests.loss_examples import batch_of, slow_info_nce, value_of

IMAGES = 5
CENTERS = PartialFC(3, 4)  # which the loss does not use


def example(size=4):
    torch.manual_seed(12)
    embedding = torch.randn(2 * IMAGES, size, dtype=torch.float64)
    u = torch.randn(2 * IMAGES, 1, dtype=torch.float64)
    return {"embedding": embedding, "log_odds": u}, batch_of([0] * IMAGES, 2)


def build(tau_min=0.1):
    return TaU(tau_min=tau_min)


def test_every_view_has_its_own_temperature():
    outputs, batch = example()
    loss = value_of(build(0.3), outputs, batch, CENTERS)
    taus = [0.3 / (1 / (1 + math.exp(-float(u)))) for u in outputs["log_odds"]]
    positive = [[(i + IMAGES) % (2 * IMAGES)] for i in range(2 * IMAGES)]
    slow = slow_info_nce(outputs["embedding"], positive, taus)
    assert loss.total.item() == pytest.approx(sum(slow) / len(slow), rel=1e-10)
    torch.testing.assert_close(loss.per_image["temperature"], torch.tensor(taus, dtype=torch.float64))


def test_a_fixed_temperature_is_simclr():
    outputs, batch = example()
    method = TaU(tau_min=0.3, temperature="fixed")
    loss = value_of(method, {"embedding": outputs["embedding"]}, batch, CENTERS)
    unit = F.normalize(outputs["embedding"])
    logits = (unit @ unit.T / 0.3).fill_diagonal_(-math.inf)
    partners = torch.arange(2 * IMAGES).roll(IMAGES)
    torch.testing.assert_close(loss.total, F.cross_entropy(logits, partners))


def test_the_temperature_is_bounded_from_below_and_always_finite():
    tau = temperature(torch.tensor([-1e4, -89.0, 0.0, 3.0, 200.0]), 0.1)
    assert torch.isfinite(tau).all()
    assert (tau.diff() <= 0).all()
    assert tau[2:].tolist() == pytest.approx([0.2, 0.1 * (1 + math.exp(-3)), 0.1])


def test_quality_is_u_where_the_sigmoid_saturates():
    assert (TaU.views, TaU.sampler) == (2, "shuffle")
    assert build().heads() == {"log_odds": HeadSpec(1)}
    u = torch.tensor([[-3.0], [0.0], [20.0], [21.0]])
    scored = build().score({"embedding": torch.randn(4, 6), "log_odds": u})
    assert torch.equal(scored["quality"], u.squeeze(1))
    assert torch.sigmoid(u[2]) == torch.sigmoid(u[3])
    torch.testing.assert_close(scored["uncertainty"], 0.1 / torch.sigmoid(u.squeeze(1)))
