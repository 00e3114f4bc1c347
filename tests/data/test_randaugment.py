"""The ops against Pillow's, and the geometry by hand."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from ssdg.data import augment as ra
from ssdg.seeds import numpy_rng, torch_rng

LEVEL = 0.3


def scene(side: int = 24) -> np.ndarray:
    """A smooth, colored image with some noise, values 20 to 230."""
    ramp = np.linspace(20, 200, side)
    channels = np.stack([ramp[:, None] + 0 * ramp, 0 * ramp[:, None] + ramp, 220 - ramp[:, None] / 2 - ramp / 2], 2)
    return (channels + numpy_rng("scene").uniform(0, 30, channels.shape)).clip(20, 230).astype(np.uint8)


def run(op: ra.Op, image: np.ndarray, level: float = LEVEL) -> np.ndarray:
    x = torch.from_numpy(image).permute(2, 0, 1)[None] / 255
    return op(x, torch.full((1, 1, 1, 1), level))[0].permute(1, 2, 0).mul(255).numpy()


def op_choice(*names: str) -> Tensor:
    """The uniform numbers that pick these ops."""
    return torch.tensor([[(ra.OPS.index(name) + 0.5) / len(ra.OPS) for name in names]])


KEEP = 0.05 + 0.9 * LEVEL
PILLOW: list[tuple[ra.Op, Callable[[Image.Image], Image.Image], float]] = [  # with the largest difference allowed
    (ra.autocontrast, ImageOps.autocontrast, 1.0),
    (ra.equalize, ImageOps.equalize, 2.5),
    (ra.solarize, lambda i: ImageOps.solarize(i, threshold=77), 0.01),  # 0.3 * 255 = 76.5
    (ra.posterize, lambda i: ImageOps.posterize(i, 5), 0.01),  # 4 + floor(0.3 * 5)
    (ra.brightness, lambda i: ImageEnhance.Brightness(i).enhance(KEEP), 1.0),
    (ra.contrast, lambda i: ImageEnhance.Contrast(i).enhance(KEEP), 1.5),
    (ra.color, lambda i: ImageEnhance.Color(i).enhance(KEEP), 1.5),
    (ra.sharpness, lambda i: ImageEnhance.Sharpness(i).enhance(KEEP), 1.5),
]


@pytest.mark.parametrize(("op", "pillow", "tolerance"), PILLOW, ids=lambda v: getattr(v, "__name__", ""))
def test_op_equals_pillow(op: ra.Op, pillow: Callable[[Image.Image], Image.Image], tolerance: float) -> None:
    image = scene(128)  # large, for Pillow rounds the bins of equalize to whole pixels
    expected = np.asarray(pillow(Image.fromarray(image)), np.float64)
    inside = np.s_[1:-1, 1:-1]  # Pillow does not blur the border
    assert np.abs(run(op, image)[inside] - expected[inside]).max() <= tolerance
    assert np.abs(expected - image).max() > 5  # the op does something


@pytest.mark.parametrize("op", ra.PHOTOMETRIC[3:], ids=lambda op: op.__name__)
def test_level_changes_the_result(op: ra.Op) -> None:
    assert np.abs(run(op, scene(), 0.1) - run(op, scene(), 0.8)).max() > 2


@pytest.mark.parametrize("op", [ra.autocontrast, ra.equalize])
def test_flat_channel_stays(op: ra.Op) -> None:
    flat = np.full((6, 6, 3), 99, np.uint8)
    assert np.allclose(run(op, flat), 99)


@pytest.mark.parametrize("name", ra.OPS)
def test_chosen_op_acts_on_its_sample_only(name: str) -> None:
    x = (torch.from_numpy(scene()).permute(2, 0, 1) / 255).repeat(3, 1, 1, 1)
    choice = torch.cat([op_choice("identity"), op_choice(name), op_choice("identity")])
    view = ra.rand_augment(x, choice, torch.full((3, 1), LEVEL), torch.zeros(3, dtype=torch.bool), geometric=True)
    assert torch.equal(view[[0, 2]], x[[0, 2]])
    assert torch.equal(view[1], x[1]) is (name == "identity")


@pytest.mark.parametrize(
    ("name", "level", "source", "destination"),
    [
        ("translate_x", 1.0, np.s_[:, 3:], np.s_[:, :7]),
        ("translate_x", 0.0, np.s_[:, :7], np.s_[:, 3:]),
        ("translate_y", 1.0, np.s_[3:, :], np.s_[:7, :]),
    ],
)
def test_translation_moves_three_tenths_and_uncovers_grey(
    name: str, level: float, source: tuple[slice, slice], destination: tuple[slice, slice]
) -> None:
    x = torch.rand(1, 3, 10, 10, generator=torch_rng("x"))
    view = ra.rand_augment(x, op_choice(name), torch.tensor([[level]]), torch.tensor([False]), geometric=True)
    expected = torch.full((1, 3, 10, 10), ra.GRAY)
    expected[:, :, *destination] = x[:, :, *source]
    torch.testing.assert_close(view, expected)


def test_rotation_turns_by_thirty_degrees_about_the_centre() -> None:
    side = 201
    x = torch.zeros(1, 3, side, side)
    x[:, :, 98:103, 178:183] = 1  # 80 pixels right of the center (100, 100)
    view = ra.rand_augment(x, op_choice("rotate"), torch.tensor([[1.0]]), torch.tensor([False]), geometric=True)
    inside = (torch.arange(side) - 100).square()[:, None] + (torch.arange(side) - 100).square() < 95**2
    rows, columns = ((view[0, 0] > 0.5) & inside).nonzero().double().mean(0)
    assert rows.item() == pytest.approx(100 - 80 * 0.5, abs=1)  # sin 30 degrees, upwards
    assert columns.item() == pytest.approx(100 + 80 * 3**0.5 / 2, abs=1)


def test_shear_moves_rows_in_proportion_to_their_height() -> None:
    matrix = ra._matrices(torch.tensor([[ra.OPS.index("shear_x")]]), torch.tensor([[1.0]]), torch.tensor([False]))
    torch.testing.assert_close(matrix[0], torch.tensor([[1, 0.3, 0], [0, 1, 0]]))


def test_two_geometric_ops_are_one_warp() -> None:
    picked = torch.tensor([[ra.OPS.index("translate_x"), ra.OPS.index("translate_y")]])
    matrix = ra._matrices(picked, torch.tensor([[1.0, 0.75]]), torch.tensor([True]))
    torch.testing.assert_close(matrix[0], torch.tensor([[-1, 0, -0.6], [0, 1, 0.3]]))  # in half sides


def test_mirror_alone_is_an_exact_flip() -> None:
    x = torch.rand(2, 3, 9, 9, generator=torch_rng("x"))
    nothing = op_choice("identity").expand(2, 1)
    view = ra.rand_augment(x, nothing, nothing, torch.tensor([True, False]), geometric=True)
    torch.testing.assert_close(view[0], x[0].flip(2), atol=1e-5, rtol=0)
    assert torch.equal(view[1], x[1])


def test_permuting_the_samples_permutes_the_views() -> None:
    rng = torch_rng("permute")
    x, choice, level = torch.rand(40, 3, 8, 8, generator=rng), *torch.rand(2, 40, 2, generator=rng)
    mirror, order = torch.rand(40, generator=rng) < 0.5, torch.randperm(40, generator=rng)
    views = ra.rand_augment(x, choice, level, mirror, geometric=True)
    permuted = ra.rand_augment(x[order], choice[order], level[order], mirror[order], geometric=True)
    torch.testing.assert_close(permuted, views[order], atol=1e-6, rtol=0)


@pytest.mark.parametrize("geometric", [False, True])
def test_without_geometry_a_flat_image_stays_flat(geometric: bool) -> None:
    rng = torch_rng("flat")
    colors = torch.rand(100, 3, 1, 1, generator=rng).expand(-1, -1, 8, 8)
    choice, level = torch.rand(2, 100, 2, generator=rng)
    views = ra.rand_augment(colors, choice, level, torch.zeros(100, dtype=torch.bool), geometric=geometric)
    is_flat = torch.allclose(views, views.mean((2, 3), keepdim=True).expand_as(views), atol=1e-5)
    assert is_flat is not geometric
