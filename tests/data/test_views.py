"""Randomized views: every operation by hand, and that a view depends on its image and its seed only."""

import math
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from ssdg.data.augment import to_float
from ssdg.data.sets import AugmentKind
from ssdg.data.views import (
    AFFINE,
    BRIGHTNESS,
    CHARACTERS,
    KEEP,
    KERNEL_SIZE,
    KERNEL_SIZES,
    NUM_UNIFORM,
    PHOTO,
    RANDOMIZED,
    RECIPES,
    UNMIRRORED,
    Draws,
    Recipe,
    ViewKind,
    _smooth,
    affine,
    affine_matrices,
    apply_recipe,
    blur,
    draw,
    edges,
    jitter,
    jitter_strengths,
    kernel_sizes,
    lines,
    random_convolution,
    random_views,
    randomized_view,
    view_kind,
    view_seeds,
)
from ssdg.seeds import torch_rng

INDICES = (1, 2, 3, 4, 5)
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
    kinds = ["affine", "convolution", "convolution", "edges", "lines", "affine"]
    assert [view_kind(index) for index in range(1, 7)] == kinds
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


def rounding(index: int) -> float:
    """Differences of sums that are rounded in another order; line drawings amplify them."""
    return 1e-5 if view_kind(index) == "lines" else 1e-6


@pytest.mark.parametrize("side", [24, 33, 64])
@pytest.mark.parametrize("index", INDICES)
def test_view_depends_neither_on_neighbors_nor_on_the_batch_size(index: int, side: int) -> None:
    x, seeds = photos(5, side), [11, 12, 13, 14, 15]
    together = randomized_view(x, index, seeds, PHOTO)
    alone = torch.cat([randomized_view(x[i : i + 1], index, seeds[i : i + 1], PHOTO) for i in range(5)])
    others = randomized_view(torch.cat([255 - x[:2], x[2:]]), index, [1, 2, *seeds[2:]], PHOTO)
    torch.testing.assert_close(alone, together, atol=rounding(index), rtol=0)
    torch.testing.assert_close(others[2:], together[2:], atol=rounding(index), rtol=0)


@pytest.mark.parametrize("index", INDICES)
def test_same_seed_gives_the_same_view_and_another_seed_another(index: int) -> None:
    x = photos(1).repeat(3, 1, 1, 1)
    first, same, other = randomized_view(x, index, [5, 5, 6], PHOTO)
    torch.testing.assert_close(first, same, atol=rounding(index), rtol=0)
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


def a_recipe(**changes: Any) -> Recipe:
    """A recipe that changes nothing but what is given here."""
    nothing = Recipe(
        kinds=("affine",),
        view_rate=1.0,
        mirror=False,
        gray_rate=0.0,
        contrast=0.0,
        brightness=0.0,
        rotation=0.0,
        min_scale=1.0,
        shear=0.0,
        shift=0.0,
    )
    return replace(nothing, **changes)


def views_of(x: Tensor, recipe: Recipe, seed: object = 0, rate: float | None = None) -> Tensor:
    return random_views(x, recipe, torch_rng("views", seed), rate=rate)


def plain(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2) / 255


def is_changed(views: Tensor, x: Tensor) -> Tensor:
    """Which views differ from their images: (B,)."""
    return (views - plain(x)).abs().amax((1, 2, 3)) > 1e-3


def test_recipe_without_any_strength_gives_the_plain_image() -> None:
    x = photos(20)
    torch.testing.assert_close(views_of(x, a_recipe()), plain(x), atol=2e-5, rtol=0)


STRENGTHS = {
    "mirror": True,
    "invert_rate": 1.0,
    "gray_rate": 1.0,
    "contrast": 0.5,
    "brightness": 0.2,
    "rotation": 0.2,
    "min_scale": 0.7,
    "max_scale": 1.3,
    "shear": 0.2,
    "shift": 0.1,
    "kinds": ("convolution", "edges"),
}


def test_every_setting_of_a_recipe_changes_images() -> None:
    assert {*STRENGTHS} == {field.name for field in fields(Recipe)} - {"view_rate"}
    x = photos(40)
    for name, value in STRENGTHS.items():
        share = is_changed(views_of(x, a_recipe(**{name: value})), x).float().mean()
        assert 0.2 < share < 0.8 if name == "mirror" else share > 0.9, name  # a strength drawn may be near zero


