"""Frozen trunks: layers up to a boundary that are never trained, so that their output is computed once and stored.

A backbone lists its modules by stage in `sequence`. Its `boundary` is None, the last frozen stage, or "all". Frozen
up to a stage, a backbone takes images (B, 3, H, W) or maps at the boundary (B, C, h, w) and computes the rest. Frozen
as a whole, its maps at the boundary are the pooled features (B, num_features, 1, 1). Parameter names do not change,
so trained weights load into a backbone that is not frozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import unknown
from .common import check_images
from .weights import digest_tensors

ALL = "all"
BatchNormMode = Literal["train", "eval"]  # statistics of the batch, or those that the weights came with
Stages = Mapping[str, tuple[nn.Module, ...]]  # modules in order, by the stage they belong to


def freeze(backbone: Any, boundary: str | None, batch_norm: BatchNormMode = "train") -> None:
    """Freeze a backbone up to the stage `boundary`, or `all` of it, in place; None freezes nothing.

    With `batch_norm="eval"`, the batch norms that remain trainable use and keep their running statistics.
    """
    if boundary is not None:
        check_boundary(backbone, boundary)
        backbone.boundary, backbone.entry = boundary, nn.Identity()
        for module in trunk_modules(backbone):
            module.requires_grad_(False)
    if boundary is not None or batch_norm == "eval":
        backbone.train = HeldMode(backbone, batch_norm)
        backbone.train(backbone.training)


def check_boundary(backbone: Any, boundary: str) -> None:
    """Raise an error that lists the stages if the backbone has no such stage."""
    names = boundary_names(backbone)
    if boundary not in names:
        raise unknown(f"stage of {backbone.name} in freeze", boundary, ("none", *names))


def boundary_names(backbone: Any) -> tuple[str, ...]:
    """Return the allowed boundaries, from the first stage to all."""
    return (*(name for name in backbone.sequence if name.startswith("stage")), ALL)


def trunk_modules(backbone: Any) -> Iterator[nn.Module]:
    """Yield the frozen modules."""
    if backbone.boundary == ALL:
        yield backbone
    elif backbone.boundary is not None:
        for stage in frozen_stages(backbone):
            yield from backbone.sequence[stage]


def frozen_stages(backbone: Any) -> tuple[str, ...]:
    """Return the names of the frozen stages, in order."""
    names = tuple(backbone.sequence)
    return names[: names.index(backbone.boundary) + 1] if backbone.boundary in names else ()


@dataclass(frozen=True, eq=False)
class HeldMode:
    """`train` of a backbone that keeps frozen layers, and batch norms if `batch_norm` says so, in evaluation mode.

    An object, not a closure: a deep copy of the backbone gets its own copy.
    """

    backbone: nn.Module
    batch_norm: BatchNormMode

    def __call__(self, mode: bool = True) -> nn.Module:
        """Set the mode of all other modules."""
        type(self.backbone).train(self.backbone, mode)
        for module in trunk_modules(self.backbone):
            for part in module.modules():
                part.training = False
        if self.batch_norm == "eval":
            for part in self.backbone.modules():
                if isinstance(part, _BatchNorm):
                    part.training = False
        return self.backbone


def last_maps(backbone: Any, x: Tensor) -> Tensor:
    """Map images, or maps at the boundary, to the last maps."""
    if backbone.boundary == ALL:
        return trunk_maps(backbone, x) if is_image(x) else x
    done: tuple[str, ...] = ()
    if backbone.boundary is not None:
        done = frozen_stages(backbone)
        x = backbone.entry(trunk_maps(backbone, x) if is_image(x) else x)
    else:
        check_images(x, backbone.name, size=backbone.min_size, exact=backbone.exact_size)
    return run_stages(backbone, x, [name for name in backbone.sequence if name not in done])


@torch.no_grad()
def trunk_maps(backbone: Any, x: Tensor) -> Tensor:
    """Map images (B, 3, H, W) in [0, 1] to the maps at the boundary (B, C, h, w)."""
    check_images(x, backbone.name, size=backbone.min_size, exact=backbone.exact_size)
    if backbone.boundary == ALL:
        features: Tensor = backbone.features(x)
        return features[:, :, None, None]
    return run_stages(backbone, x, frozen_stages(backbone))


def whole_maps(backbone: Any, x: Tensor) -> Tensor:
    """Map images to the last maps, whatever is frozen."""
    return run_stages(backbone, x, tuple(backbone.sequence))


def run_stages(backbone: Any, x: Tensor, names: list[str] | tuple[str, ...]) -> Tensor:
    """Apply the modules of these stages in order."""
    for name in names:
        for module in backbone.sequence[name]:
            x = module(x)
    return x


def is_image(x: Tensor) -> bool:
    """Return whether a batch holds images and not maps, which have more than three channels."""
    return x.shape[1] == 3


def behind_boundary(backbone: Any, modules: Mapping[str, nn.Module]) -> tuple[nn.Module, ...]:
    """Return the modules whose outputs a frozen trunk leaves to change: its entry, then those of later stages.

    `modules` are by the stage whose last module they are. Pooled features have no style, so `all` leaves none.
    """
    if backbone.boundary is None:
        return tuple(modules.values())
    if backbone.boundary == ALL:
        return ()
    done = frozen_stages(backbone)
    return (backbone.entry, *(module for stage, module in modules.items() if stage not in done))


def trunk_digest(backbone: Any) -> str:
    """Return a hash of the names and values of all frozen tensors."""
    modules = set(trunk_modules(backbone))
    return digest_tensors(
        item
        for prefix, module in backbone.named_modules()
        if module in modules
        for item in sorted(module.state_dict(prefix=f"{prefix}.").items())
    )
