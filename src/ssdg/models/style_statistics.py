"""What an image looks like and not what it shows: statistics over all its positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SCALES = 3  # each of half the side of the one before
FLOOR = 0.01  # added before a logarithm: values below it are noise
EARLY = 2  # stages of a backbone whose maps still tell texture and colour


def plain_statistics(x: Tensor) -> Tensor:
    """28 numbers of every image (B, 3, H, W) in [0, 1]; no weights, sides of 16 px or more.

    Of brightness and colourfulness (largest minus smallest channel): mean and deviation, and at three scales those of
    the gradient's length and the Laplacian. Logarithms, for contrasts differ by factors. No hue: a domain has many.
    """
    grey = x.mean(1, keepdim=True)
    colour = x.amax(1, keepdim=True) - x.amin(1, keepdim=True)
    found = [grey.mean((2, 3)), _log(grey.std((2, 3))), _log(colour.mean((2, 3))), _log(colour.std((2, 3)))]
    maps = torch.cat([grey, colour], dim=1)
    for _ in range(SCALES):
        for edges in (gradient_length(maps), laplacian(maps).abs()):
            found += [_log(edges.mean((2, 3))), _log(edges.std((2, 3)))]
        maps = F.avg_pool2d(maps, 2)
    return torch.cat(found, dim=1)


def gradient_length(maps: Tensor) -> Tensor:
    """|∇| by differences of neighbours: (B, C, H - 1, W - 1)."""
    right = maps[..., 1:, 1:] - maps[..., 1:, :-1]
    down = maps[..., 1:, 1:] - maps[..., :-1, 1:]
    return (right.square() + down.square()).sqrt()


def laplacian(maps: Tensor) -> Tensor:
    """Four times a pixel minus its neighbours: (B, C, H - 2, W - 2)."""
    sides = maps[..., 2:, 1:-1] + maps[..., :-2, 1:-1] + maps[..., 1:-1, 2:] + maps[..., 1:-1, :-2]
    return 4 * maps[..., 1:-1, 1:-1] - sides


def stage_statistics(backbone: nn.Module, x: Tensor) -> Tensor:
    """Mean and log deviation of every channel of the backbone's first maps, for images (B, 3, H, W) in [0, 1]."""
    seen: list[Tensor] = []
    stages: tuple[nn.Module, ...] = backbone.style_stages  # type: ignore[assignment]
    hooks = [stage.register_forward_hook(lambda _m, _i, maps: seen.append(maps)) for stage in stages[:EARLY]]
    try:
        backbone(x)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([part for maps in seen for part in (maps.mean((2, 3)), _log(maps.std((2, 3))))], dim=1).float()


def _log(values: Tensor) -> Tensor:
    return (values + FLOOR).log()
