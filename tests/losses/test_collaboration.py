import pytest
import torch

from ssdg.losses.consistency import collaboration

RNG = torch.Generator().manual_seed(0)
PROBS = torch.randn(3, 5, 4, dtype=torch.float64, generator=RNG).softmax(-1)
EXPERT = torch.randn(5, 4, dtype=torch.float64, generator=RNG).softmax(-1)
DOMAIN = torch.tensor([0, 2, 1, 1, 0])


def test_equals_the_equation():
    """Zhou et al., DAEL: the squared distance between an expert and the ensemble of all others, averaged."""
    distances = []
    for i in range(5):
        others = [d for d in range(3) if d != DOMAIN[i]]
        ensemble = [sum(PROBS[d, i, k].item() for d in others) / len(others) for k in range(4)]
        distances.append(sum((ensemble[k] - EXPERT[i, k].item()) ** 2 for k in range(4)))
    assert collaboration(PROBS, EXPERT, DOMAIN).item() == pytest.approx(sum(distances) / 5, rel=1e-12)


def test_by_hand():
    probs = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]], [[0.0, 1.0]]])
    expert = torch.tensor([[1.0, 0.0]])
    assert collaboration(probs, expert, torch.tensor([0])).item() == pytest.approx(2 * 0.75**2)  # others: (1/4, 3/4)
    assert collaboration(probs, expert, torch.tensor([2])).item() == pytest.approx(2 * 0.25**2)  # others: (3/4, 1/4)


def test_zero_where_the_others_agree_and_at_most_two():
    assert collaboration(EXPERT.expand(3, -1, -1), EXPERT, DOMAIN).item() == pytest.approx(0, abs=1e-30)
    right, wrong = torch.tensor([[[0.0, 1.0]]]).expand(2, 1, 2), torch.tensor([[1.0, 0.0]])
    assert collaboration(right, wrong, torch.tensor([1])) == 2


def test_the_own_expert_on_the_compared_view_does_not_count():
    changed = PROBS.clone().requires_grad_()
    collaboration(changed, EXPERT, DOMAIN).backward()
    has_gradient = changed.grad.abs().sum(-1) > 0
    assert torch.equal(has_gradient, torch.arange(3)[:, None] != DOMAIN)


def test_every_argument_matters():
    cases = [(PROBS, EXPERT, DOMAIN), (PROBS.flip(0), EXPERT, DOMAIN), (PROBS, EXPERT.roll(1, 1), DOMAIN)]
    cases.append((PROBS, EXPERT, (DOMAIN + 1) % 3))
    assert len({round(collaboration(*args).item(), 12) for args in cases}) == 4


def test_extreme_logits():
    logits = torch.tensor([[[1e4, -1e4]], [[-1e4, 1e4]]], requires_grad=True)
    value = collaboration(logits.softmax(-1), torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    value.backward()
    assert value == 2
    assert logits.grad.isfinite().all()


def test_gradient_is_that_of_finite_differences():
    probs, expert = PROBS.clone().requires_grad_(), EXPERT.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda p, e: collaboration(p, e, DOMAIN), (probs, expert))


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="collaboration needs at least one sample"):
        collaboration(torch.zeros(2, 0, 3), torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match="at least two experts"):
        collaboration(PROBS[:1], EXPERT, torch.zeros(5, dtype=torch.long))