@pytest.mark.parametrize("recipe", [PHOTO, UNMIRRORED, CHARACTERS])
def test_maps_of_a_recipe_stay_in_their_ranges(recipe: Recipe) -> None:
    maps = affine_matrices(draw(range(3000)).uniform[:, AFFINE], recipe).double()
    area = torch.linalg.det(maps[:, :, :2]).abs().sqrt()  # neither rotation nor shear changes an area
    assert recipe.min_scale - 1e-6 <= area.min() < recipe.min_scale + 0.01
    assert recipe.max_scale - 0.01 < area.max() <= recipe.max_scale + 1e-6
    shift = maps[:, :, 2] / 2  # in sides, which are 2 long
    assert recipe.shift - 0.002 < shift.abs().max() <= recipe.shift + 1e-6
    angle = torch.atan2(maps[:, 1, 0], maps[:, 0, 0])[maps[:, 0, 0] > 0]
    assert recipe.rotation - 0.002 < angle.abs().max() <= recipe.rotation + 1e-6


@pytest.mark.parametrize(("recipe", "slope"), [(PHOTO, 0.1), (CHARACTERS, 0.2)])
def test_shear_stays_in_its_range(recipe: Recipe, slope: float) -> None:
    maps = affine_matrices(draw(range(3000)).uniform[:, AFFINE], replace(recipe, rotation=0.0, mirror=False))
    shear = maps[:, 0, 1] / maps[:, 1, 1]
    assert slope - 0.002 < shear.abs().max() <= slope + 1e-6


def test_strengths_of_characters_stay_in_their_ranges() -> None:
    contrast, brightness, is_gray = jitter_strengths(draw(range(2000)).uniform, CHARACTERS)
    assert 0.4 - 1e-6 <= contrast.min() < 0.41
    assert 1.59 < contrast.max() <= 1.6
    assert 0.299 < brightness.abs().max() <= 0.3
    assert not is_gray.any()


def test_region_beyond_the_border_repeats_the_edge() -> None:
    """A scale above 1 shows more than the image; characters may be scaled so."""
    x = photos(1, 12)
    view = views_of(x, a_recipe(min_scale=2.0, max_scale=2.0))[0]
    assert torch.equal(view[:, :3, :3], plain(x)[0, :, :1, :1].expand(3, 3, 3))  # half of the view is beyond it


def test_inversion_is_one_minus_the_image() -> None:
    x = photos(10)
    torch.testing.assert_close(views_of(x, a_recipe(invert_rate=1.0)), 1 - plain(x), atol=2e-5, rtol=0)


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_inversion_happens_at_its_rate(rate: float) -> None:
    x = torch.full((2000, 4, 4, 3), 51, dtype=torch.uint8)  # 0.2, inverted 0.8
    views = views_of(x, a_recipe(invert_rate=rate))
    is_inverted = views[:, 0, 0, 0] > 0.5
    assert is_inverted.float().mean().item() == pytest.approx(rate, abs=0.04)  # over three standard deviations
    torch.testing.assert_close(views[is_inverted], torch.full_like(views[is_inverted], 0.8))


def test_edges_are_not_inverted() -> None:
    x = photos(4)
    recipe = a_recipe(kinds=("edges",))
    assert torch.equal(views_of(x, recipe), views_of(x, replace(recipe, invert_rate=1.0)))


@pytest.mark.parametrize("kind", ["affine", "edges", "convolution"])
def test_only_convolutions_leave_the_range(kind: ViewKind) -> None:
    views = views_of(photos(60), replace(CHARACTERS, kinds=(kind,)))
    is_inside = views.min() >= 0 and views.max() <= 1
    assert is_inside == (kind != "convolution")


