"""Features of images from a backbone by name, or from the backbones of a trained model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..data.augment import to_float
from ..data.sources.decode import DECODE_VERSION, ResizeMode
from ..devices import onto
from ..errors import UserError
from ..files import file_name
from ..inference.classifier import Images, auto_batch
from ..machine import Precision, is_fast_at_bf16, start_machine
from ..models.backbones import backbones_of, build_backbone, weights_digest
from ..seeds import derive_seed
from .load import Model, free_bytes, load_model

CPU_BATCH = 8  # on a CPU, larger batches leave its caches
DEFAULT_SIZE = 224
PrecisionChoice = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """Computes the pooled features of a backbone in evaluation mode."""

    backbone: Any
    size: int
    device: torch.device
    precision: Precision
    batch: int
    source: dict[str, Any]  # where the weights come from
    resize: ResizeMode = "squash"

    @property
    def num_features(self) -> int:
        """Number of features of an image."""
        return int(self.backbone.num_features)

    @property
    def meta(self) -> dict[str, Any]:
        """Everything that decides the features, but for the images."""
        return {
            "backbone": str(self.backbone.name),
            **self.source,
            "weights_digest": weights_digest(self.backbone),
            "size": self.size,
            "resize": self.resize,
            "precision": self.precision,
            "decoder": DECODE_VERSION,
        }

    def encode(self, images: Images) -> NDArray[np.float32]:
        """Return the features (n, num_features) of uint8 images (n, size, size, 3), at most `batch`.

        All batches are filled up to one size: an image's features have the same bits in any batch.
        """
        x = onto(torch.from_numpy(images[np.arange(self.batch) % len(images)]), self.device)
        is_bf16 = self.precision == "bf16"
        try:
            with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=is_bf16):
                features: NDArray[np.float32] = self.backbone(to_float(x)).float().cpu().numpy()
        except torch.OutOfMemoryError:
            raise UserError(
                f"{self.batch} images do not fit into the device's memory; free some memory, or use --device cpu"
            ) from None
        return features[: len(images)]


def backbone_encoder(
    name: str, weights: str, size: int | None, device: str, precision: PrecisionChoice
) -> FeatureEncoder:
    """Build the encoder of a backbone with `weights` none, imagenet or a file.

    Random weights are the same in every process. The default size is 224, or the only one that the backbone takes.
    """
    machine = start_machine(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("features", name))
        backbone: Any = build_backbone(name, weights)
    default_size = int(backbone.min_size) if backbone.exact_size else DEFAULT_SIZE
    source = {"weights": weights if weights in ("none", "imagenet") else file_name(weights)}
    return _make_encoder(backbone.to(machine.device), size or default_size, machine.device, precision, source)


def model_encoder(
    folder: Path, network: int, device: str, precision: PrecisionChoice, plugin: Path | None
) -> FeatureEncoder:
    """Build the encoder of a network, counted from 1, of a run or model folder."""
    model = load_model(folder, device, plugin)
    backbones = predicting_backbones(model)
    if not 1 <= network <= len(backbones):
        numbers = " or ".join(str(number + 1) for number in range(len(backbones)))
        raise UserError(f"--network {network} does not exist in the model in '{folder}'; give --network {numbers}")
    source = {"model": folder.resolve().name, "network": network}
    encoder = _make_encoder(backbones[network - 1], model.size, model.device, precision, source)
    return replace(encoder, resize=model.resize)


def predicting_backbones(model: Model) -> list[nn.Module]:
    """Return the backbones that a model's predictions run through, in order.

    A learner may hold more: a mean teacher predicts, its student does not. Networks that share one count once.
    """
    used = list[nn.Module]()
    candidates = backbones_of(model.learner.nets)
    handles = [net.register_forward_hook(lambda net, x, out: used.append(net)) for net in candidates]
    model.logits(np.zeros((1, model.size, model.size, 3), np.uint8))
    for handle in handles:
        handle.remove()
    backbones = list(dict.fromkeys(used)) or candidates  # a plugin may call parts of its backbone
    if not backbones:
        raise UserError("the model has no backbone of ssdg; use --backbone instead of --model")
    return backbones


def _make_encoder(
    backbone: Any, size: int, device: torch.device, precision: PrecisionChoice, source: dict[str, Any]
) -> FeatureEncoder:
    """Choose precision and batch size, and pass an image through the backbone, which rejects a wrong size."""
    fast: Precision = "bf16" if is_fast_at_bf16(device.type) else "fp32"
    largest = auto_batch(free_bytes(device), size)
    batch = min(CPU_BATCH, largest) if device.type == "cpu" else largest
    chosen = fast if precision == "auto" else precision
    encoder = FeatureEncoder(backbone.eval(), size, device, chosen, batch, source)
    encoder.encode(np.zeros((1, size, size, 3), np.uint8))
    return encoder
