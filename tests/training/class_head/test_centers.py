from __future__ import annotations

import torch
from torch.nn import functional as F

from facerts.training.class_head.partial_fc import ClassCenters


def test_no_margin_is_cross_entropy_of_scaled_cosines() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = ClassCenters(7, 5).double()
    embedding = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 3, 6, 3])
    entropy = centers(embedding, labels, lambda cosine: cosine, torch.tensor(16.0, dtype=torch.float64))
    logits = torch.stack(
        [torch.stack([16 * torch.dot(e, w) / e.norm() / w.norm() for w in centers.weight]) for e in embedding]
    )
    torch.testing.assert_close(entropy, F.cross_entropy(logits, labels, reduction="none"))


def test_each_image_has_its_own_scale_and_only_targets_get_the_margin() -> None:
    centers = ClassCenters(6, 4).double()
    embedding = torch.randn(3, 4, dtype=torch.float64)
    labels, scale = torch.tensor([1, 5, 0]), torch.tensor([1.0, 8.0, 64.0], dtype=torch.float64)
    entropy = centers(embedding, labels, lambda cosine: cosine - 0.3, scale)
    cosine = F.normalize(embedding) @ F.normalize(centers.weight).T
    for image in range(3):
        logits = cosine[image].clone()
        logits[labels[image]] -= 0.3
        expected = -torch.log_softmax(scale[image] * logits, dim=0)[labels[image]]
        torch.testing.assert_close(entropy[image], expected)


def test_under_autocast_the_softmax_stays_in_float32() -> None:
    centers = ClassCenters(100, 8)
    embedding, labels = torch.randn(16, 8), torch.arange(16)
    plain = centers(embedding, labels, lambda cosine: cosine, torch.tensor(64.0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = centers(embedding, labels, lambda cosine: cosine, torch.tensor(64.0))
    assert torch.equal(plain, cast)