@pytest.mark.parametrize("recipe", [CHARACTERS, UNMIRRORED, PHOTO])
def test_characters_are_never_mirrored(recipe: Recipe) -> None:
    """The columns of an image get darker to the right: a view's do too unless it is mirrored or inverted."""
    x = torch.linspace(250, 5, 16).byte().view(1, 1, 16, 1).repeat(400, 16, 1, 3)
    moved = replace(recipe, kinds=("affine",), invert_rate=0.0)
    views = views_of(x, moved, rate=1)
    mirrored = (views[..., 8:].mean((1, 2, 3)) > views[..., :8].mean((1, 2, 3))).float().mean()
    assert 0.4 < mirrored < 0.6 if recipe is PHOTO else mirrored == 0


def test_recipe_of_every_augmentation() -> None:
    assert {*RECIPES} == {*get_args(AugmentKind)}
    assert {kind for kind, recipe in RECIPES.items() if recipe.mirror} == {"photo", "photo-views"}
    assert {*RANDOMIZED} <= {*RECIPES}


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_views_replace_images_at_the_rate_of_the_recipe(kind: AugmentKind) -> None:
    x, recipe = photos(2000, 8), RECIPES[kind]
    changed = is_changed(views_of(x, recipe), x).float().mean().item()
    assert changed == pytest.approx(recipe.view_rate, abs=0.03)  # over three standard deviations
    assert is_changed(views_of(x, recipe, rate=0.3), x).float().mean().item() == pytest.approx(0.3, abs=0.035)


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_rate_of_zero_changes_nothing_and_of_one_everything(kind: AugmentKind) -> None:
    x, recipe = photos(300, 8), RECIPES[kind]
    assert torch.equal(views_of(x, recipe, rate=0), to_float(x))
    assert is_changed(views_of(x, recipe, rate=1), x).all()


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_images_that_stay_plain_have_the_bits_of_plain_images(kind: AugmentKind) -> None:
    x = photos(50)
    views = views_of(x, RECIPES[kind])
    is_plain = ~is_changed(views, x)
    assert is_plain.any()
    assert torch.equal(views[is_plain], to_float(x)[is_plain])


