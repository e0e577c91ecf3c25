import math

import pytest
import torch

from facerts.losses.magface import MagFace
from facerts.losses.partial_fc import PartialFC
from tests.loss_examples import batch_of, of_lengths, slow_softmax, value_of


def test_norms_are_clipped_and_only_those_inside_get_a_gradient():
    embedding = of_lengths(0.0, 9.9, 10.1, 60.0, 109.9, 110.1, 500.0).requires_grad_()
    a = MagFace().magnitude(embedding)
    expected = torch.tensor([10.0, 10.0, 10.1, 60.0, 109.9, 110.0, 110.0], dtype=torch.float64)
    torch.testing.assert_close(a, expected)
    (slope,) = torch.autograd.grad(a.sum(), embedding)
    assert (slope.norm(dim=1) > 0.99).tolist() == [False, False, True, True, True, False, False]
    assert torch.equal(slope[[0, 1, 5, 6]], torch.zeros(4, 6, dtype=torch.float64))


@pytest.mark.parametrize("ramp", [1.0, 0.5])
def test_against_a_slow_reading_of_the_paper(ramp):
    torch.manual_seed(0)
    centers, embedding = PartialFC(7, 6).double(), of_lengths(3, 20, 70, 200)
    norms, labels = [10.0, 20.0, 70.0, 110.0], [0, 6, 3, 3]

    def target(angle, row):
        shifted = angle + ramp * (0.45 + 0.35 * (norms[row] - 10) / 100)
        assert shifted < math.pi
        return math.cos(shifted)

    expected = slow_softmax(embedding, centers.weight, labels, 16.0, target)
    expected += sum(35 * (a / 12100 + 1 / a) for a in norms) / 4
    method = MagFace(logit_scale=16.0)
    loss = value_of(method, {"embedding": embedding}, batch_of(labels, ramp=ramp), centers)
    assert loss.total.item() == pytest.approx(expected, rel=1e-9)
