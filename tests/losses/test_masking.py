"""Masks of RSC against loops."""

import pytest
import torch

from ssdg.losses.gradients import channel_mask, largest_drops, mask_largest, num_masked, spatial_mask

MAPS, GRADS = torch.randn(2, 4, 5, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
ROWS = range(4)


def lowest(scores, count):
    """True for every score except the `count` largest."""
    largest = sorted(range(len(scores)), key=lambda i: -scores[i])[:count]
    return [i not in largest for i in range(len(scores))]


def test_positions_are_masked_by_what_they_add_to_the_score():
    """Each of 9 positions adds the sum over channels of activation times gradient; 3 of 9 are masked."""
    for i in ROWS:
        adds = [
            sum(MAPS[i, c, h, w].item() * GRADS[i, c, h, w].item() for c in range(5))
            for h in range(3)
            for w in range(3)
        ]
        assert spatial_mask(MAPS, GRADS, 1 / 3)[i].flatten().tolist() == lowest(adds, 3)


def test_channels_are_masked_by_their_mean_gradient():
    """Huang et al. 2020: gradients pooled over positions; 2 of 5 channels are masked (the nearest to 5/3)."""
    for i in ROWS:
        means = [sum(GRADS[i, c].flatten().tolist()) / 9 for c in range(5)]
        assert channel_mask(GRADS, 1 / 3)[i].flatten().tolist() == lowest(means, 2)


def test_by_hand():
    maps = torch.tensor([[[[1.0, 2.0]], [[3.0, 0.0]]]])  # two channels, two positions
    grads = torch.tensor([[[[1.0, 1.0]], [[2.0, 2.0]]]])
    # position 0 adds 1·1 + 3·2 = 7, position 1 adds 2·1 + 0·2 = 2; the mean gradients are 1 and 2
    assert spatial_mask(maps, grads, 0.5).tolist() == [[[[False, True]]]]
    assert channel_mask(grads, 0.5).tolist() == [[[[True]], [[False]]]]
    is_hit = largest_drops(torch.tensor([0.9, 0.8, 0.3]), torch.tensor([0.5, 0.1, 0.4]), 1 / 3)
    assert is_hit.tolist() == [False, True, False]  # 0.4, 0.7, -0.1


def test_counts_are_the_nearest_and_leave_one():
    assert [num_masked(n, 1 / 3) for n in (1, 2, 4, 49, 64, 512)] == [0, 1, 1, 16, 21, 171]
    assert num_masked(4, 0.99) == 3
    assert num_masked(4, 0.01) == 1


def test_positions_differ_although_a_mean_gives_them_one_gradient():
    flat = GRADS.mean((2, 3), keepdim=True).expand_as(GRADS)
    mask = spatial_mask(MAPS, flat, 1 / 3)
    assert (mask.sum((1, 2, 3)) == 6).all()
    assert mask.any(0).all()  # not always the same positions


def test_positive_scaling_and_a_shift_of_gradients_over_channels_change_nothing():
    assert torch.equal(spatial_mask(MAPS, 3 * GRADS, 0.4), spatial_mask(MAPS, GRADS, 0.4))
    assert torch.equal(channel_mask(3 * GRADS + 2, 0.4), channel_mask(GRADS, 0.4))


def test_every_argument_matters():
    masks = [spatial_mask(MAPS, GRADS, 1 / 3), spatial_mask(-MAPS, GRADS, 1 / 3), spatial_mask(MAPS, GRADS, 0.6)]
    masks.append(spatial_mask(MAPS, GRADS.flip(0), 1 / 3))
    assert len({tuple(m.flatten().tolist()) for m in masks}) == 4
    assert not torch.equal(channel_mask(GRADS, 0.2), channel_mask(GRADS, 0.6))
    p, q = torch.tensor([0.9, 0.8, 0.3]), torch.tensor([0.5, 0.1, 0.4])
    assert {tuple(largest_drops(*a).tolist()) for a in ((p, q, 0.3), (p, q, 0.6), (q, p, 0.3))} == {
        (False, True, False),
        (True, True, False),
        (False, False, True),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extremes_give_masks_of_the_right_size(dtype):
    maps = torch.tensor([1e4, -1e4, 1e4, -1e4]).view(1, 1, 2, 2).expand(3, 2, 2, 2).to(dtype)
    assert (spatial_mask(maps, maps, 0.5).sum((1, 2, 3)) == 2).all()  # equal scores are masked at the same rate
    assert (channel_mask(maps, 0.5).sum((1, 2, 3)) == 1).all()
    assert largest_drops(torch.ones(3), torch.ones(3), 1 / 3).sum() == 1


def test_no_gradient_flows_into_a_mask():
    maps = MAPS.clone().requires_grad_()
    assert not spatial_mask(maps, maps, 0.5).requires_grad
    assert not mask_largest(maps.flatten(1), 0.5).requires_grad


@pytest.mark.parametrize(
    "mask", [lambda m: spatial_mask(m, m, 0.5), lambda m: channel_mask(m, 0.5), lambda m: largest_drops(m, m, 0.5)]
)
def test_empty_batch_is_refused(mask):
    with pytest.raises(ValueError, match="needs at least one sample"):
        mask(torch.zeros(0, 2, 2, 2))
