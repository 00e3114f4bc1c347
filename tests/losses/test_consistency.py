import math

import pytest
import torch
from torch.autograd import gradcheck

from ssdg.losses.consistency import (
    confident_pseudo_labels,
    ema_decay,
    linear_ramp,
    masked_cross_entropy,
    mix_up,
    sharpen,
    sigmoid_ramp,
    squared_distance,
)

RNG = torch.Generator().manual_seed(0)
LOGITS, OTHER = torch.randn(2, 5, 3, dtype=torch.float64, generator=RNG)
P, Q = LOGITS.softmax(1), OTHER.softmax(1)
Y, MASK = torch.tensor([0, 2, 1, 1, 0]), torch.tensor([True, False, True, True, False])
ORDER, SHARE = torch.tensor([3, 1, 4, 0, 2]), torch.rand(5, dtype=torch.float64, generator=RNG)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_sharpen_equals_the_equation(temperature):
    """Berthelot et al. 2019: p_i^(1/T) / sum_j p_j^(1/T)."""
    for row, got in zip(P.tolist(), sharpen(P, temperature).tolist(), strict=True):
        powers = [p ** (1 / temperature) for p in row]
        assert got == pytest.approx([v / sum(powers) for v in powers], rel=1e-12)


def test_sharpen_by_hand():
    probs = torch.tensor([[0.75, 0.25], [1.0, 0.0]])
    torch.testing.assert_close(sharpen(probs, 0.5), torch.tensor([[0.9, 0.1], [1.0, 0.0]]))  # 9/16 : 1/16


def test_sharpen_keeps_rows_that_sum_to_one_and_does_nothing_at_temperature_1():
    torch.testing.assert_close(sharpen(P, 0.3).sum(1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(sharpen(P, 1.0), P)
    assert sharpen(P, 0.01).max(1).values.min() > 0.99


def test_sharpen_of_many_classes_at_a_low_temperature_is_finite():
    torch.testing.assert_close(sharpen(torch.full((2, 1000), 1e-3), 0.01), torch.full((2, 1000), 1e-3))


def test_mix_up_equals_the_equation():
    """x' = l x1 + (1 - l) x2, for soft labels and for images."""
    images = torch.rand(5, 2, 2, 2, dtype=torch.float64, generator=RNG)
    for values in (P, images):
        mixed = mix_up(values, ORDER, SHARE)
        for i in range(5):
            expected = SHARE[i] * values[i] + (1 - SHARE[i]) * values[ORDER[i]]
            torch.testing.assert_close(mixed[i], expected, rtol=1e-12, atol=1e-12)


def test_mix_up_by_hand():
    mixed = mix_up(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 0]), torch.tensor([0.75, 1.0]))
    assert mixed.tolist() == [[0.75, 0.25], [0.0, 1.0]]


def test_mix_up_of_an_image_with_itself_is_the_image_and_arguments_matter():
    torch.testing.assert_close(mix_up(P, torch.arange(5), SHARE), P)
    others = (mix_up(Q, ORDER, SHARE), mix_up(P, ORDER.flip(0), SHARE), mix_up(P, ORDER, SHARE.flip(0)))
    assert all((mix_up(P, ORDER, SHARE) - other).abs().max() > 1e-3 for other in others)


def test_confident_guess_by_hand():
    logits = torch.tensor([[0.6, 0.4], [0.05, 0.95], [0.96, 0.04]], dtype=torch.float64).log()
    y, mask = confident_pseudo_labels(logits, 0.9)
    assert y.tolist() == [0, 1, 0]
    assert mask.tolist() == [False, True, True]
    assert confident_pseudo_labels(logits, 0.955)[1].tolist() == [False, False, True]
    assert confident_pseudo_labels(torch.tensor([[1e4, -1e4]]), 1.0)[1].tolist() == [True]  # p = 1 reaches 1


def test_masked_cross_entropy_equals_the_equation():
    """Sohn et al. 2020, Eq. 4: the mean over all samples, selected or not."""
    losses = []
    for z, y, mask in zip(LOGITS.tolist(), Y.tolist(), MASK.tolist(), strict=True):
        losses.append(-math.log(math.exp(z[y]) / sum(math.exp(v) for v in z)) if mask else 0.0)
    assert masked_cross_entropy(LOGITS, Y, MASK).item() == pytest.approx(sum(losses) / 5, rel=1e-12)


