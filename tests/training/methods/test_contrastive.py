from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from facerts.training.methods.contrastive import (
    info_nce,
    log_pool,
    members,
    positives,
    similarities,
    tightness,
)


def test_cosines_by_hand() -> None:
    embedding = torch.tensor([[3.0, 0.0], [1.0, 1.0], [0.0, -2.0]])
    half = math.sqrt(0.5)
    expected = torch.tensor([[1.0, half, 0.0], [half, 1.0, -half], [0.0, -half, 1.0]])
    torch.testing.assert_close(similarities(embedding), expected)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_cosines_have_at_least_single_precision(dtype: torch.dtype, expected: torch.dtype) -> None:
    embedding = torch.randn(5, 7).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = similarities(embedding)
    assert actual.dtype == expected
    exact = F.normalize(embedding.double()) @ F.normalize(embedding.double()).T
    torch.testing.assert_close(actual.double(), exact, atol=1e-6, rtol=0)


def test_a_row_is_not_its_own_positive_and_classes_are_the_batchs() -> None:
    labels = torch.tensor([7, 2, 7, 900])
    expected = torch.zeros(4, 4, dtype=torch.bool)
    expected[0, 2] = expected[2, 0] = True
    assert torch.equal(positives(labels), expected)
    assert torch.equal(
        members(labels).int(), torch.tensor([[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]).int()
    )


def test_the_pool_leaves_the_anchor_out() -> None:
    logits = torch.log(torch.tensor([[9.0, 1.0, 2.0], [3.0, 9.0, 4.0], [5.0, 6.0, 9.0]], dtype=torch.float64))
    torch.testing.assert_close(log_pool(logits), torch.tensor([3.0, 7.0, 11.0], dtype=torch.float64).log())


def test_info_nce_by_hand() -> None:
    logits = torch.log(torch.tensor([[9.0, 1.0, 2.0], [3.0, 9.0, 4.0], [5.0, 6.0, 9.0]], dtype=torch.float64))
    positive = torch.tensor([[False, True, True], [False, False, True], [False, False, False]])
    expected = [-(math.log(1 / 3) + math.log(2 / 3)) / 2, -math.log(4 / 7), 0.0]
    torch.testing.assert_close(info_nce(logits, positive), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("rows", [1, 3])
def test_no_positive_gives_no_loss_and_no_gradient(rows: int) -> None:
    logits = torch.randn(rows, rows, requires_grad=True)
    loss = info_nce(logits, positives(torch.arange(rows)))
    assert torch.equal(loss, torch.zeros(rows))
    loss.sum().backward()
    assert torch.equal(logits.grad, torch.zeros(rows, rows))  # type: ignore[arg-type]


def test_large_logits_stay_finite() -> None:
    logits = 1e6 * similarities(torch.randn(6, 3))
    assert torch.isfinite(info_nce(logits, positives(torch.tensor([0, 1, 2, 0, 1, 2])))).all()


def test_tightness_is_the_cosine_to_the_own_prototype() -> None:
    cosines = torch.tensor([[0.1, 0.9, -0.3], [0.5, 0.2, -0.7]])
    torch.testing.assert_close(tightness(cosines, torch.tensor([1, 2])), torch.tensor([-0.9, 0.7]))