@pytest.mark.parametrize("side", [8, 33, 150])  # many images are changed at once, or few, or one
@pytest.mark.parametrize("kind", RANDOMIZED)
def test_random_view_does_not_depend_on_the_other_images(kind: AugmentKind, side: int) -> None:
    x, recipe = photos(9, side), RECIPES[kind]
    together = views_of(x, recipe, rate=0.9)
    for row in range(len(x)):
        others = 255 - x.roll(1, 0)
        others[row] = x[row]
        torch.testing.assert_close(views_of(others, recipe, rate=0.9)[row], together[row], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_generator_decides_random_views(kind: AugmentKind) -> None:
    x, recipe = photos(12), RECIPES[kind]
    before = x.clone()
    assert torch.equal(views_of(x, recipe, "a"), views_of(x, recipe, "a"))
    assert (views_of(x, recipe, "a", 1) - views_of(x, recipe, "b", 1)).abs().amax((1, 2, 3)).min() > 0.01
    generator = torch_rng("a")
    first, second = (random_views(x, recipe, generator, rate=1) for _ in range(2))
    assert (first - second).abs().amax((1, 2, 3)).min() > 0.01
    assert torch.equal(x, before)


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_random_views_are_float_and_channels_last(kind: AugmentKind) -> None:
    for rate in (0.0, 0.5, 1.0):
        views = views_of(photos(6), RECIPES[kind], rate=rate)
        assert views.shape == (6, 3, 24, 24)
        assert views.dtype == torch.float32
        assert views.is_contiguous(memory_format=torch.channels_last)


def test_equal_images_get_different_views() -> None:
    views = views_of(photos(1).repeat(20, 1, 1, 1), CHARACTERS, rate=1)
    assert len(torch.unique(views.flatten(1), dim=0)) == 20


def test_every_kind_of_a_recipe_is_drawn_as_often_as_it_is_listed() -> None:
    """Of reddish images, drawings are gray, affine maps stay in range and convolutions mostly do neither."""
    x = photos(1200, 16)
    x[..., 1:] //= 4
    views = views_of(x, replace(PHOTO, gray_rate=0.0), rate=1)
    is_drawn = (views - views[:, :1]).abs().amax((1, 2, 3)) < 1e-6
    without = replace(PHOTO, gray_rate=0.0, kinds=("affine",) * 5)
    is_affine = (views - views_of(x, without, rate=1)).abs().amax((1, 2, 3)) < 1e-5
    assert not (is_drawn & is_affine).any()
    assert is_drawn.float().mean().item() == pytest.approx(0.4, abs=0.04)  # edges and lines, of five kinds
    assert is_affine.float().mean().item() == pytest.approx(0.2, abs=0.04)


def test_rate_kind_and_inversion_are_independent() -> None:
    """Half of the changed images are inverted, and half of either are edges: no number is used twice."""
    x = torch.full((4000, 4, 4, 3), 51, dtype=torch.uint8)  # edges of a constant image are white
    views = views_of(x, a_recipe(kinds=("affine", "edges"), invert_rate=0.5), rate=0.5)[:, 0, 0, 0]
    shares = {level: ((views - level).abs() < 0.01).float().mean().item() for level in (0.2, 0.8, 1.0)}
    assert shares == {
        0.2: pytest.approx(0.5 + 0.125, abs=0.03),  # plain, or moved and not inverted
        0.8: pytest.approx(0.125, abs=0.03),
        1.0: pytest.approx(0.25, abs=0.03),
    }


def test_apply_recipe_by_hand() -> None:
    """Inverted, then brighter in the first channel, then shifted to the right by a quarter of the side."""
    draws = draw([0])
    uniform = torch.full_like(draws.uniform, 0.5)
    uniform[0, BRIGHTNESS] = torch.tensor([0.75, 0.5, 0.5])  # half of the largest change
    uniform[0, AFFINE.stop - 2] = 0.0  # the view reads from the left
    recipe = a_recipe(invert_rate=0.5, brightness=0.2, shift=0.25)
    x = torch.tensor([0.1, 0.2, 0.3, 0.4]).expand(1, 3, 4, 4)
    view = apply_recipe(x, "affine", Draws(uniform, draws.normal, torch.tensor([0.4])), recipe)
    expected = torch.tensor([[1.0, 1.0, 0.9, 0.8], [0.9, 0.9, 0.8, 0.7], [0.9, 0.9, 0.8, 0.7]])
    torch.testing.assert_close(view, expected[None, :, None].expand(1, 3, 4, 4))


def test_inversion_of_stored_views_has_its_own_random_number() -> None:
    """It is drawn after all others: views that were stored before there was inversion have not changed."""
    draws = draw(range(1000))
    assert draws.invert.shape == (1000,)
    assert 0 <= draws.invert.min() < 0.01
    assert 0.99 < draws.invert.max() < 1
    generator = torch.Generator().manual_seed(7)
    uniform, normal = torch.rand(13, generator=generator), torch.randn((3, 3, 7, 7), generator=generator)
    assert torch.equal(draws.uniform[7], uniform)
    assert torch.equal(draws.normal[7], normal)
    for column in draws.uniform.T:
        assert abs(torch.corrcoef(torch.stack([column, draws.invert]))[0, 1]) < 0.12


def test_stored_views_follow_the_kinds_of_the_recipe() -> None:
    assert [view_kind(index, CHARACTERS) for index in (1, 2, 9)] == ["convolution"] * 3
    recipe = a_recipe(kinds=("edges", "affine"))
    x = photos(3)
    first, second, third = (randomized_view(x, index, [1, 2, 3], recipe) for index in (1, 2, 3))
    torch.testing.assert_close(second, plain(x), atol=2e-5, rtol=0, check_stride=False)
    assert torch.equal(first, third)
    assert torch.equal(first[:, 0], first[:, 1])


@pytest.mark.parametrize("width", [21, 22, 23, 24])  # convolutions compute four columns at a time
def test_convolution_of_any_width_equals_loops(width: int) -> None:
    x, draws, size = floats(4, 3, width), draw(range(4)), torch.tensor([3, 5, 7, 7])
    expected = torch.from_numpy(convolution_by_loops(x, size, draws.normal, torch.zeros(4)))
    mixed = random_convolution(x, size, draws.normal, torch.zeros(4))
    torch.testing.assert_close(mixed.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("index", [1, 2, 4])
def test_views_made_one_by_one_have_the_same_bits_in_any_batch(index: int) -> None:
    x, seeds = photos(16, 33), [*range(16)]
    first = torch.cat([randomized_view(x[i : i + 8], index, seeds[i : i + 8], chunk=1) for i in (0, 8)])
    order = torch.randperm(16, generator=torch_rng("order")).tolist()
    parts = [order[:8], order[8:]]
    again = torch.cat([randomized_view(x[part], index, [seeds[i] for i in part], chunk=1) for part in parts])
    assert torch.equal(again, first[order])


@pytest.mark.parametrize("side", [24, 150])
def test_chunks_do_not_change_views(side: int) -> None:
    x, seeds = photos(5, side), [*range(5)]
    for index in INDICES:
        whole = randomized_view(x, index, seeds, chunk=5)
        for chunk in (1, 2, None):
            view = randomized_view(x, index, seeds, chunk=chunk)
            torch.testing.assert_close(view, whole, atol=rounding(index), rtol=0)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 3), (5, 8)])
