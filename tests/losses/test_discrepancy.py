import pytest
import torch

from ssdg.losses.discrepancy import l1_discrepancy

P, Q = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)


def test_equals_the_equation():
    """Saito et al. 2018: d = 1/K sum_k |p_k - q_k|, the expectation over samples."""
    distances = [sum(abs(P[i, k].item() - Q[i, k].item()) for k in range(3)) / 3 for i in range(4)]
    assert l1_discrepancy(P, Q).item() == pytest.approx(sum(distances) / 4, rel=1e-12)


def test_by_hand():
    assert l1_discrepancy(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])) == 1.0  # (|1-0| + |0-1|) / 2
    p, q = torch.tensor([[0.5, 0.25, 0.25], [1, 0, 0]]), torch.tensor([[0.25, 0.5, 0.25], [1, 0, 0]])
    assert l1_discrepancy(p, q).item() == pytest.approx(0.5 / 3 / 2)


def test_zero_at_equality_symmetric_and_at_most_2_over_k():
    assert l1_discrepancy(P, P) == 0
    assert l1_discrepancy(P, Q) == l1_discrepancy(Q, P) > 0
    assert l1_discrepancy(torch.eye(3), torch.eye(3).roll(1, 0)).item() == pytest.approx(2 / 3)


def test_both_arguments_matter():
    values = {l1_discrepancy(a, b).item() for a, b in ((P, Q), (P.flip(1), Q), (P, Q.roll(1, 1)))}
    assert len(values) == 3


def test_extreme_logits():
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    value = l1_discrepancy(logits.softmax(-1), logits.flip(1).softmax(-1))
    value.backward()
    assert value == 1
    assert logits.grad.isfinite().all()


def test_empty_batch_is_refused():
    with pytest.raises(ValueError, match="l1_discrepancy needs at least one sample"):
        l1_discrepancy(torch.zeros(0, 3), torch.zeros(0, 3))
