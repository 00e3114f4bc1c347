"""Backbones by name.

A backbone takes images (B, 3, H, W) in [0, 1], normalises them itself and returns features (B, num_features)
in float32, also under autocast. It has
`num_features`;
`min_size`, the smallest side of an image in pixels;
`bf16_pays`, whether bfloat16 is the faster precision for its kind of layers;
`style_stages`, the three modules whose outputs are (B, C, h, w) maps;
`maps`, images to the last maps (B, C, h, w), and `pool`, these maps to features: together they are the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from ..errors import unknown
from .digits_cnn import DigitsCNN
from .efficientnet import EfficientNetLite0
from .external import ExternalBackbone, build_external
from .resnet import KINDS, ResNet
from .weights import State, lite0_imagenet, load_weights, no_imagenet, resnet_imagenet

Backbone = ResNet | DigitsCNN | EfficientNetLite0 | ExternalBackbone
Own = ResNet | DigitsCNN | EfficientNetLite0

# name: (network, its ImageNet weights, the name of the classifier in weight files)
OWN: dict[str, tuple[Callable[[], Own], Callable[[], State], str]] = {
    **{kind: (partial(ResNet, kind), partial(resnet_imagenet, kind), "fc") for kind in KINDS},
    "digits-cnn": (DigitsCNN, partial(no_imagenet, "digits-cnn"), "fc"),
    "efficientnet-lite0": (EfficientNetLite0, lite0_imagenet, "_fc"),
}
EXTERNAL = ("timm:NAME", "hf:NAME")


def build_backbone(name: str, weights: str = "none") -> Backbone:
    """The backbone called `name`, with `weights` 'none' (random), 'imagenet' or a file.

    >>> build_backbone("resnet18").num_features
    512
    """
    if name.startswith(("timm:", "hf:")):
        return build_external(name, weights)
    if name not in OWN:
        raise unknown("backbone", name, (*OWN, *EXTERNAL))
    make, imagenet, classifier = OWN[name]
    net = make()
    load_weights(net, name, weights, imagenet=imagenet, classifier=classifier)
    return net


def backbones_of(nets: nn.Module) -> list[nn.Module]:
    """The backbones inside a learner's networks."""
    return [module for module in nets.modules() if hasattr(module, "style_stages")]
