"""Paired tests: values worked by hand or read from printed tables of Student's t."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ssdg.bench.tables.significance import MAX_EXACT_PAIRS, compare, paired_t, sign_flips, t_inside, t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (11, 2.201), (30, 2.042), (35, 2.030)]
)
def test_quantiles_of_printed_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(0.95, freedom) == pytest.approx(quantile, abs=5e-4)
    assert t_inside(t_quantile(0.95, freedom), freedom) == pytest.approx(0.95)


def test_one_and_two_degrees_of_freedom_in_closed_form() -> None:
    assert t_inside(1, 1) == pytest.approx(0.5)  # Cauchy: 2/π · atan 1
    assert t_inside(2, 2) == pytest.approx(2 / math.sqrt(6))  # t / sqrt(2 + t²)
    assert t_inside(0, 7) == 0


def test_many_degrees_of_freedom_are_normal() -> None:
    assert t_inside(1.5, 4000) == pytest.approx(math.erf(1.5 / math.sqrt(2)), abs=1e-4)
    assert t_inside(1.5, 4001) == pytest.approx(math.erf(1.5 / math.sqrt(2)), abs=1e-4)


def test_paired_t_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, standard error 1/√3, t = 2√3, two degrees of freedom."""
    interval, p = paired_t(np.array([1.0, 2.0, 3.0]))
    t = 2 * math.sqrt(3)
    assert p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert interval == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), abs=1e-4)


def test_sign_flips_by_hand() -> None:
    """Of the eight sums of ±1 ±2 ±3 two are as far from zero as 6, and four as far as 4."""
    assert sign_flips(np.array([1.0, 2.0, 3.0])) == 2 / 8
    assert sign_flips(np.array([-1.0, 2.0, 3.0])) == 4 / 8
    assert sign_flips(np.zeros(4)) == 1


def test_drawn_signs_agree_with_all_signs() -> None:
    """Pairs that are all zero change nothing, but take the number of pairs beyond what is tried exhaustively."""
    few = np.random.default_rng(3).normal(0.5, 1, 10)
    many = np.concatenate([few, np.zeros(MAX_EXACT_PAIRS)])
    assert sign_flips(many) == pytest.approx(sign_flips(few), abs=0.01)
    assert sign_flips(many) == sign_flips(many)
    assert sign_flips(np.ones(40)) == 1 / 100_000  # the data themselves are one of the draws


def test_only_cells_that_both_have_are_compared() -> None:
    ours = {("a", 0): 5.0, ("a", 1): 7.0, ("b", 0): 9.0, ("b", 1): 90.0}
    theirs = {("a", 0): 4.0, ("a", 1): 5.0, ("b", 0): 6.0, ("c", 0): 1.0}
    comparison = compare("x", ours, "y", theirs)
    assert (comparison.num_pairs, comparison.difference, comparison.p_permutation) == (3, 2.0, 0.25)
    swapped = compare("y", theirs, "x", ours)
    assert swapped.difference == -2
    assert swapped.p_t == comparison.p_t


def test_too_few_pairs_for_a_test() -> None:
    one = compare("x", {("a", 0): 5.0}, "y", {("a", 0): 4.0})
    assert (one.num_pairs, one.difference) == (1, 1.0)
    assert one.interval is one.p_t is one.p_permutation is None
    none = compare("x", {("a", 0): 5.0}, "y", {("b", 0): 4.0})
    assert (none.num_pairs, none.difference) == (0, None)


def test_differences_that_are_all_equal() -> None:
    ours, theirs = {("a", 0): 0.3, ("a", 1): 0.4}, {("a", 0): 0.1, ("a", 1): 0.2}  # equal but for the last bits
    comparison = compare("x", ours, "y", theirs)
    assert comparison.p_t == 0
    assert comparison.interval == pytest.approx((0.2, 0.2))
    assert compare("x", ours, "y", ours).p_t == 1
