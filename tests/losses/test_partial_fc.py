"""The class centers and the softmax over them, whole or over a sample of them."""

import copy

import pytest
import torch
from torch.func import functional_call
from torch.nn import functional as F

from facerts.errors import Error
from facerts.losses.partial_fc import PartialFC, RowUpdates
from tests.loss_examples import slow_softmax


def stepping(identities, sample=None):
    """Centers that are updated in the backward pass."""
    centers = PartialFC(identities, 8, chunk=100, sample=sample).double()
    optimizer = torch.optim.SGD([centers.weight], lr=0.3, momentum=0.9, weight_decay=0.01)
    centers.row_updates = RowUpdates(optimizer, centers.weight)
    return centers, optimizer


def differentiate(centers):
    torch.manual_seed(3)
    embedding = torch.randn(16, 8, dtype=torch.double, requires_grad=True)
    scale = torch.tensor(9.0, dtype=torch.double)
    centers(embedding, torch.arange(16), lambda cosine: cosine - 0.1, scale).mean().backward()
    assert embedding.grad is not None
    return embedding.grad


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_the_softmax_by_a_slow_loop_with_scales_of_images_and_margins_of_targets(chunk):
    torch.manual_seed(0)
    centers, labels = PartialFC(7, 5, chunk=chunk).double(), [0, 3, 6, 3]
    embedding = torch.randn(4, 5, dtype=torch.float64)
    scale = torch.tensor([1.0, 8.0, 64.0, 16.0], dtype=torch.float64)
    entropy = centers(embedding, torch.tensor(labels), lambda cosine: cosine - 0.3, scale)
    for image in range(4):
        expected = slow_softmax(
            embedding[image : image + 1],
            centers.weight,
            [labels[image]],
            scale[image].item(),
            lambda angle, _: torch.tensor(angle, dtype=torch.float64).cos().item() - 0.3,
        )
        assert entropy[image].item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    own, nearest = centers.own_and_nearest(embedding, torch.tensor(labels))
    cosine = F.normalize(embedding) @ F.normalize(centers.weight).T
    torch.testing.assert_close(centers.cosines(embedding), cosine)
    torch.testing.assert_close(own, cosine[range(4), labels])
    is_own = F.one_hot(torch.tensor(labels), 7).bool()
    torch.testing.assert_close(nearest, cosine.masked_fill(is_own, -2.0).amax(dim=1))


def test_gradients_of_embeddings_centers_and_scales_by_gradcheck():
    torch.manual_seed(1)
    centers, labels = PartialFC(5, 4, chunk=2).double(), torch.tensor([0, 4, 1])

    def entropy(embedding, weight, scale):
        inputs = embedding, labels, lambda cosine: cosine - 0.2, scale
        return functional_call(centers, {"weight": weight}, inputs)

    embedding = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([2.0, 5.0, 8.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(entropy, (embedding, weight, scale))


def test_an_embedding_near_zero_has_a_bounded_gradient():
    centers, embedding = PartialFC(100, 8), 1e-8 * torch.randn(16, 8)
    embedding.requires_grad_()
    centers(embedding, torch.arange(16), lambda cosine: cosine, torch.tensor(64.0)).sum().backward()
    assert embedding.grad is not None
    # The logits have a scale of 64, and embeddings shorter than 0.01 are not brought to unit length.
    assert 0 < embedding.grad.norm(dim=1).max() < 2 * 64 / 0.01


def test_under_autocast_the_softmax_stays_in_float32():
    centers = PartialFC(100, 8)
    embedding, labels = torch.randn(16, 8), torch.arange(16)
    plain = centers(embedding, labels, lambda cosine: cosine, torch.tensor(64.0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = centers(embedding, labels, lambda cosine: cosine, torch.tensor(64.0))
    assert torch.equal(plain, cast)


def test_centers_updated_in_the_backward_pass_are_used_once_per_step():
    centers, _ = stepping(40)
    differentiate(centers)
    for again in (lambda: differentiate(centers), lambda: centers.cosines(torch.ones(2, 8))):
        with pytest.raises(Error, match=r"twice in a step.* derive it from FaceLoss"):
            again()
    with torch.no_grad():
        centers.cosines(torch.ones(2, 8, dtype=torch.double))
    centers.begin(1)
    differentiate(centers)


def test_every_sample_of_centers_has_another_class_than_the_images_own():
    centers = PartialFC(8, 8, sample=0.01)
    embedding, labels = torch.randn(3, 8, requires_grad=True), torch.tensor([5, 5, 5])
    centers(embedding, labels, lambda cosine: cosine, torch.tensor(9.0)).sum().backward()
    assert centers.weight.grad is not None
    assert centers.weight.grad.isfinite().all()
    assert int(centers.weight.grad.any(dim=1).sum()) == 2


def test_only_sampled_centers_are_updated():
    centers, optimizer = stepping(200, sample=0.2)
    dense = copy.deepcopy(centers)
    dense.row_updates = None
    before = centers.weight.detach().clone()
    torch.testing.assert_close(differentiate(centers), differentiate(dense), rtol=1e-12, atol=1e-12)
    assert dense.weight.grad is not None
    drawn = dense.weight.grad.abs().sum(dim=1) > 0
    assert drawn.sum() == 40
    assert drawn[:16].all()
    expected = before - 0.3 * (dense.weight.grad + 0.01 * before)
    torch.testing.assert_close(centers.weight[drawn], expected[drawn], rtol=1e-12, atol=1e-12)
    assert torch.equal(centers.weight[~drawn], before[~drawn])
    momentum = optimizer.state[centers.weight]["momentum_buffer"]
    assert not momentum[~drawn].any()
    assert momentum[drawn].any(dim=1).all()
