"""Batch norms folded into convolutions: fewer passes over the maps, the same logits but for rounding.

For evaluation only: a folded network has other parameters and no batch statistics.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .efficientnet import SameConv2d


def fold_batch_norms(net: nn.Module) -> int:
    """Fold every batch norm into the convolution that its parent lists right before it, in place.

    `net` must be in evaluation mode. Return the number of folded batch norms. Networks that apply such a pair
    separately must not be folded: compare the outputs.
    """
    num_folded = 0
    for parent in list(net.modules()):
        for (conv_name, conv), (norm_name, norm) in pairwise(list(parent.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and can_fold(conv, norm):
                setattr(parent, conv_name, with_padding(fuse_conv_bn_eval(conv, norm)))
                setattr(parent, norm_name, nn.Identity())
                num_folded += 1
    return num_folded


def can_fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> bool:
    """Return whether the shapes match, running statistics exist and no hook sees the output in between."""
    has_hooks = any(module._forward_hooks or module._forward_pre_hooks for module in (conv, norm))
    return conv.out_channels == norm.num_features and norm.running_var is not None and not has_hooks


def with_padding(conv: nn.Conv2d) -> nn.Conv2d:
    """Let a "same" convolution of stride 1 pad inside the convolution: same numbers, one copy of the maps less."""
    if not isinstance(conv, SameConv2d) or conv.stride != (1, 1) or any(side % 2 == 0 for side in conv.kernel_size):
        return conv
    height, width = conv.kernel_size
    with torch.device(conv.weight.device):
        padded = nn.Conv2d(
            conv.in_channels,
            conv.out_channels,
            (height, width),
            padding=(height // 2, width // 2),
            groups=conv.groups,
            bias=conv.bias is not None,
        )
    padded.weight, padded.bias = conv.weight, conv.bias
    return padded.eval()
