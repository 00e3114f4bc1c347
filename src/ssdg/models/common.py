"""Building blocks shared by the backbones: image normalization and checks, pooling, initialization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Normalize(nn.Module):
    """(x - mean) / std per RGB channel; adds no key to the state dict of the enclosing network."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) in [0, 1] to the range the weights were trained on."""
        return (x - self.mean) / self.std


def check_images(x: Tensor, name: str, *, size: int, exact: bool = False) -> None:
    """Raise an error unless `x` is a batch of RGB images of at least (`exact`: exactly) `size` pixels a side."""
    if x.ndim != 4 or x.shape[1] != 3:
        raise UserError(f"backbone '{name}' takes images of shape (B, 3, H, W), not {tuple(x.shape)}")
    height, width = int(x.shape[2]), int(x.shape[3])
    is_wrong = (height, width) != (size, size) if exact else min(height, width) < size
    if is_wrong:
        allowed = "only" if exact else "at least"
        raise UserError(
            f"backbone '{name}' takes images of {allowed} {size}x{size} px, not {height}x{width}; "
            f"set the image size to {size}{'' if exact else ' or more'}, or choose another backbone"
        )


def full_precision(x: Tensor) -> Tensor:
    """Cast half-precision tensors, which autocast produces, to float32; return others unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def mean_pool(maps: Tensor) -> Tensor:
    """Average (B, C, h, w) over positions, summing in float32 also under autocast: (B, C)."""
    return full_precision(maps).mean((2, 3))


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: tuple[int, int, int]) -> Tensor:
        pooled: tuple[Tensor, Tensor] = torch.ops.aten.max_pool2d_with_indices(x, *([side] * 2 for side in window))
        out, indices = pooled
        ctx.save_for_backward(indices)
        ctx.window, ctx.shape, ctx.strides = window, x.shape, x.stride()
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (indices,) = ctx.saved_tensors
        like = torch.empty_strided(ctx.shape, ctx.strides, dtype=grads[0].dtype, device=grads[0].device)
        window = [[side] * 2 for side in (*ctx.window, 1)]
        by_x: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(grads[0], like, *window, False, indices)
        return by_x, None


class LeanMaxPool2d(nn.MaxPool2d):
    """Max pooling whose graph saves the indices of the maxima instead of the input maps; same numbers.

    Put the ReLU after it, not before: max and ReLU commute, and a quarter of the values is left to rectify and save.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Pool (B, C, h, w) to (B, C, h / stride, w / stride)."""
        if not (x.requires_grad and torch.is_grad_enabled()):
            return super().forward(x)  # type: ignore[no-any-return]
        window = (int(self.kernel_size), int(self.stride), int(self.padding))  # type: ignore[arg-type]
        out: Tensor = _MaxPool.apply(x, window)  # type: ignore[no-untyped-call]
        return out


class LeanInstanceNorm2d(nn.InstanceNorm2d):
    """Instance normalization that keeps the memory order of its maps; the numbers of its base class.

    PyTorch's never returns channels last, so the layers before and behind it convert their maps: a sixth of a
    training step of `character-cnn`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Give every map of (B, C, h, w) mean 0 and variance 1 over its positions, then scale and shift it."""
        maps = full_precision(x).permute(0, 2, 3, 1).flatten(1, 2)  # (B, positions, C)
        centered = maps - maps.mean(1, keepdim=True)
        variance = centered.square().mean(1, keepdim=True)
        out = torch.addcmul(self.bias, centered, (variance + self.eps).rsqrt() * self.weight).to(x.dtype)
        size, channels, height, width = x.shape
        return out.view(size, height, width, channels).permute(0, 3, 1, 2)


def initialize(net: nn.Module) -> None:
    """Set convolutions to He-normal weights and zero biases, and batch norms to the identity.

    The variance is 2 / fan-out, where an input channel fans out to its own group only. PyTorch's initializer
    counts all channels, which in depthwise convolutions shrinks the signal below the epsilon of batch norm.
    """
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            height, width = module.kernel_size
            fan_out = height * width * module.out_channels // module.groups
            nn.init.normal_(module.weight, std=(2 / fan_out) ** 0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
