import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import Gamma
from torch.distributions import kl_divergence as torch_kl
from torch.nn import functional as F

from facerts.losses import face_loss
from facerts.losses.leave_one_out_means import LeaveOneOutMeans
from facerts.losses.noise import keyed_normal
from facerts.losses.partial_fc import PartialFC
from facerts.losses.rts import MIN_TEMPERATURE, RTS, gamma_kl, mean_temperature, temperature
from tests.loss_examples import batch_of, noise_of, value_of

DEGREES = 16
ENTRIES = {"vector": DEGREES, "shared": 1}


def batch(size, step=5):
    return batch_of((torch.arange(size) % 7).tolist(), step=step)


# The divergence from the prior


@pytest.mark.parametrize("v", [0.05, 0.3, 1.0, 2.5, 9.0])
def test_the_divergence_is_that_of_the_gammas_and_of_numerical_integration(v):
    shape, prior = torch.tensor(0.5, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    expected = torch_kl(Gamma(shape, prior / v), Gamma(shape, prior))
    actual = gamma_kl(torch.full((1, DEGREES), math.log(v), dtype=torch.float64))
    torch.testing.assert_close(actual[0], expected)
    p, q = stats.gamma(0.5, scale=2 * v), stats.gamma(0.5, scale=2.0)
    # The substitution x = u² removes the singularity at 0.
    value, _ = integrate.quad(
        lambda u: p.pdf(u * u) * (p.logpdf(u * u) - q.logpdf(u * u)) * 2 * u, 1e-9, math.sqrt(80 * max(v, 1))
    )
    assert actual.item() == pytest.approx(value, abs=1e-4)


# The temperature


@pytest.mark.parametrize("v", [0.4, 1.0, 2.2])
def test_a_shared_scale_gives_the_gamma_of_the_paper(v):
    draws = 20_000
    noise = keyed_normal(9, 0, torch.arange(draws), DEGREES).double()
    t = temperature(torch.full((draws, 1), v, dtype=torch.float64), noise)
    gamma = stats.gamma(DEGREES / 2, scale=v / (DEGREES / 2 - 1))
    assert stats.kstest(t.numpy(), gamma.cdf).pvalue > 1e-3
    grid = np.linspace(0.01, 10, 10_000)
    assert grid[gamma.pdf(grid).argmax()] == pytest.approx(v, abs=2e-3)
    mean = mean_temperature(torch.full((1, 1), v, dtype=torch.float64), DEGREES).item()
    assert mean == pytest.approx(gamma.mean())


@pytest.mark.parametrize("scale", ENTRIES)
def test_the_mean_temperature_scales_the_logits(scale):
    torch.manual_seed(5)
    centers, embedding, z = PartialFC(7, 12), torch.randn(10, 12), torch.randn(10, ENTRIES[scale])
    method = RTS(scale=scale, temperature="mean", margin=0.0, logit_scale=8.0)
    loss = value_of(method, {"embedding": embedding, "log_scale": z}, batch(10), centers)
    t = z.exp().expand(-1, DEGREES).sum(dim=1) / (DEGREES - 2)
    logits = 8.0 * F.normalize(embedding) @ F.normalize(centers.weight).T / t.unsqueeze(1)
    torch.testing.assert_close(loss.parts["cross_entropy"], F.cross_entropy(logits, batch(10).labels))
    other_step = value_of(method, {"embedding": embedding, "log_scale": z}, batch(10, step=6), centers)
    assert torch.equal(loss.total, other_step.total)


@pytest.mark.parametrize("scale", ENTRIES)
@pytest.mark.parametrize(("draws", "learned"), [(1, True), (3, True), (3, False)])
def test_draws_have_the_mean_of_their_losses_and_gradients(scale, draws, learned):
    torch.manual_seed(8)
    unit = F.normalize(torch.randn(14, 12, dtype=torch.float64))
    means = LeaveOneOutMeans(unit, torch.arange(14) % 7, 7)
    # Chunks of three of the seven classes.
    centers = PartialFC(7, 12, chunk=3).double() if learned else means
    embedding = torch.randn(5, 12, dtype=torch.float64, requires_grad=True)
    z = (0.4 * torch.randn(5, ENTRIES[scale], dtype=torch.float64)).requires_grad_()
    step_batch = batch(5)
    learners = [embedding, z, centers.weight] if learned else [embedding, z]
    method = RTS(scale=scale, draws=draws, kl_weight=0.0, logit_scale=8.0, margin=0.2)
    loss = value_of(method, {"embedding": embedding, "log_scale": z}, step_batch, centers)
    found = torch.autograd.grad(loss.total, learners)

    noise = keyed_normal(0, step_batch.step, step_batch.samples, draws * DEGREES).double()
    cosine = F.normalize(embedding) @ F.normalize(centers.weight).T
    rows, labels = torch.arange(5), step_batch.labels
    target = torch.cos(torch.arccos(cosine[rows, labels]) + 0.2)
    entropies = []
    for epsilon in noise.split(DEGREES, dim=1):
        t = (z.exp() * epsilon.square()).sum(dim=1) / (DEGREES - 2)
        logits = 8.0 * cosine.index_put((rows, labels), target) / t.unsqueeze(1)
        entropies.append(F.cross_entropy(logits, labels))
    expected = torch.stack(entropies).mean()
    assert draws == 1 or max(entropies) - min(entropies) > 0.01
    torch.testing.assert_close(loss.total, expected)
    wanted = torch.autograd.grad(expected, learners)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-12)


