import pytest
import torch

from ssdg.data.augment import shift_flip, strong, to_float, weak_photo
from ssdg.seeds import torch_rng


def test_strong_gives_equal_images_different_views() -> None:
    x = to_float(torch.arange(16 * 16 * 3, dtype=torch.uint8).view(1, 16, 16, 3)).repeat(8, 1, 1, 1)
    views = strong(x, torch_rng("views"))
    assert len(torch.unique(views.flatten(1), dim=0)) == 8
