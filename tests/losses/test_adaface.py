import math

import pytest
import torch
from torch.nn import functional as F

from facerts.losses.adaface import AdaFace, relative_quality
from facerts.losses.partial_fc import PartialFC
from tests.loss_examples import batch_of, noise_of, of_lengths, slow_softmax, value_of

M = 0.4


def with_statistics(mean, std):
    """A method whose μ and σ hardly change."""
    method = AdaFace(momentum=1 - 1e-12)
    method.state.mean.fill_(mean)
    method.state.std.fill_(std)
    return method


@pytest.mark.parametrize("ramp", [1.0, 0.5])
def test_against_a_slow_reading_of_the_paper(ramp):
    torch.manual_seed(2)
    centers, embedding, labels = PartialFC(7, 6).double(), of_lengths(12, 22, 31, 150), [0, 6, 3, 3]
    clipped = [12.0, 22.0, 31.0, 100.0]
    batch_mean = sum(clipped) / 4
    batch_std = math.sqrt(sum((a - batch_mean) ** 2 for a in clipped) / 4)
    mean, std = 0.99 * 20 + 0.01 * batch_mean, 0.99 * 100 + 0.01 * batch_std

    def target(angle, row):
        z = min(max((clipped[row] - mean) / (std / 0.33), -1.0), 1.0)
        return math.cos(min(max(angle - ramp * M * z, 0.0), math.pi)) - ramp * (M * z + M)

    method = AdaFace(logit_scale=16.0)
    loss = value_of(method, {"embedding": embedding}, batch_of(labels, ramp=ramp), centers)
    # μ and σ are kept in float32.
    expected = slow_softmax(embedding, centers.weight, labels, 16.0, target)
    assert loss.total.item() == pytest.approx(expected, rel=1e-6)
    assert method.state.mean.item() == pytest.approx(mean, rel=1e-6)
    assert method.state.std.item() == pytest.approx(std, rel=1e-6)


def test_relative_quality_is_clipped_and_finite_for_equal_norms():
    norm = torch.tensor([10.0, 20.0, 26.0, 90.0])
    z = relative_quality(norm, torch.tensor(20.0), torch.tensor(3.3), 0.33)
    torch.testing.assert_close(z, torch.tensor([-1.0, 0.0, 0.6, 1.0]))
    z = relative_quality(norm, torch.tensor(20.0), torch.tensor(0.0), 0.33)
    assert z.tolist() == [-1.0, 0.0, 1.0, 1.0]


def test_no_gradient_flows_through_the_norm():
    torch.manual_seed(3)
    centers, embedding = PartialFC(7, 6).double(), of_lengths(12, 22, 31).requires_grad_()
    loss = value_of(with_statistics(20.0, 10.0), {"embedding": embedding}, batch_of([0, 1, 2]), centers)
    (slope,) = torch.autograd.grad(loss.total, embedding)
    along = (slope * F.normalize(embedding.detach())).sum(dim=1)
    assert (slope.norm(dim=1) > 1e-3).all()
    torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-12)


def test_only_training_changes_the_statistics():
    torch.manual_seed(4)
    centers, outputs, batch = (
        PartialFC(7, 6),
        {"embedding": of_lengths(40, 40, 40).float()},
        batch_of([0, 1, 2]),
    )
    method = AdaFace()
    assert method.state.state_dict().keys() == {"mean", "std"}
    assert list(method.state.parameters()) == []
    method.score(outputs)
    method.image_terms(outputs, noise_of(method, batch))
    method.apply_margin(torch.ones(3), outputs["embedding"], 1.0)
    assert (method.state.mean.item(), method.state.std.item()) == (20.0, 100.0)
    for step in range(1, 4):
        loss = value_of(method, outputs, batch, centers)
        assert method.state.mean.item() == pytest.approx(40 - 20 * 0.99**step, rel=1e-6)
        assert method.state.std.item() == pytest.approx(100 * 0.99**step, rel=1e-5)
        assert loss.parts["norm_mean"] == method.state.mean
