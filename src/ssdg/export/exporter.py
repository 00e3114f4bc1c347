"""Export a model: trace it, serialize it in memory, load it again, and compare it with torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..artifact.card import ModelCard
from ..artifact.load import Model
from ..errors import UserError
from .graph import MEAN, PROBS, GraphOptions, describe, example_images, trace
from .onnx_files import Outputs, onnx_bytes, onnx_runner, torch_bytes, torch_runner
from .parity import BATCH, FIRST_BATCHES, CheckImages, Parity, compare, file_outputs, torch_outputs
from .quantize import int8_bytes, speed_ratio, split_images

TOLERANCE = 1e-4  # of probabilities, for a float32 file
INT8_TOLERANCE = 0.1  # fraction of images that int8 may assign another class


class ParityError(Exception):
    """The exported file disagrees with torch, so it is not written."""


@dataclass(frozen=True)
class ExportedFile:
    """A file that passed the checks, and their results."""

    content: bytes
    parity: Parity  # of the float32 file
    int8: dict[str, Any] = field(default_factory=dict)


def check_options(model: Model, options: GraphOptions) -> None:
    """Reject a network that the model does not have, and scores without matching thresholds."""
    with torch.no_grad():
        num_networks = len(model.logits(example_images(model, GraphOptions()).numpy()))
    allowed = [*map(str, range(1, num_networks + 1)), MEAN]
    if options.network not in allowed:
        raise UserError(f"this model has no --network {options.network}; choose from {', '.join(allowed)}")
    if options.has_score:
        model.require_rejection()
        if options.network != MEAN and num_networks > 1:
            raise UserError(
                "the thresholds of --reject apply to the mean of the networks' scores, not to one network; leave out "
                "--reject or --network"
            )


def export_model(
    model: Model,
    card: ModelCard,
    options: GraphOptions,
    kind: str,
    images: CheckImages,
    tolerance: float | None,
    *,
    int8: bool,
) -> ExportedFile:
    """Return a file of this kind, onnx or torch-export; raise `ParityError` if it differs by more than allowed."""
    check_options(model, options)
    metadata = describe(card, options)
    program = trace(model, options)
    expected = torch_outputs(model, images.pixels, options)
    content = onnx_bytes(program, options, metadata) if kind == "onnx" else torch_bytes(program, metadata)
    run = onnx_runner(content) if kind == "onnx" else torch_runner(content)
    parity = compare(expected, file_outputs(run, images.pixels, options))
    require_parity(parity, TOLERANCE if tolerance is None or int8 else tolerance)
    if not int8:
        return ExportedFile(content, parity)
    int8_content, report = export_int8(model, content, options, metadata, images)
    require_agreement(report, INT8_TOLERANCE if tolerance is None else tolerance)
    return ExportedFile(int8_content, parity, report)


def require_parity(parity: Parity, tolerance: float) -> None:
    """Raise `ParityError` if probabilities or classes differ by more than the tolerance."""
    if not parity.worst <= tolerance or parity.exchanged:
        raise ParityError(
            f"the exported file differs from torch by {parity.worst:.2g} (allowed: {tolerance:g}) and assigns "
            f"another class to {parity.images - parity.same:,} of {parity.images:,} images; no file was written; "
            "raise --tolerance if that is acceptable, or use another --format"
        )


def require_agreement(report: dict[str, Any], tolerance: float) -> None:
    """Raise `ParityError` if a quantized file assigns another class to too many images."""
    if not 1 - report["agreement"] <= tolerance + 1e-12:
        raise ParityError(
            f"the int8 file assigns another class to {100 * (1 - report['agreement']):.1f} % of {report['images']:,} "
            f"images (allowed: {100 * tolerance:g} %); no file was written; give more --images like those in use, "
            "raise --tolerance, or leave out --quantize"
        )


def export_int8(
    model: Model, content: bytes, options: GraphOptions, metadata: str, images: CheckImages
) -> tuple[bytes, dict[str, Any]]:
    """Return a quantized copy of a file, and how it compares with torch in classes, accuracy, speed and size."""
    calibration, rest = split_images(images)
    int8_content = int8_bytes(content, calibration, options, metadata)
    expected = torch_outputs(model, rest.pixels, options)
    actual = file_outputs(onnx_runner(int8_content), rest.pixels, options)
    parity, threads = compare(expected, actual), torch.get_num_threads()
    ratio, batch = speed_ratio(content, int8_content, rest.pixels, options, threads)
    report = {
        "images": parity.images,
        "calibrated_on": len(calibration),
        "on_others": len(calibration) != len(images.pixels),
        "agreement": round(parity.agreement, 6),
        "difference": parity.probs,
        "score": parity.score,
        "accuracy": compare_accuracy(expected, actual, rest),
        "speed": {"times": round(ratio, 3), "batch": batch, "threads": threads},
        "bytes": {"fp32": len(content), "int8": len(int8_content)},
    }
    return int8_content, report


def compare_accuracy(expected: Outputs, actual: Outputs, images: CheckImages) -> dict[str, float] | None:
    """Return the accuracy (%) in fp32 and int8; None if the classes of the images are unknown."""
    if images.truth is None:
        return None
    truth = np.resize(images.truth, len(expected[PROBS]))
    outputs = {"fp32": expected, "int8": actual}
    return {
        name: round(100 * float((values[PROBS].argmax(1) == truth).mean()), 4) for name, values in outputs.items()
    }


def describe_batches(num_images: int) -> str:
    """Return the batch sizes of a check, as text."""
    first, second = FIRST_BATCHES
    return f"{first}, {second} and {BATCH}" if num_images > sum(FIRST_BATCHES) else f"{first} and {second}"
