import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ssdg.data.augment import random_shift_flip, second_view, shift_flip, strong_view, to_float, weak_view
from ssdg.errors import UserError
from ssdg.seeds import torch_rng


def images(num: int, side: int = 16) -> Tensor:
    """Different uint8 images, no two pixels of a row equal."""
    return torch.randint(0, 256, (num, side, side, 3), dtype=torch.uint8, generator=torch_rng("images"))


def shift_flip_by_loops(x: Tensor, dy: Tensor, dx: Tensor, flip: Tensor) -> Tensor:
    out = torch.empty_like(x)
    num, height, width, _ = x.shape
    for i in range(num):
        for row in range(height):
            for column in range(width):
                from_row = min(max(row - int(dy[i]), 0), height - 1)
                from_column = min(max(column - int(dx[i]), 0), width - 1)
                if flip[i]:
                    from_column = width - 1 - from_column
                out[i, row, column] = x[i, from_row, from_column]
    return out


def test_shift_flip_by_hand() -> None:
    one = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint8)
    x = one[None, :, :, None].repeat(3, 1, 1, 3)
    moved = shift_flip(x, torch.tensor([0, 1, 0]), torch.tensor([1, 0, 2]), torch.tensor([False, True, True]))
    assert moved[0, :, :, 0].tolist() == [[1, 1, 2], [4, 4, 5]]  # one to the right, the edge repeated
    assert moved[1, :, :, 0].tolist() == [[3, 2, 1], [3, 2, 1]]  # mirrored, one down
    assert moved[2, :, :, 2].tolist() == [[3, 3, 3], [6, 6, 6]]  # mirrored, then two to the right


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32))
def test_shift_flip_equals_loops(num: int, height: int, width: int, seed: int) -> None:
    rng = torch_rng(seed)
    x = torch.randint(0, 256, (num, height, width, 3), dtype=torch.uint8, generator=rng)
    dy, dx = torch.randint(-height - 1, height + 2, (2, num), generator=rng)
    flip = torch.rand(num, generator=rng) < 0.5
    assert torch.equal(shift_flip(x, dy, dx, flip), shift_flip_by_loops(x, dy, dx, flip))


def test_weak_view_shows_every_shift_up_to_an_eighth_and_both_directions() -> None:
    side, num = 16, 400
    marked = torch.zeros(num, side, side, 3, dtype=torch.uint8)
    marked[:, 8, 5] = 255  # mirrored: column 10
    _, rows, columns = random_shift_flip(marked, torch_rng("shifts"))[..., 0].nonzero().unbind(1)
    assert len(rows) == num
    assert set(rows.tolist()) == {6, 7, 8, 9, 10}
    assert set(columns.tolist()) == {3, 4, 5, 6, 7} | {8, 9, 10, 11, 12}
    assert 0.4 < (columns >= 8).float().mean() < 0.6


def test_weak_view_is_seeded_and_leaves_its_input_alone() -> None:
    x = images(8)
    before = x.clone()
    view = random_shift_flip(x, torch_rng("a"))
    assert view.dtype == torch.uint8
    assert view.shape == x.shape
    assert torch.equal(view, random_shift_flip(x, torch_rng("a")))
    assert not torch.equal(view, random_shift_flip(x, torch_rng("b")))
    assert torch.equal(x, before)


def test_to_float_by_hand_and_channels_last() -> None:
    x = torch.tensor([[[[0, 51, 255], [255, 0, 102]]]], dtype=torch.uint8)
    expected = torch.tensor([[[[0.0, 1.0]], [[0.2, 0.0]], [[1.0, 0.4]]]])
    assert torch.equal(to_float(x), expected)
    assert to_float(images(2)).is_contiguous(memory_format=torch.channels_last)


def test_strong_gives_equal_images_different_views() -> None:
    x = to_float(images(1)).repeat(8, 1, 1, 1)
    assert len(torch.unique(strong_view(x, torch_rng("views")).flatten(1), dim=0)) == 8


@pytest.mark.parametrize("num_ops", [0, 1, 2, 5])
def test_strong_stays_in_range_and_shape(num_ops: int) -> None:
    x = to_float(images(200))
    view = strong_view(x, torch_rng("range", num_ops), num_ops, flip=True)
    assert view.shape == x.shape
    assert view.dtype == x.dtype
    assert view.min() >= 0
    assert view.max() <= 1
    assert torch.isfinite(view).all()