def test_draws_need_a_random_temperature():
    with pytest.raises(ValueError, match="draws 4 are of a random temperature; leave them out with mean"):
        RTS(draws=4, temperature="mean")


def test_tiny_draws_are_clamped_and_counted(monkeypatch):
    noise = torch.ones(4, DEGREES)
    noise[1:3] = 1e-4
    monkeypatch.setattr(face_loss, "keyed_normal", lambda *_: noise)
    outputs = {"embedding": torch.randn(4, 5), "log_scale": torch.zeros(4, DEGREES, requires_grad=True)}
    loss = value_of(RTS(), outputs, batch(4), PartialFC(7, 5))
    assert loss.parts["clamped"] == 2
    loss.total.backward()
    assert torch.isfinite(outputs["log_scale"].grad).all()
    terms = RTS().image_terms(outputs, noise_of(RTS(), batch(4)))
    assert terms.temperature is not None
    assert terms.temperature.min() >= MIN_TEMPERATURE


# The score


def test_the_score_is_the_arithmetic_mean_of_unequal_scales():
    # The geometric mean is 2 in every row; it, a median or a maximum would order these rows otherwise.
    v = torch.tensor([[2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 4.0, 4.0], [0.5, 2.0, 2.0, 8.0]], dtype=torch.float64)
    mean = torch.tensor([2.0, 2.5, 3.125], dtype=torch.float64)
    outputs = {"embedding": torch.randn(3, 4), "log_scale": v.log()}
    scored = RTS().score(outputs)
    torch.testing.assert_close(scored["uncertainty"], mean)
    torch.testing.assert_close(scored["quality"], -mean.log())
    assert scored["log_scale"] is outputs["log_scale"]
    torch.testing.assert_close(RTS(degrees=4).image_terms(outputs, noise_of(RTS(), batch(3))).per_image["v"], mean)
    far = RTS().score({"embedding": torch.randn(1, 4), "log_scale": torch.full((1, 4), 1e3)})
    assert far["quality"].item() == -1e3


# The noise


def test_noise_depends_only_on_its_key():
    samples = torch.tensor([5, 9, 1_000_000])
    drawn = keyed_normal(1, 2, samples, 16)
    assert torch.equal(drawn[1:2], keyed_normal(1, 2, samples[1:2], 16))
    assert torch.equal(drawn.flip(0), keyed_normal(1, 2, samples.flip(0), 16))
    for other in ((2, 2), (1, 3)):
        assert not torch.equal(drawn, keyed_normal(*other, samples, 16))


@pytest.mark.parametrize("count", [1, 15, 16])
def test_noise_is_standard_normal_and_uncorrelated(count):
    drawn = torch.cat([keyed_normal(0, step, torch.arange(5000), count) for step in range(8)]).numpy()
    assert drawn.shape == (40_000, count)
    assert stats.kstest(drawn.reshape(-1), "norm").pvalue > 1e-3
    correlation = np.corrcoef(drawn, rowvar=False) if count > 1 else np.eye(1)
    assert np.abs(correlation - np.eye(count)).max() < 5 / np.sqrt(40_000)
    steps = drawn.reshape(8, 5000, count)
    assert abs(np.corrcoef(steps[0].ravel(), steps[1].ravel())[0, 1]) < 5 / np.sqrt(5000 * count)
