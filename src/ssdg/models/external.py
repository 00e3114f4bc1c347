"""Backbones of other packages: `timm:NAME` and `hf:NAME`, imported on demand."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, suggest
from .common import IMAGENET_MEAN, IMAGENET_STD, Normalize, check_images, full_precision, mean_pool
from .frozen import ALL, Stages, last_maps
from .weights import load_weights, reject_imagenet

DEFAULT_SIZE = 224  # if a model does not declare the image size it was trained on
MIN_SIZE = 32  # the total stride of nearly all convolutional models


class ExternalBackbone(nn.Module):
    """Network of another package with the interface of the built-in backbones.

    `stages` names the submodules after which styles can be confused; `size` is the side of the images it was
    trained on, and with `fixed` the only one it accepts. A forward pass of one black image determines its shapes.
    It can be frozen as a whole only.
    """

    boundary: str | None = None

    def __init__(
        self,
        name: str,
        net: nn.Module,
        *,
        stages: tuple[str, ...],
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        size: int = DEFAULT_SIZE,
        fixed: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.net, self.exact_size = name, net, fixed
        self.normalize = Normalize(mean, std)
        self.min_size = size if fixed else MIN_SIZE
        self.prefers_bf16 = not has_depthwise(net)
        self.num_features, has_maps = probe_shapes(self, [net.get_submodule(stage) for stage in stages], size)
        self._style_names = stages if has_maps else ()

    @property
    def style_stages(self) -> tuple[nn.Module, ...]:
        """The three submodules whose outputs are (B, C, h, w) maps; an error for token-based networks."""
        if self.boundary == ALL:
            return ()
        if not self._style_names:
            raise UserError(
                f"backbone '{self.name}' does not have three stages of feature maps, which style confusion needs; "
                "choose a convolutional backbone or switch style confusion off"
            )
        return tuple(self.net.get_submodule(stage) for stage in self._style_names)

    @property
    def sequence(self) -> Stages:
        """Empty: the order of the modules is the package's own."""
        return {}

    def maps(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) in [0, 1] to the last maps (B, C, h, w); an error for token-based networks."""
        if self.boundary == ALL:
            return last_maps(self, x)
        if not self._style_names:
            raise UserError(
                f"backbone '{self.name}' has no feature maps; choose a convolutional backbone or another method"
            )
        check_images(x, self.name, size=self.min_size, exact=self.exact_size)
        if hasattr(self.net, "forward_features"):  # timm
            return self.net.forward_features(self.normalize(x))  # type: ignore[no-any-return, operator]
        return self.net(self.normalize(x)).feature_maps[-1]  # type: ignore[no-any-return]

    def pool(self, maps: Tensor) -> Tensor:
        """Map the last maps to features as `forward` does: (B, num_features)."""
        if self.boundary == ALL:
            return full_precision(maps).flatten(1)
        if hasattr(self.net, "forward_head"):  # timm
            return full_precision(self.net.forward_head(maps, pre_logits=True))  # type: ignore[operator]
        return mean_pool(maps)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) in [0, 1] to pooled features (B, num_features)."""
        return self.features(x) if self.boundary is None else self.pool(self.maps(x))

    def features(self, x: Tensor) -> Tensor:
        """Map images to pooled features, whatever is frozen."""
        check_images(x, self.name, size=self.min_size, exact=self.exact_size)
        out = self.net(self.normalize(x))
        features: Tensor = out if isinstance(out, Tensor) else out.feature_maps[-1]
        return mean_pool(features) if features.ndim == 4 else full_precision(features)


def has_depthwise(net: nn.Module) -> bool:
    """Return whether any convolution is depthwise."""
    convs = (module for module in net.modules() if isinstance(module, nn.Conv2d))
    return any(conv.groups > 1 and conv.groups == conv.in_channels for conv in convs)


@torch.no_grad()
def probe_shapes(backbone: ExternalBackbone, stages: Sequence[nn.Module], size: int) -> tuple[int, bool]:
    """Return the number of features and whether three stages output maps (B, C, h, w).

    A square image gives square maps, which distinguishes them from tokens (B, n, C) and from maps (B, h, w, C).
    """
    outputs: list[Any] = []
    handles = [stage.register_forward_hook(lambda _, __, out: outputs.append(out)) for stage in stages]
    was_training = backbone.training
    features = backbone.eval()(torch.zeros(1, 3, size, size))
    backbone.train(was_training)
    for handle in handles:
        handle.remove()
    is_square = [isinstance(out, Tensor) and out.ndim == 4 and out.shape[2] == out.shape[3] for out in outputs]
    return int(features.shape[1]), is_square == [True] * 3


