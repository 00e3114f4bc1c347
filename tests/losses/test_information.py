import math

import pytest
import torch
from torch.autograd import gradcheck

from ssdg.losses.information import entropy, label_diversity

LOGITS = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LOG_2 = math.log(2)


def p_log_p(row):
    return sum(p * math.log(p) for p in row)


def test_entropy_equals_the_equation():
    expected = [-p_log_p(row) for row in LOGITS.softmax(1).tolist()]
    assert entropy(LOGITS.softmax(1)).tolist() == pytest.approx(expected, rel=1e-12)


def test_entropy_by_hand():
    probs = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert entropy(probs).tolist() == pytest.approx([1.5 * LOG_2, 0.0, LOG_2])


def test_entropy_ignores_the_order_of_classes_and_is_largest_when_uniform():
    probs = LOGITS.softmax(1)
    torch.testing.assert_close(entropy(probs), entropy(probs.flip(1)))
    assert (entropy(probs) < entropy(torch.full_like(probs, 1 / 3))).all()


def test_diversity_equals_the_equation():
    """Eq. divloss: sum_k E[p_k] log E[p_k] - E[sum_k p_k log p_k]."""
    rows = LOGITS.softmax(1).tolist()
    mean = [sum(row[k] for row in rows) / 5 for k in range(3)]
    expected = p_log_p(mean) - sum(p_log_p(row) for row in rows) / 5
    assert label_diversity(LOGITS).item() == pytest.approx(expected, rel=1e-12)


def test_diversity_by_hand():
    # p = (3/4, 1/4) and (1/4, 3/4): the mean is (1/2, 1/2), each entropy 2 log 2 - 3/4 log 3
    logits = torch.tensor([[3.0, 1.0], [1.0, 3.0]]).log()
    assert label_diversity(logits).item() == pytest.approx(LOG_2 - 0.75 * math.log(3), rel=1e-5)


def test_diversity_is_zero_for_equal_predictions_and_least_for_certain_balanced_ones():
    assert label_diversity(LOGITS[:1].expand(4, 3)).item() == pytest.approx(0, abs=1e-12)
    assert label_diversity(1e3 * torch.eye(3)).item() == pytest.approx(-math.log(3))
    assert -math.log(3) < label_diversity(LOGITS) < 0


def test_diversity_ignores_order_of_samples_and_shifts_of_logits():
    torch.testing.assert_close(label_diversity(LOGITS.flip(0) + 5), label_diversity(LOGITS))
    assert label_diversity(2 * LOGITS) != label_diversity(LOGITS)


EXTREMES = {
    "split": torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]]),
    "one class": torch.tensor([[1e4, -1e4, -1e4], [1e4, -1e4, -1e4]]),
    "equal": torch.full((2, 3), 1e4),
    "underflow": torch.tensor([[0.0, -88.0, -103.0], [0.0, -95.0, -120.0]]),
}


@pytest.mark.parametrize(
    "loss", [label_diversity, lambda z: entropy(z.softmax(1)).sum()], ids=["diversity", "entropy"]
)
@pytest.mark.parametrize("logits", EXTREMES.values(), ids=EXTREMES)
def test_extreme_logits_give_finite_values_and_gradients(loss, logits):
    logits = logits.clone().requires_grad_()
    value = loss(logits)
    value.backward()
    assert value.isfinite()
    assert logits.grad.isfinite().all()


def test_gradients():
    logits = LOGITS.clone().requires_grad_()
    assert gradcheck(label_diversity, logits)
    assert gradcheck(lambda z: entropy(z.softmax(1)), logits)


@pytest.mark.parametrize("loss", [entropy, label_diversity])
def test_empty_batch_is_refused(loss):
    with pytest.raises(ValueError, match=f"{loss.__name__} needs at least one sample"):
        loss(torch.zeros(0, 3))
