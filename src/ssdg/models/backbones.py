"""Backbones by name.

A backbone takes images (B, 3, H, W) in [0, 1], normalizes them itself and returns features (B, num_features)
in float32, also under autocast. It has
`num_features`;
`min_size`, the smallest side of an image in pixels;
`prefers_bf16`, whether bfloat16 is the faster precision for its layers;
`style_stages`, the three modules whose outputs are (B, C, h, w) maps;
`maps`, images to the last maps (B, C, h, w), and `pool`, these maps to features: together they are the forward pass;
`name`, and `exact_size`, whether `min_size` is the only allowed size;
`sequence`, `boundary` and `features`, which `freeze` needs (frozen.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from ..errors import unknown
from .common import Normalize
from .efficientnet import KINDS as EFFICIENTNETS
from .efficientnet import EfficientNetLite
from .external import ExternalBackbone, build_external
from .resnet import KINDS as RESNETS
from .resnet import ResNet
from .small_cnn import KINDS as SMALL_CNNS
from .small_cnn import SmallCNN
from .weights import (
    LITE_FILES,
    State,
    digest_tensors,
    lite_package,
    load_lite_imagenet,
    load_resnet_imagenet,
    load_weights,
    reject_imagenet,
)

BuiltInBackbone = ResNet | SmallCNN | EfficientNetLite
Backbone = BuiltInBackbone | ExternalBackbone

# name: (network, loader of its ImageNet weights, name of the classifier in weight files)
BUILT_IN: dict[str, tuple[Callable[[], BuiltInBackbone], Callable[[], State], str]] = {
    **{kind: (partial(ResNet, kind), partial(load_resnet_imagenet, kind), "fc") for kind in RESNETS},
    **{kind: (partial(SmallCNN, kind), partial(reject_imagenet, kind), "fc") for kind in SMALL_CNNS},
    **{kind: (partial(EfficientNetLite, kind), partial(load_lite_imagenet, kind), "_fc") for kind in EFFICIENTNETS},
}
EXTERNAL = ("timm:NAME", "hf:NAME")


def build_backbone(name: str, weights: str = "none") -> Backbone:
    """Build the backbone called `name` with `weights` 'none' (random), 'imagenet' or a file.

    >>> build_backbone("resnet18").num_features
    512
    """
    if name.startswith(("timm:", "hf:")):
        return build_external(name, weights)
    if name not in BUILT_IN:
        raise unknown("backbone", name, (*BUILT_IN, *EXTERNAL))
    make, imagenet, classifier = BUILT_IN[name]
    net = make()
    load_weights(net, name, weights, imagenet=imagenet, classifier=classifier)
    return net


def weights_package(name: str) -> str | None:
    """Return the name of the package that ships a backbone's ImageNet weights; None if they come from elsewhere."""
    return lite_package(name) if name in LITE_FILES else None


def backbones_of(nets: nn.Module) -> list[nn.Module]:
    """Return the backbones inside a learner's networks."""
    return [module for module in nets.modules() if hasattr(type(module), "style_stages")]


def weights_digest(backbone: nn.Module) -> str:
    """Return a hash of the names and values of all parameters and buffers, whatever is frozen."""
    return digest_tensors(sorted(backbone.state_dict().items()))


def input_std(backbone: nn.Module) -> Tensor | float:
    """Return the standard deviation by which a backbone divides images (1, 3, 1, 1); 1.0 if it does not say."""
    normalize = getattr(backbone, "normalize", None)
    return normalize.std if isinstance(normalize, Normalize) else 1.0