def build_external(name: str, weights: str) -> ExternalBackbone:
    """Build the backbone `timm:NAME` or `hf:NAME`; weights 'imagenet' are those published under that name."""
    package, _, model = name.partition(":")
    return build_timm(model, weights) if package == "timm" else build_hf(model, weights)


def build_timm(model: str, weights: str) -> ExternalBackbone:
    """Build a timm model by its name in `timm.list_models()`."""
    name = f"timm:{model}"
    timm = import_extra("timm", "timm", name)
    if not timm.is_model(model):
        raise UserError(
            f"timm has no model '{model}'{suggest(model, timm.list_models())}; timm.list_models() lists all names"
        )
    try:
        net = timm.create_model(model, pretrained=weights == "imagenet", num_classes=0)
    except (OSError, RuntimeError, ValueError) as error:
        raise build_error(name, error) from error
    data = importlib.import_module("timm.data").resolve_model_data_config(net)
    if weights not in ("none", "imagenet"):
        classifier = str(net.default_cfg.get("classifier"))
        load_weights(net, name, weights, imagenet=lambda: reject_imagenet(name), classifier=classifier)
    return ExternalBackbone(
        name,
        net,
        stages=tuple(info["module"] for info in net.feature_info[-4:-1]),
        mean=data["mean"],
        std=data["std"],
        size=data["input_size"][-1],
        fixed=bool(net.default_cfg.get("fixed_input_size")),
    )


def build_hf(model: str, weights: str) -> ExternalBackbone:
    """Build a transformers backbone: a hub name, a folder with config.json, or a model type such as 'resnet'.

    A model type means its default configuration; it needs no internet connection and has no published weights.
    """
    name = f"hf:{model}"
    transformers = import_extra("transformers", "hf", name)
    is_type = model in transformers.CONFIG_MAPPING and not Path(model).is_dir()
    if is_type and weights == "imagenet":
        raise UserError(
            f"backbone '{name}' is a model type without published weights; use a hub name such as "
            "hf:microsoft/resnet-18, or weights=none"
        )
    auto_config = transformers.AutoConfig
    try:
        config = auto_config.for_model(model) if is_type else auto_config.from_pretrained(model)
        net = transformers.AutoBackbone.from_config(config)
        if weights == "imagenet":  # not AutoBackbone, which accepts no folder and needs the hub
            net = type(net).from_pretrained(model)
    except (OSError, ValueError, TypeError) as error:
        raise build_error(name, error) from error
    if weights not in ("none", "imagenet"):
        load_weights(net, name, weights, imagenet=lambda: reject_imagenet(name), classifier="classifier")
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if is_type else hf_normalization(model)
    size = getattr(config, "image_size", DEFAULT_SIZE)
    return ExternalBackbone(
        name, net, stages=hf_stages(net), mean=mean, std=std, size=size if isinstance(size, int) else size[0]
    )


def hf_stages(net: nn.Module) -> tuple[str, ...]:
    """Return the names of the first three entries of the module list 'stages', or none if there is no such list."""
    for name, module in net.named_modules():
        if name.split(".")[-1] == "stages" and isinstance(module, nn.ModuleList) and len(module) > 3:
            return tuple(f"{name}.{i}" for i in range(3))
    return ()


def hf_normalization(model: str) -> tuple[Sequence[float], Sequence[float]]:
    """Return the mean and deviation in the model's preprocessor file, or ImageNet's if it has none."""
    mixin = importlib.import_module("transformers.image_processing_base").ImageProcessingMixin
    try:
        settings, _ = mixin.get_image_processor_dict(model)
    except OSError:
        settings = {}
    return settings.get("image_mean", IMAGENET_MEAN), settings.get("image_std", IMAGENET_STD)


def import_extra(package: str, extra: str, name: str) -> ModuleType:
    """Import an optional package, or raise an error that says how to install it.

    An installed package may fail to import for any reason, such as a torchvision built for another torch.
    """
    try:
        return importlib.import_module(package)
    except Exception as error:
        raise UserError(
            f"backbone '{name}' needs the package {package}, which cannot be imported "
            f"({first_line(error)}); run pip install 'ssdg[{extra}]'"
        ) from error


def build_error(name: str, error: Exception) -> UserError:
    """Return the error for a model that its package cannot build."""
    return UserError(
        f"backbone '{name}' cannot be built ({first_line(error)}); "
        "check its name and the connection, or use weights=none or weights=FILE"
    )


def first_line(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
