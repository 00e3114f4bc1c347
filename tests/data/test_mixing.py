from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import BASE, CLEAN, COLOURS, PLAIN
from ssdg.data.sets import MixedSet
from ssdg.data.streams import LabeledStream, MixedStream, box_maps, mix_batches


def mixed(mix, alpha=1.0, batch=6, any_pair=False, seed=0):
    return MixedStream(MixedSet(BASE, CLEAN, mix, alpha, any_pair), batch, seed, PLAIN)


def test_mixup_with_known_coefficients_equals_the_equation():
    a, b = LabeledStream(BASE, 4, 0, PLAIN).draw(0), LabeledStream(CLEAN, 4, 1, PLAIN).draw(0)
    alpha = [0.0, 0.25, 0.7, 1.0]
    got = mix_batches(a, b, np.float32(alpha), "mixup", 8, np.zeros((4, 2), np.float32))
    for i, weight in enumerate(alpha):
        torch.testing.assert_close(got.x[i], weight * a.x[i] + (1 - weight) * b.x[i])
        for k in range(8):
            expected = weight * (a.y[i] == k) + (1 - weight) * (b.y[i] == k)
            assert got.y[i, k].item() == pytest.approx(float(expected))


@pytest.mark.parametrize("any_pair", [False, True])
def test_mixup_mixes_images_as_it_mixes_labels(any_pair):
    for step in range(5):
        batch = mixed("mixup", any_pair=any_pair).draw(step)
        torch.testing.assert_close(batch.y.sum(1), torch.ones(6))
        torch.testing.assert_close(batch.x, (batch.y @ COLOURS)[:, None, None, None].expand(-1, 3, 4, 4))


def test_a_labeled_image_meets_a_clean_one_with_its_own_coefficient():
    batch = mixed("mixup").draw(0)
    assert ((batch.y[:, :4] > 0).sum(1) == 1).all()
    assert ((batch.y[:, 4:] > 0).sum(1) == 1).all()
    assert len(set(batch.y[:, :4].sum(1).tolist())) == 6
    assert batch.domain.tolist() == [0] * 6
    assert not batch.trusted.any()


def test_partners_and_coefficients_change_from_step_to_step():
    rows = torch.cat([mixed("mixup").draw(step).y for step in range(20)])
    assert len({tuple(pair) for pair in (rows > 0).nonzero()[:, 1].view(-1, 2).tolist()}) == 16
    assert len(set(rows[:, :4].sum(1).tolist())) == 120


@pytest.mark.parametrize("alpha", [0.25, 1.0, 8.0])
def test_coefficients_have_the_mean_and_variance_of_their_beta_distribution(alpha):
    weights = torch.cat([mixed("mixup", alpha).draw(step).y[:, :4].sum(1) for step in range(100)])
    assert weights.mean().item() == pytest.approx(1 / 2, abs=0.05)
    assert weights.var().item() == pytest.approx(1 / (8 * alpha + 4), abs=0.01)


def test_any_pair_mixes_the_union_with_one_coefficient_per_batch():
    kinds, weights = set(), set()
    for step in range(20):
        y = mixed("mixup", any_pair=True).draw(step).y
        top = y.max(1).values
        (weight,) = {round(v, 5) for v in top[top < 1].tolist()}
        weights.add(weight)
        kinds |= {tuple(sorted(k // 4 for k in row.nonzero().flatten().tolist())) for row in y}
    assert len(weights) == 20
    assert {(0, 0), (0, 1), (1, 1)} <= kinds


def test_any_pair_works_with_an_empty_clean_set():
    none = CLEAN.images.take(np.zeros(0, np.intp))
    empty = replace(CLEAN, images=none, y=CLEAN.y[:0], domain=CLEAN.domain[:0], trusted=CLEAN.trusted[:0])
    batch = MixedStream(MixedSet(BASE, empty, "mixup", 1.0, any_pair=True), 6, 0, PLAIN).draw(0)
    assert batch.y[:, 4:].sum() == 0
    assert batch.trusted.all()


def test_cutmix_pastes_a_box_and_weighs_labels_by_its_area():
    both = 0
    for step in range(10):
        batch = mixed("cutmix").draw(step)
        for x, y in zip(batch.x, batch.y, strict=True):
            for k in range(8):  # every pixel is of one of the two images; a class weighs as much as its pixels
                assert y[k].item() == pytest.approx(torch.isclose(x, COLOURS[k]).float().mean().item())
            assert y.sum().item() == pytest.approx(1)
            both += ((y[:4] > 0).any() & (y[4:] > 0).any()).item()
    assert both > 20


def test_box_by_hand():
    # a quarter of an 8x8 image around its middle: 4x4 zeros
    (weights,) = box_maps(np.float32([0.75]), np.float32([[0.5, 0.5]]), 8, 8)[:, 0]
    expected = torch.ones(8, 8)
    expected[2:6, 2:6] = 0
    assert torch.equal(weights, expected)
    # the same box around the upper left corner is cut to 2x2
    (cut,) = box_maps(np.float32([0.75]), np.float32([[0.0, 0.0]]), 8, 8)[:, 0]
    assert (cut == 0).nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    # rows first: a box in the lower left of a flat image
    (low,) = box_maps(np.float32([0.75]), np.float32([[1.0, 0.0]]), 4, 8)[:, 0]
    assert (low == 0).nonzero().tolist() == [[3, 0], [3, 1]]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_box_is_a_rectangle_of_zeros_in_ones(alpha, row, column):
    weights = box_maps(np.float32([alpha]), np.float32([[row, column]]), 6, 5)[0, 0]
    assert set(weights.unique().tolist()) <= {0.0, 1.0}
    zeros = weights == 0
    assert torch.equal(zeros, zeros.any(1)[:, None] & zeros.any(0)[None, :])
    assert zeros.any(1).int().diff().ne(0).sum() <= 2  # one stretch of rows: at most one start and one end


def test_box_covers_all_or_nothing_at_the_ends():
    middle = np.float32([[0.5, 0.5]])
    assert box_maps(np.float32([0.0]), middle, 4, 4).sum() == 0
    assert box_maps(np.float32([1.0]), middle, 4, 4).sum() == 16


def test_x_plus_u_draws_the_union_with_hard_labels():
    stream = mixed("x+u", batch=4)
    first, second = stream.draw(0), stream.draw(1)
    assert first.y.dtype == torch.long
    assert sorted(first.y.tolist() + second.y.tolist()) == list(range(8))
    torch.testing.assert_close(first.x[:, 0, 0, 0], COLOURS[first.y])
    assert torch.equal(first.trusted, first.y < 4)