def test_strong_is_seeded_and_leaves_its_input_alone() -> None:
    x = to_float(images(8))
    before = x.clone()
    view = strong_view(x, torch_rng("a"))
    assert torch.equal(view, strong_view(x, torch_rng("a")))
    assert not torch.equal(view, strong_view(x, torch_rng("b")))
    assert torch.equal(x, before)


def test_strong_view_of_a_sample_does_not_depend_on_the_others() -> None:
    x = to_float(images(12))
    together = strong_view(x, torch_rng("s"))
    assert torch.equal(strong_view(x[:5], torch_rng("s")), together[:5])
    assert torch.equal(strong_view(torch.cat([x[:5], 1 - x[5:]]), torch_rng("s"))[:5], together[:5])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_strong_keeps_the_strides_and_they_change_no_value(memory_format: torch.memory_format) -> None:
    x = to_float(images(12))
    view = strong_view(x.contiguous(memory_format=memory_format), torch_rng("s"))
    assert view.is_contiguous(memory_format=memory_format)
    assert torch.equal(view, strong_view(x, torch_rng("s")))


def test_strong_with_no_op_is_cutout_with_a_square_of_at_most_half_the_side() -> None:
    side = 20
    view = strong_view(torch.ones(300, 3, side, side), torch_rng("holes"), num_ops=0)
    holes = view == 0.5
    assert torch.equal(holes, holes[:, :1].expand_as(holes))
    assert torch.equal(~holes, view == 1)
    heights, widths = holes[:, 0].any(2).sum(1), holes[:, 0].any(1).sum(1)
    assert torch.equal(holes[:, 0].sum((1, 2)), heights * widths)
    assert heights.max() == widths.max() == side // 2


@pytest.mark.parametrize("flip", [False, True])
def test_strong_mirrors_half_of_the_samples_only_if_asked(flip: bool) -> None:
    x = torch.zeros(200, 3, 8, 8)
    x[..., :4] = 1
    left, right = strong_view(x, torch_rng("mirror"), num_ops=0, flip=flip).mean((1, 2)).split(4, dim=1)
    mirrored = (right.mean(1) > left.mean(1)).float().mean()
    assert 0.4 < mirrored < 0.6 if flip else mirrored == 0


def test_augment_dispatches() -> None:
    x = images(6)
    assert torch.equal(weak_view(x, "none", torch_rng("a")), to_float(x))
    assert torch.equal(weak_view(x, "photo", torch_rng("a")), to_float(random_shift_flip(x, torch_rng("a"))))
    with pytest.raises(UserError, match=r"unknown augmentation 'foto' \(did you mean 'photo'\?\)"):
        weak_view(x, "foto", torch_rng("a"))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(0, 8, 8, 3), (8, 8, 3), (2, 3, 8, 8)])
def test_bytes_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    for view in (to_float, lambda x: random_shift_flip(x, torch_rng(0))):
        with pytest.raises(ValueError, match="at least one uint8 image"):
            view(torch.zeros(shape, dtype=torch.uint8))


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (3, 8, 8), (2, 8, 8, 3)])
def test_floats_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least one float image"):
        strong_view(torch.zeros(shape), torch_rng(0))


def test_the_second_view_of_a_digit_is_moved_by_two_pixels_at_most_and_never_mirrored() -> None:
    x = images(200, side=32)
    view = second_view(x, "none", torch_rng("second"))
    shifts = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)]
    same = torch.zeros(len(shifts), len(x), dtype=torch.bool)
    for i, (dy, dx) in enumerate(shifts):
        moved = shift_flip(x, torch.full((200,), dy), torch.full((200,), dx), torch.zeros(200, dtype=torch.bool))
        same[i] = (to_float(moved) == view).flatten(1).all(1)
    assert same.any(0).all()  # every image is one of the 25 moves
    assert same.any(1).all()  # and every move occurs


def test_the_second_view_of_a_photo_is_another_weak_one() -> None:
    x = images(8)
    first, second = (weak_view(x, "photo", torch_rng(word)) for word in ("first", "second"))
    assert torch.equal(second_view(x, "photo", torch_rng("second")), second)
    assert not torch.equal(first, second)
