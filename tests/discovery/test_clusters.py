"""Clusters are found if there are any, and only then."""

from __future__ import annotations

import pytest
import torch

from ssdg.discovery.clusters import (
    MIN_IMAGES,
    MIN_STRENGTH,
    Clustering,
    find_clusters,
    k_means,
    number_by_size,
    pair_rate,
    prediction_strength,
    whiten,
)


def blobs(*sizes: int, far: float = 12.0, seed: int = 0) -> torch.Tensor:
    """Groups of points of 8 numbers, each group around its own corner."""
    generator = torch.Generator().manual_seed(seed)
    corners = far * torch.eye(8)
    return torch.cat([corners[n] + torch.randn(size, 8, generator=generator) for n, size in enumerate(sizes)])


def sizes(parts: Clustering) -> list[int]:
    return torch.bincount(parts.of).tolist()


@pytest.mark.parametrize("group_sizes", [(60,), (80, 60), (220, 180, 140), (200, 180, 160, 140)], ids=len)
def test_the_number_of_clusters_is_found(group_sizes: tuple[int, ...]) -> None:
    parts = find_clusters(blobs(*group_sizes), None, 0)
    assert sizes(parts) == list(group_sizes)
    assert parts.of.tolist() == [n for n, size in enumerate(group_sizes) for _ in range(size)]
    assert all(strength >= MIN_STRENGTH for strength in parts.strengths[:-1])
    assert parts.strengths[-1] < MIN_STRENGTH  # the one that was refused


def test_as_many_as_are_wanted() -> None:
    assert sizes(find_clusters(blobs(100), 1, 0)) == [100]
    assert len(sizes(find_clusters(blobs(100), 2, 0))) == 2
    assert len(sizes(find_clusters(blobs(100, 90), 4, 0))) == 4


def test_a_part_that_would_be_too_small_is_none() -> None:
    few = MIN_IMAGES - 1
    assert sizes(find_clusters(blobs(200, few), None, 0)) == [200 + few]
    assert sizes(find_clusters(blobs(few, few), 2, 0)) == [2 * few]
    assert min(sizes(find_clusters(blobs(60), 50, 0))) >= MIN_IMAGES


def test_the_same_seed_the_same_parts() -> None:
    noise = blobs(120)
    first, again, other = (find_clusters(noise, 3, seed) for seed in (7, 7, 8))
    assert torch.equal(first.of, again.of)
    assert first.strengths == again.strengths != other.strengths


def test_units_do_not_matter() -> None:
    points = blobs(70, 50)
    scaled = points * torch.tensor([1e3, 1e-3, 1, 1, 5, 1, 1, 1]) + 9
    assert torch.equal(find_clusters(scaled, None, 0).of, find_clusters(points, None, 0).of)


def test_images_that_are_all_alike_are_one_part() -> None:
    assert sizes(find_clusters(torch.ones(80, 5), None, 0)) == [80]
    assert sizes(find_clusters(torch.ones(80, 5), 3, 0)) == [80]


def test_whitened_points_have_variance_one_and_no_correlation() -> None:
    points = whiten(blobs(400) @ torch.randn(8, 8, generator=torch.Generator().manual_seed(1)), 4)
    assert points.shape == (400, 4)
    torch.testing.assert_close(points.T.cov(), torch.eye(4, dtype=torch.float64), atol=0.1, rtol=0)


def test_k_means_by_hand() -> None:
    points = torch.tensor([[0.0], [1.0], [10.0], [12.0]])
    of, centres = k_means(points, 2, 5, 0)
    assert sorted(centres.flatten().tolist()) == [0.5, 11.0]
    assert of[0] == of[1] != of[2] == of[3]


def test_strength() -> None:
    assert prediction_strength(blobs(60, 60).double(), 2, 0) == 1.0
    assert prediction_strength(blobs(120).double(), 2, 0) < MIN_STRENGTH
    assert prediction_strength(blobs(60, 60).double(), 3, 0) < MIN_STRENGTH  # one of them would be cut anywhere


def test_pairs_by_hand() -> None:
    assert pair_rate(torch.tensor([0, 0, 1])) == pytest.approx(1 / 3)
    assert pair_rate(torch.tensor([1, 1, 1])) == 1
    assert pair_rate(torch.tensor([0])) == 0


def test_the_largest_part_is_the_first() -> None:
    rows = [torch.tensor([3]), torch.tensor([1, 4]), torch.tensor([0, 2])]
    assert number_by_size(rows, 5).tolist() == [0, 1, 0, 2, 1]
