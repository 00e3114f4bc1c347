"""Style statistics: values by hand, invariances, and those of a backbone by loops."""

from __future__ import annotations

import math

import pytest
import torch

from builders import TinyBackbone, random_images
from ssdg.models.styles import (
    LOG_FLOOR,
    NUM_EARLY_STAGES,
    gradient_magnitude,
    laplacian,
    plain_statistics,
    stage_statistics,
)


def test_a_flat_image_has_its_brightness_and_nothing_else() -> None:
    x = torch.full((1, 3, 16, 16), 0.25)
    (row,) = plain_statistics(x)
    assert row.shape == (28,)
    assert row[0] == 0.25
    torch.testing.assert_close(row[1:], torch.full((27,), math.log(LOG_FLOOR)))


def test_edges_by_hand() -> None:
    """A 3-4 slope: right neighbors differ by 3, lower ones by 4."""
    rows, columns = torch.meshgrid(torch.arange(5.0), torch.arange(5.0), indexing="ij")
    maps = (4 * rows + 3 * columns)[None, None]
    assert gradient_magnitude(maps).unique().tolist() == [5.0]
    assert laplacian(maps).unique().tolist() == [0.0]  # a plane does not bend
    bump = torch.zeros(1, 1, 3, 3)
    bump[..., 1, 1] = 2.0
    assert laplacian(bump).tolist() == [[[[8.0]]]]


def test_hue_is_not_seen_and_colorfulness_is() -> None:
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(plain_statistics(x[:, [2, 0, 1]]), plain_statistics(x))
    gray = x.mean(1, keepdim=True).expand_as(x)
    assert (plain_statistics(gray)[:, 2] < plain_statistics(x)[:, 2] - 1).all()
    torch.testing.assert_close(plain_statistics(gray)[:, :2], plain_statistics(x)[:, :2])


def test_blur_is_seen() -> None:
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    blurred = torch.nn.functional.avg_pool2d(x, 3, stride=1, padding=1)
    assert (plain_statistics(blurred)[:, 4] < plain_statistics(x)[:, 4]).all()


def test_stage_statistics_are_those_of_the_maps() -> None:
    backbone, x = TinyBackbone().double().eval(), random_images(2, 0)
    with torch.inference_mode():
        statistics = stage_statistics(backbone, x)
        maps, expected = x, []
        for stage in list(backbone.stages)[:NUM_EARLY_STAGES]:
            maps = stage(maps)
            expected += [maps.mean((2, 3)), (maps.flatten(2).std(2) + LOG_FLOOR).log()]
    torch.testing.assert_close(statistics, torch.cat(expected, 1).float())
    assert not backbone.stages[0]._forward_hooks  # all hooks are removed


@pytest.mark.parametrize("size", [16, 17, 32])
def test_extremes_are_finite(size: int) -> None:
    x = torch.zeros(2, 3, size, size)
    x[1, :, ::2] = 1.0
    assert plain_statistics(x).isfinite().all()