def test_smoothing_averages_the_neighbors_inside_the_image(height: int, width: int) -> None:
    x = floats(2, height, width)[:, :1]
    smooth = _smooth(x)
    for row, column in np.ndindex(height, width):
        window = x[:, :, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
        torch.testing.assert_close(smooth[:, :, row, column], window.mean((2, 3)))


def stroke(side: int = 48) -> Tensor:
    """A gray image with a dark horizontal bar, one twentieth of the side thick."""
    x = torch.full((1, 3, side, side), 0.7)
    x[:, :, side // 2 : side // 2 + max(1, side // 20)] = 0.1
    return x


def test_lines_are_dark_where_the_image_is_darker_than_its_surroundings() -> None:
    view = lines(stroke(), torch.tensor([1 / 96]))
    assert view[0, :, 24:26].max() < 0.1
    assert view[0, :, :16].min() > 0.99
    assert view[0, :, 36:].min() > 0.99


def test_lines_of_a_constant_image_are_white() -> None:
    view = lines(solid(0.3, 0.6, 0.9, height=24, width=24), torch.tensor([1 / 200]))
    torch.testing.assert_close(view, torch.ones_like(view))


@pytest.mark.parametrize("side", [8, 24, 192])
def test_lines_are_gray_and_in_range(side: int) -> None:
    view = lines(floats(3, side, side), torch.tensor([1 / 240, 1 / 150, 1 / 96]))
    assert torch.equal(view[:, 0], view[:, 2])
    assert 0 <= view.min() <= view.max() <= 1
    assert view.std((1, 2, 3)).min() > 0.05  # something is drawn


def test_lines_ignore_brightness_and_contrast() -> None:
    x, width = floats(2, 40, 40), torch.tensor([1 / 120, 1 / 120])
    torch.testing.assert_close(lines(0.2 + 0.5 * x, width), lines(x, width), atol=1e-4, rtol=0)


def test_wider_lines_are_found_by_a_wider_blur() -> None:
    narrow, wide = (lines(stroke(96), torch.tensor([width]))[0, 0, :, 48] < 0.5 for width in (1 / 240, 1 / 96))
    assert 0 < narrow.sum() <= wide.sum()


def test_blur_of_a_point_is_a_gaussian() -> None:
    x = torch.zeros(1, 1, 41, 41)
    x[0, 0, 20, 20] = 1
    view = blur(x, torch.tensor([0.6]))
    assert view.sum().item() == pytest.approx(1, abs=1e-5)
    assert (view[0, 0, 20, 21] / view[0, 0, 20, 20]).item() == pytest.approx(math.exp(-1 / (2 * 0.6**2)), rel=1e-4)
    assert (view[0, 0, 21, 21] / view[0, 0, 20, 20]).item() == pytest.approx(math.exp(-2 / (2 * 0.6**2)), rel=1e-4)


def test_each_image_is_blurred_by_its_own_sigma() -> None:
    x = floats(2, 30, 30).mean(1, keepdim=True)
    both = blur(x, torch.tensor([0.5, 0.6]))
    for row, sigma in enumerate((0.5, 0.6)):
        torch.testing.assert_close(both[row : row + 1], blur(x[row : row + 1], torch.tensor([sigma])))