def test_masked_cross_entropy_by_hand():
    logits = torch.tensor([[0.0, math.log(3)], [5.0, 5.0]])  # p = (1/4, 3/4), (1/2, 1/2)
    y = torch.tensor([1, 0])
    assert masked_cross_entropy(logits, y, torch.tensor([True, False])).item() == pytest.approx(math.log(4 / 3) / 2)
    assert masked_cross_entropy(logits, y, torch.tensor([False, False])).item() == 0


def test_masked_cross_entropy_ignores_shifts_and_what_is_not_kept():
    value = masked_cross_entropy(LOGITS, Y, MASK)
    torch.testing.assert_close(masked_cross_entropy(LOGITS + 7, Y, MASK), value)
    assert masked_cross_entropy(torch.where(MASK[:, None], LOGITS, 50 * OTHER), Y, MASK) == value
    others = [(2 * LOGITS, Y, MASK), (LOGITS, (Y + 1) % 3, MASK), (LOGITS, Y, ~MASK)]
    assert len({round(masked_cross_entropy(*args).item(), 12) for args in others} | {round(value.item(), 12)}) == 4


def test_squared_distance_equals_the_equation():
    distances = [sum((P[i, k].item() - Q[i, k].item()) ** 2 for k in range(3)) / 3 for i in range(5)]
    assert squared_distance(P, Q).item() == pytest.approx(sum(distances) / 5, rel=1e-12)


def test_squared_distance_by_hand():
    p, q = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    assert squared_distance(p, q).item() == 0.5  # (1 + 1) / 2 and 0


def test_squared_distance_is_zero_at_equality_and_symmetric():
    assert squared_distance(P, P) == 0
    assert squared_distance(P, Q) == squared_distance(Q, P) > 0
    assert squared_distance(P, Q) != squared_distance(P.flip(1), Q)


def test_ramps_by_hand():
    assert [linear_ramp(f, 0.5) for f in (0.0, 0.25, 0.5, 0.9)] == [0.0, 0.5, 1.0, 1.0]
    assert sigmoid_ramp(0.0, 0.25) == pytest.approx(math.exp(-5))
    assert sigmoid_ramp(0.1, 0.4) == pytest.approx(math.exp(-5 * 0.75**2))
    assert sigmoid_ramp(0.25, 0.25) == sigmoid_ramp(1.0, 0.25) == 1
    assert linear_ramp(0.0, 0.0) == sigmoid_ramp(0.0, 0.0) == 1  # no ramp
    assert sigmoid_ramp(0.1, 0.3) != sigmoid_ramp(0.1, 0.4)


def test_the_average_is_the_plain_mean_until_the_limit():
    weights, average = [3.0, -1.0, 4.0, 10.0], 77.0
    for step, weight in enumerate(weights):
        decay = ema_decay(step, 0.99)
        average = decay * average + (1 - decay) * weight
    assert average == pytest.approx(4.0)
    assert [ema_decay(step, 0.9) for step in (0, 1, 9, 1000)] == [0.0, 0.5, 0.9, 0.9]


LOSSES = {
    "sharpen": lambda z: sharpen(z.softmax(1), 0.5).square().sum(),
    "mix_up": lambda z: mix_up(z.softmax(1), torch.tensor([1, 0]), torch.tensor([0.3, 0.9])).square().sum(),
    "masked_cross_entropy": lambda z: masked_cross_entropy(z, torch.tensor([0, 1]), torch.tensor([True, True])),
    "squared_distance": lambda z: squared_distance(z.softmax(1), z.flip(1).softmax(1)),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("logits", [[[1e4, -1e4], [1e4, -1e4]], [[1e4, 1e4], [-1e4, -1e4]]], ids=["apart", "equal"])
def test_extreme_logits_give_finite_values_and_gradients(loss, logits):
    logits = torch.tensor(logits, requires_grad=True)
    value = loss(logits)
    value.backward()
    assert value.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_gradients(loss):
    assert gradcheck(loss, LOGITS[:2].clone().requires_grad_())


def test_empty_batches_are_refused():
    none, rows = torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)
    calls = {
        "sharpen": lambda: sharpen(none, 0.5),
        "mix_up": lambda: mix_up(none, rows, torch.zeros(0)),
        "confident_pseudo_labels": lambda: confident_pseudo_labels(none, 0.5),
        "masked_cross_entropy": lambda: masked_cross_entropy(none, rows, rows.bool()),
        "squared_distance": lambda: squared_distance(none, none),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name} needs at least one sample"):
            call()
