import pytest
import torch

from facerts.losses.arcface import ArcFace
from facerts.losses.crfiqa import CRFIQA, certainty_ratio
from facerts.losses.partial_fc import PartialFC
from facerts.nn.twin_heads import HeadSpec
from tests.loss_examples import batch_of, dot, units, value_of


def slow_targets(embedding, labels, centers, target):
    targets = []
    for row, label in zip(units(embedding), labels, strict=True):
        cosines = [dot(row, center) for center in units(centers.weight)]
        nearest = max(cosine for j, cosine in enumerate(cosines) if j != label)
        targets.append(cosines[label] / (nearest + 1 + 1e-9) if target == "ratio" else cosines[label])
    return targets


def test_ratios_worked_out_by_hand():
    own = torch.tensor([0.8, -0.5, 0.0, 1.0], dtype=torch.float64)
    nearest = torch.tensor([0.0, 0.25, 0.3, -1.0], dtype=torch.float64)
    expected = torch.tensor([0.8 / (1 + 1e-9), -0.5 / (1.25 + 1e-9), 0.0, 1e9], dtype=torch.float64)
    torch.testing.assert_close(certainty_ratio(own, nearest), expected, rtol=1e-12, atol=0)
    # Rounded past −1, the ratio keeps its sign.
    assert certainty_ratio(torch.tensor([0.5]), torch.tensor([-1.0000001])) > 0


@pytest.mark.parametrize(
    ("target", "head", "ramp"),
    [("ratio", "certainty_ratio", 1.0), ("ratio", "certainty_ratio", 0.0), ("cosine", "own_cosine", 1.0)],
)
def test_against_arcface_and_a_slow_smooth_l1(target, head, ramp):
    torch.manual_seed(0)
    centers, embedding = PartialFC(7, 5).double(), torch.randn(4, 5, dtype=torch.float64)
    labels = [0, 6, 3, 3]
    targets = slow_targets(embedding, labels, centers, target)
    # Errors on both sides of β, and of either sign.
    errors = [0.1, -0.4, 0.7, -2.0]
    r = torch.tensor(targets, dtype=torch.float64) + torch.tensor(errors, dtype=torch.float64)
    regression = (0.1**2 + 0.4**2 + (0.7 - 0.25) + (2.0 - 0.25)) / 4
    method, batch = CRFIQA(target=target), batch_of(labels, ramp=ramp)
    assert method.heads() == {head: HeadSpec(1, reads="embedding")}
    plain = value_of(ArcFace(), {"embedding": embedding}, batch, centers)
    outputs = {"embedding": embedding, head: r.unsqueeze(1)}
    loss = value_of(method, outputs, batch, centers)
    assert loss.total.item() == pytest.approx(plain.total.item() + 10 * regression, rel=1e-9)
    assert loss.parts["regression"].item() == pytest.approx(regression, rel=1e-9)
    assert loss.per_image[head].tolist() == pytest.approx(targets, rel=1e-9)
    # No gradient flows through the target.
    inputs = embedding.requires_grad_(), centers.weight
    totals = [value_of(each, outputs, batch, centers).total for each in (method, ArcFace())]
    slopes = [torch.autograd.grad(total, inputs) for total in totals]
    for actual, expected in zip(*slopes, strict=True):
        torch.testing.assert_close(actual, expected)
    scored = method.score(outputs)
    torch.testing.assert_close(scored["quality"], r)
    torch.testing.assert_close(scored["uncertainty"], -r)
