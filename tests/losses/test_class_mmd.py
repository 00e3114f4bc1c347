import math

import pytest
import torch
from torch.autograd import gradcheck

from ssdg.losses.discrepancy import class_mmd, squared_distances

Z, OTHER = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 0, 3, 1, 0])
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)


def distance(a, b):
    return sum((u - v) ** 2 for u, v in zip(a.tolist(), b.tolist(), strict=True))


def plain_class_mmd(z, other, y, widths):
    """E k(z, z) + E k(o, o) - 2 E k(z, o) of every class; the scale is the mean distance of different samples."""
    discrepancies = []
    for k in sorted(set(y.tolist())):
        a, b = z[y == k], other[y == k]
        both = [*a, *b]
        pairs = [distance(p, q) for i, p in enumerate(both) for j, q in enumerate(both) if i != j]
        scale = sum(pairs) / len(pairs)

        def mean_kernel(p, q, scale=scale):
            values = [sum(math.exp(-distance(u, v) / (w * scale)) for w in widths) for u in p for v in q]
            return sum(values) / len(values)

        discrepancies.append(mean_kernel(a, a) + mean_kernel(b, b) - 2 * mean_kernel(a, b))
    return sum(discrepancies) / len(discrepancies)


def test_equals_the_equation():
    assert class_mmd(Z, OTHER, Y).item() == pytest.approx(plain_class_mmd(Z, OTHER, Y, WIDTHS), rel=1e-12)
    assert class_mmd(Z, OTHER, Y, (0.7,)).item() == pytest.approx(plain_class_mmd(Z, OTHER, Y, (0.7,)), rel=1e-12)


def test_by_hand():
    # one class of one sample: the only distance is the scale itself, so 1 + 1 - 2 exp(-1)
    value = class_mmd(torch.tensor([[0.0]]), torch.tensor([[3.0]]), torch.tensor([5]), (1.0,))
    assert value.item() == pytest.approx(2 - 2 / math.e)


def test_zero_at_equality_symmetric_and_blind_to_shifts_turns_and_order():
    assert class_mmd(Z, Z, Y).item() == pytest.approx(0, abs=1e-12)
    value = class_mmd(Z, OTHER, Y)
    assert value > 0
    torch.testing.assert_close(class_mmd(OTHER, Z, Y), value)
    torch.testing.assert_close(class_mmd(3 * Z + 5, 3 * OTHER + 5, Y), value)
    torch.testing.assert_close(class_mmd(Z.flip(1), OTHER.flip(1), Y), value)
    torch.testing.assert_close(class_mmd(Z.flip(0), OTHER.flip(0), 9 - Y.flip(0)), value)


def test_exchanging_samples_within_a_class_changes_nothing_but_between_classes_does():
    assert class_mmd(Z, Z[[2, 4, 5, 3, 1, 0]], Y).item() == pytest.approx(0, abs=1e-12)
    assert class_mmd(Z, Z[[1, 0, 2, 3, 4, 5]], Y) > 0.01


def test_every_argument_matters():
    cases = [(Z, OTHER, Y), (2 * Z, OTHER, Y), (Z, 2 * OTHER, Y), (Z, OTHER, Y.roll(1)), (Z, OTHER, Y, (1.0,))]
    assert len({class_mmd(*args).item() for args in cases}) == 5


@pytest.mark.parametrize("size", [1e4, 0.0])
def test_extremes_give_finite_values_and_gradients(size):
    z = torch.tensor([[size, -size], [-size, size], [size, size]], requires_grad=True)
    value = class_mmd(z, z.flip(0) / 2, torch.tensor([0, 1, 0]))
    value.backward()
    assert value.isfinite()
    assert z.grad.isfinite().all()


def test_gradients():
    """The scale takes no gradient: the derivative is that of kernels whose widths are numbers."""
    scale = plain_scale(Z, OTHER)
    fixed = [w * scale for w in (0.5, 2.0)]
    z = Z.clone().requires_grad_()
    one = torch.zeros(6, dtype=torch.long)
    (got,) = torch.autograd.grad(class_mmd(z, OTHER, one, (0.5, 2.0)), z)
    (expected,) = torch.autograd.grad(kernels_of(z, OTHER, fixed), z)
    torch.testing.assert_close(got, expected)
    assert gradcheck(lambda r: squared_distances(r) + torch.eye(6), z)


def plain_scale(z, other):
    both = [*z, *other]
    return sum(distance(p, q) for p in both for q in both) / (12 * 11)


def kernels_of(z, other, scales):
    def mean(a, b):
        d = (a[:, None] - b[None]).square().sum(2)
        return sum((-d / s).exp() for s in scales).mean()

    return mean(z, z) + mean(other, other) - 2 * mean(z, other)


def test_empty_batch_is_refused():
    with pytest.raises(ValueError, match="class_mmd needs at least one sample"):
        class_mmd(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0))
