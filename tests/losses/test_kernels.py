import math
from itertools import combinations

import pytest
import torch
from torch.autograd import gradcheck

from plain_mmd import plain_mmd
from ssdg.errors import UserError
from ssdg.losses.discrepancy import gaussian_kernels, joint_mmd, mk_mmd, mmd_from_kernel

RNG = torch.Generator().manual_seed(0)
A, B = (torch.randn(n, 3, dtype=torch.float64, generator=RNG) for n in (4, 5))
C, D = (torch.randn(n, 2, dtype=torch.float64, generator=RNG).softmax(1) for n in (4, 5))
FACTORS = {1: (1,), 2: (0.5**0.5, 2**0.5), 3: (1 / 2, 1, 2), 5: (1 / 4, 1 / 2, 1, 2, 4)}
ZEROS, ONES = torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)


def gradients(value, *inputs):
    return torch.autograd.grad(value, inputs)


@pytest.mark.parametrize("m", FACTORS)
@pytest.mark.parametrize("rows", [5, 30], ids=["few", "many"])
def test_mk_mmd_and_its_gradient_equal_the_double_sums(m, rows):
    """The plain bandwidth is a number, so equal gradients show that ours is a constant too."""
    a, b = A.clone().requires_grad_(), torch.randn(rows, 3, dtype=torch.float64, generator=RNG).requires_grad_()
    expected, got = plain_mmd([(a, b)], FACTORS[m]), mk_mmd(a, b, m)
    assert got.item() == pytest.approx(expected.item(), rel=1e-10)
    torch.testing.assert_close(gradients(got, a, b), gradients(expected, a, b), rtol=1e-8, atol=1e-10)


def test_joint_mmd_and_its_gradient_equal_the_double_sums():
    inputs = [t.clone().requires_grad_() for t in (A, B, C, D)]
    a, b, c, d = inputs
    expected, got = plain_mmd([(a, b), (c, d)], FACTORS[5]), joint_mmd([(a, b), (c, d)])
    assert got.item() == pytest.approx(expected.item(), rel=1e-10)
    torch.testing.assert_close(gradients(got, *inputs), gradients(expected, *inputs), rtol=1e-8, atol=1e-10)


def test_by_hand():
    # 0, 0 and 1, 1: of 12 ordered pairs 8 have distance 1, so the mean is 2/3 and k across is exp(-3/2)
    assert mk_mmd(ZEROS, ONES, 1).item() == pytest.approx(2 - 2 * math.exp(-1.5))
    mean = (math.exp(-3) + math.exp(-1.5) + math.exp(-0.75)) / 3  # bandwidths 1/3, 2/3, 4/3
    assert mk_mmd(ZEROS, ONES, 3).item() == pytest.approx(2 - 2 * mean)
    assert joint_mmd([(ZEROS, ONES), (ONES, ZEROS)], 1).item() == pytest.approx(2 - 2 * math.exp(-3))


def test_the_estimate_is_unbiased():
    """Over all splits of one sample into two, the mean is exactly zero."""
    pool = torch.cat([A, B])
    parts = [set(rows) for rows in combinations(range(9), 4)]
    values = [mk_mmd(pool[list(rows)], pool[[i for i in range(9) if i not in rows]]) for rows in parts]
    assert sum(values).item() / len(values) == pytest.approx(0, abs=1e-12)
    assert min(values) < 0 < max(values)


def test_order_of_domains_and_rows_shift_and_scale_change_nothing():
    value = mk_mmd(A, B)
    for a, b in ((B, A), (A.flip(0), B), (A + 7, B + 7), (100 * A, 100 * B)):
        torch.testing.assert_close(mk_mmd(a, b), value)


def test_all_arguments_matter():
    values = [mk_mmd(A, B), mk_mmd(A * 2, B), mk_mmd(A, B * 2), mk_mmd(A, B, 3)]
    values += [joint_mmd([(A, B), (C, D)]), joint_mmd([(A, B), (D[:4], D)]), joint_mmd([(A, B), (C, D)], 3)]
    assert len({round(value.item(), 12) for value in values}) == 7


def test_kernel_is_one_on_the_diagonal_symmetric_and_within_0_and_1():
    kernel = gaussian_kernels(torch.cat([A, B]))
    torch.testing.assert_close(kernel.diagonal(), torch.ones(9, dtype=torch.float64))
    torch.testing.assert_close(kernel, kernel.T)
    assert ((kernel > 0) & (kernel <= 1)).all()


def test_gradient_of_the_discrepancy():
    kernel = gaussian_kernels(torch.cat([A, B])).requires_grad_()
    assert gradcheck(lambda k: mmd_from_kernel(k, 4), kernel)


EXTREMES = {
    "split": torch.tensor([[1e4, -1e4], [1e4, -1e4], [-1e4, 1e4], [-1e4, 1e4]]),
    "equal": torch.full((4, 2), 1e4),
    "one apart": torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [-1e4, 1e4]]),
}


@pytest.mark.parametrize("logits", EXTREMES.values(), ids=EXTREMES)
def test_extreme_logits_give_finite_values_and_gradients(logits):
    logits = logits.clone().requires_grad_()
    first, second = logits.chunk(2)
    value = mk_mmd(first, second) + joint_mmd([(first, second), (first.softmax(1), second.softmax(1))])
    value.backward()
    assert value.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_samples_are_refused(count):
    with pytest.raises(UserError, match=f"at least two images of each domain in a batch, not 4 and {count}"):
        mk_mmd(A, B[:count])
