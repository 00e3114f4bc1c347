"""Randomized views: every operation by hand, and that a view depends on its image and its seed only."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ssdg.data.views import (
    AFFINE,
    KEEP,
    KERNEL_SIZE,
    KERNEL_SIZES,
    NUM_UNIFORM,
    PHOTO,
    UNMIRRORED,
    affine,
    affine_matrices,
    draw,
    edges,
    jitter,
    jitter_strengths,
    kernel_sizes,
    random_convolution,
    randomized_view,
    view_kind,
    view_seeds,
)
from ssdg.seeds import torch_rng

INDICES = (1, 2, 3, 4)
CENTERED = (0.9, 0.5, 1.0, 0.5, 0.5, 0.5)  # not mirrored, and nothing else either


def photos(num: int, side: int = 24) -> Tensor:
    """Different uint8 images."""
    return torch.randint(0, 256, (num, side, side, 3), dtype=torch.uint8, generator=torch_rng("photos"))


def floats(num: int, height: int = 12, width: int = 12) -> Tensor:
    """Different images in [0, 1)."""
    return torch.rand(num, 3, height, width, generator=torch_rng("floats"))


def solid(*color: float, height: int = 4, width: int = 4) -> Tensor:
    """One image of a single color."""
    return torch.tensor(color).view(1, 3, 1, 1).expand(1, 3, height, width).clone()


def matrix(**changes: float) -> Tensor:
    """The map of one sample whose uniform numbers are neutral but for these."""
    names = ("mirror", "rotation", "scale", "shear", "right", "down")
    values = dict(zip(names, CENTERED, strict=True)) | changes
    return affine_matrices(torch.tensor([list(values.values())]), PHOTO)[0]


def test_draws_have_the_documented_shapes_and_ranges() -> None:
    draws = draw(range(500))
    assert draws.uniform.shape == (500, NUM_UNIFORM)
    assert draws.normal.shape == (500, 3, 3, 7, 7)
    assert draws.uniform.dtype == draws.normal.dtype == torch.float32
    assert 0 <= draws.uniform.min() < 0.01
    assert 0.99 < draws.uniform.max() < 1
    assert draws.normal.mean().item() == pytest.approx(0, abs=0.02)
    assert draws.normal.std().item() == pytest.approx(1, abs=0.02)


def test_draws_of_a_sample_depend_on_its_seed_only() -> None:
    together, alone = draw([3, 1, 4]), draw([4])
    assert torch.equal(together.uniform[2:], alone.uniform)
    assert torch.equal(together.normal[2:], alone.normal)
    assert not torch.equal(together.uniform[0], together.uniform[1])


def test_drawing_for_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one seed"):
        draw([])


def test_view_seeds_depend_on_the_digest_and_the_index_only() -> None:
    digest = np.random.default_rng(0).integers(0, 256, (50, 16), np.uint8)
    first, second = view_seeds(digest, 1), view_seeds(digest, 2)
    assert len({*first, *second}) == 100
    assert all(0 <= seed < 2**63 for seed in first + second)
    assert view_seeds(digest[7:9], 1) == first[7:9]


@pytest.mark.parametrize("digest", [np.zeros((2, 8), np.uint8), np.zeros(16, np.uint8), np.zeros((2, 16), np.int64)])
def test_digests_of_another_shape_or_type_are_rejected(digest: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"expected uint8 digests \(B, 16\)"):
        view_seeds(digest, 1)


def test_view_kinds_cycle() -> None:
    assert [view_kind(index) for index in range(1, 6)] == ["affine", "convolution", "convolution", "edges", "affine"]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        view_kind(0)


def test_identity_map_changes_nothing() -> None:
    x = floats(3, 11, 14)
    torch.testing.assert_close(affine(x, torch.eye(2, 3).repeat(3, 1, 1)), x, atol=1e-5, rtol=0)


def test_shift_by_one_pixel_repeats_the_edge() -> None:
    x = torch.arange(4.0).view(1, 1, 1, 4).repeat(1, 3, 2, 1) / 4
    one_right = torch.tensor([[[1, 0, 2 / 4], [0, 1, 0]]])  # a pixel is 2 / 4 wide in [-1, 1]
    expected = torch.tensor([0.25, 0.5, 0.75, 0.75])
    torch.testing.assert_close(affine(x, one_right), expected.expand(1, 3, 2, 4))


def test_each_image_has_a_separate_map() -> None:
    x = floats(2)
    maps = torch.stack([torch.eye(2, 3), torch.diag(torch.tensor([-1.0, 1.0, 0.0]))[:2]])
    warped = affine(x, maps)
    torch.testing.assert_close(warped[0], x[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(warped[1], x[1].flip(2), atol=1e-5, rtol=0)


def test_affine_stays_in_range() -> None:
    matrices = affine_matrices(draw(range(50)).uniform[:, AFFINE], PHOTO)
    warped = affine(floats(50), matrices)
    assert warped.min() >= 0
    assert warped.max() <= 1


def test_neutral_numbers_give_the_identity_map() -> None:
    torch.testing.assert_close(matrix(), torch.eye(2, 3))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("mirror", 0.1, [[-1, 0, 0], [0, 1, 0]]),
        ("scale", 0.0, [[0.75, 0, 0], [0, 0.75, 0]]),
        ("shear", 1.0, [[1, 0.1, 0], [0, 1, 0]]),
        ("right", 1.0, [[1, 0, 0.2], [0, 1, 0]]),  # a tenth of the side, which is 2 long
        ("down", 0.0, [[1, 0, 0], [0, 1, -0.2]]),
    ],
)
def test_map_by_hand(name: str, value: float, expected: list[list[float]]) -> None:
    torch.testing.assert_close(matrix(**{name: value}), torch.tensor(expected, dtype=torch.float32))


def test_largest_rotation_is_15_degrees() -> None:
    cos, sin = math.cos(math.radians(15)), math.sin(math.radians(15))
    torch.testing.assert_close(matrix(rotation=1.0), torch.tensor([[cos, -sin, 0], [sin, cos, 0]]))


def test_combined_map_is_the_product_of_its_parts() -> None:
    def square(**changes: float) -> Tensor:
        return matrix(**changes)[:, :2]

    combined = matrix(mirror=0.1, rotation=0.8, scale=0.3, shear=0.9, right=0.2, down=0.7)
    parts = square(scale=0.3) @ square(rotation=0.8) @ square(shear=0.9) @ square(mirror=0.1)
    torch.testing.assert_close(combined[:, :2], parts)
    shift = torch.tensor([-0.12, 0.08])  # 0.2 * (2 * 0.2 - 1) and 0.2 * (2 * 0.7 - 1)
    torch.testing.assert_close(combined[:, 2], shift)


def test_half_of_the_samples_are_mirrored() -> None:
    uniform = draw(range(2000)).uniform[:, AFFINE]
    is_mirrored = affine_matrices(uniform, PHOTO).select(2, 0)[:, 0] < 0
    assert 0.46 < is_mirrored.float().mean() < 0.54
    assert (affine_matrices(uniform, UNMIRRORED).select(2, 0)[:, 0] > 0).all()


def no_jitter(num: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ones(num), torch.zeros(num, 3), torch.zeros(num, dtype=torch.bool)


def test_no_jitter_changes_nothing() -> None:
    x = floats(3)
    assert torch.equal(jitter(x, *no_jitter(3)), x)


def test_gray_is_the_mean_of_the_channels() -> None:
    contrast, brightness, _ = no_jitter(2)
    x = solid(0.1, 0.2, 0.9).repeat(2, 1, 1, 1)
    gray = jitter(x, contrast, brightness, torch.tensor([True, False]))
    torch.testing.assert_close(gray[:1], solid(0.4, 0.4, 0.4))
    assert torch.equal(gray[1], x[1])


def test_contrast_scales_around_the_mean_of_the_image() -> None:
    x = torch.tensor([0.2, 0.6]).expand(2, 3, 1, 2)  # mean 0.4
    _, brightness, is_gray = no_jitter(2)
    scaled = jitter(x, torch.tensor([0.5, 1.5]), brightness, is_gray)
    torch.testing.assert_close(scaled[:, 0, 0], torch.tensor([[0.3, 0.5], [0.1, 0.7]]))


def test_brightness_is_added_per_channel_and_clamped() -> None:
    contrast, _, is_gray = no_jitter(1)
    bright = jitter(solid(0.5, 0.1, 0.9), contrast, torch.tensor([[0.2, -0.2, 0.2]]), is_gray)
    torch.testing.assert_close(bright, solid(0.7, 0.0, 1.0))


def test_jitter_stays_in_range() -> None:
    jittered = jitter(floats(100), *jitter_strengths(draw(range(100)).uniform))
    assert jittered.min() == 0
    assert jittered.max() == 1


def test_jitter_strengths_cover_their_ranges() -> None:
    contrast, brightness, is_gray = jitter_strengths(draw(range(2000)).uniform)
    assert 0.5 <= contrast.min() < 0.51
    assert 1.49 < contrast.max() < 1.5
    assert -0.2 <= brightness.min() < -0.199
    assert 0.199 < brightness.max() < 0.2
    assert 0.27 < is_gray.float().mean() < 0.33


def convolution_by_loops(x: Tensor, size: Tensor, weight: Tensor, keep: Tensor) -> np.ndarray:
    """The mix in float64, one pixel at a time."""
    y = 2 * x.double().numpy() - 1
    out = np.zeros_like(y)
    num, _, height, width = y.shape
    for i, channel, row, column in np.ndindex(num, 3, height, width):
        radius = int(size[i]) // 2
        total = 0.0
        for source in range(3):
            for dy in range(-radius, radius + 1):
                for dx in range(-radius, radius + 1):
                    if 0 <= row + dy < height and 0 <= column + dx < width:
                        factor = float(weight[i, channel, source, 3 + dy, 3 + dx]) / math.sqrt(3 * int(size[i]) ** 2)
                        total += factor * y[i, source, row + dy, column + dx]
        share = float(keep[i])
        out[i, channel, row, column] = (share * y[i, channel, row, column] + (1 - share) * total + 1) / 2
    return out


def test_convolution_equals_loops() -> None:
    x, draws = floats(6, 5, 8), draw(range(6))
    size, keep = torch.tensor([7, 1, 3, 5, 3, 1]), torch.tensor([0.0, 0.3, 0.9, 0.1, 0.5, 0.0])
    expected = convolution_by_loops(x, size, draws.normal, keep)
    torch.testing.assert_close(
        random_convolution(x, size, draws.normal, keep).double(), torch.from_numpy(expected), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("size", KERNEL_SIZES)
def test_keeping_all_of_the_image_changes_nothing(size: int) -> None:
    x = floats(2)
    kept = random_convolution(x, torch.full((2,), size), draw(range(2)).normal, torch.ones(2))
    torch.testing.assert_close(kept, x, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (0.0, (1.0, 0.0, 0.5)),  # channels (1, -1, 0.5) of y, from -1 to 1; the kernel maps them to (1, -1, 0)
        (0.5, (1.0, 0.0, 0.625)),
    ],
)
def test_convolution_with_a_kernel_of_one_pixel_by_hand(keep: float, expected: tuple[float, float, float]) -> None:
    weight = torch.full((1, 3, 3, 7, 7), 100.0)  # only the center counts
    weight[0, :, :, 3, 3] = math.sqrt(3) * torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.5, 0.5, 0]])
    x = solid(1.0, 0.0, 0.75)
    mixed = random_convolution(x, torch.tensor([1]), weight, torch.tensor([keep]))
    torch.testing.assert_close(mixed, solid(*expected))


def test_convolution_is_not_clamped() -> None:
    weight = torch.full((1, 3, 3, 7, 7), math.sqrt(3))
    mixed = random_convolution(solid(1.0, 1.0, 1.0), torch.tensor([1]), weight, torch.zeros(1))
    torch.testing.assert_close(mixed, solid(2.0, 2.0, 2.0))  # white is 1, summed over three channels, (3 + 1) / 2


def test_unknown_kernel_size_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"among \(1, 3, 5, 7\), got \[1, 4\]"):
        random_convolution(floats(2), torch.tensor([1, 4]), draw(range(2)).normal, torch.zeros(2))


def test_kernel_sizes_are_equally_likely() -> None:
    sizes = kernel_sizes(draw(range(2000)).uniform[:, KERNEL_SIZE])
    for size in KERNEL_SIZES:
        assert 0.21 < (sizes == size).float().mean() < 0.29


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_constant_image_has_no_edges(level: float) -> None:
    white = solid(1.0, 1.0, 1.0, height=8, width=8)
    torch.testing.assert_close(edges(level * white), white, atol=1e-3, rtol=0)


def test_step_has_an_edge_by_hand() -> None:
    x = torch.zeros(1, 3, 5, 8)
    x[..., 4:] = 0.6
    # Smoothed rows are 0 0 0 .2 .4 .6 .6 .6; differences over two pixels 0 0 .2 .4 .4 .2 0 0, half of the largest .2.
    expected = torch.tensor([1.0, 1, 0, 0, 0, 0, 1, 1])
    torch.testing.assert_close(edges(x), expected.expand(1, 3, 5, 8), atol=1e-5, rtol=0)


def test_edges_are_gray_in_range_and_relative_to_the_image() -> None:
    x = floats(4)
    drawn = edges(x)
    assert torch.equal(drawn[:, :1].expand_as(drawn), drawn)
    assert drawn.amin((1, 2, 3)).tolist() == [0, 0, 0, 0]
    assert drawn.max() <= 1
    torch.testing.assert_close(edges(0.3 * x), drawn, atol=1e-4, rtol=0)


@pytest.mark.parametrize("index", INDICES)
def test_view_is_float_channels_last_and_leaves_its_input_alone(index: int) -> None:
    x = photos(5)
    before = x.clone()
    view = randomized_view(x, index, range(5), PHOTO)
    assert view.shape == (5, 3, 24, 24)
    assert view.dtype == torch.float32
    assert view.is_contiguous(memory_format=torch.channels_last)
    assert torch.isfinite(view).all()
    assert torch.equal(x, before)
    if view_kind(index) != "convolution":
        assert view.min() >= 0
        assert view.max() <= 1


@pytest.mark.parametrize("side", [24, 33, 64])
@pytest.mark.parametrize("index", INDICES)
def test_view_depends_neither_on_neighbors_nor_on_the_batch_size(index: int, side: int) -> None:
    x, seeds = photos(5, side), [11, 12, 13, 14, 15]
    together = randomized_view(x, index, seeds, PHOTO)
    alone = torch.cat([randomized_view(x[i : i + 1], index, seeds[i : i + 1], PHOTO) for i in range(5)])
    others = randomized_view(torch.cat([255 - x[:2], x[2:]]), index, [1, 2, *seeds[2:]], PHOTO)
    torch.testing.assert_close(alone, together, atol=1e-6, rtol=0)  # sums may be rounded differently
    torch.testing.assert_close(others[2:], together[2:], atol=1e-6, rtol=0)


@pytest.mark.parametrize("index", INDICES)
def test_same_seed_gives_the_same_view_and_another_seed_another(index: int) -> None:
    x = photos(1).repeat(3, 1, 1, 1)
    first, same, other = randomized_view(x, index, [5, 5, 6], PHOTO)
    torch.testing.assert_close(first, same, atol=1e-6, rtol=0)
    assert (first - other).abs().mean() > 0.01


def test_every_index_gives_another_view() -> None:
    x, digest = photos(1), np.arange(16, dtype=np.uint8)[None]
    views = [randomized_view(x, index, view_seeds(digest, index), PHOTO) for index in range(1, 9)]
    assert len(torch.unique(torch.cat(views).flatten(1), dim=0)) == 8


def bright_side(side: int = 16) -> Tensor:
    """An image whose left half is white and whose right half is black."""
    x = torch.zeros(200, side, side, 3, dtype=torch.uint8)
    x[:, :, : side // 2] = 255
    return x


@pytest.mark.parametrize("mirror", [False, True])
def test_view_is_mirrored_only_if_asked(mirror: bool) -> None:
    view = randomized_view(bright_side(), 1, range(200), PHOTO if mirror else UNMIRRORED)
    mirrored = (view[..., 8:].mean((1, 2, 3)) > view[..., :8].mean((1, 2, 3))).float().mean()
    assert 0.4 < mirrored < 0.6 if mirror else mirrored == 0


def test_views_combine_the_operations_in_order() -> None:
    x, seeds = photos(4), [1, 2, 3, 4]
    draws = draw(seeds)
    floating = x.permute(0, 3, 1, 2) / 255
    matrices = affine_matrices(draws.uniform[:, AFFINE], UNMIRRORED)
    warped = affine(jitter(floating, *jitter_strengths(draws.uniform)), matrices)
    convolved = random_convolution(
        warped, kernel_sizes(draws.uniform[:, KERNEL_SIZE]), draws.normal, draws.uniform[:, KEEP]
    )
    for index, expected in ((1, warped), (2, convolved), (3, convolved), (4, edges(affine(floating, matrices)))):
        view = randomized_view(x, index, seeds, UNMIRRORED)
        torch.testing.assert_close(view, expected, atol=1e-5, rtol=0, check_stride=False)


def test_empty_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one uint8 image"):
        randomized_view(photos(0), 1, [], PHOTO)


def test_number_of_seeds_must_match_the_batch() -> None:
    with pytest.raises(ValueError, match="got 2 seeds for 3 images"):
        randomized_view(photos(3), 1, [1, 2], PHOTO)
