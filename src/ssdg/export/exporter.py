"""From a model to a checked file: traced, written into memory, read again, compared with torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..artifact.card import ModelCard
from ..artifact.load import Model
from ..errors import UserError
from .graph import MEAN, PROBS, Form, describe, example, trace
from .onnx_files import Outputs, onnx_bytes, onnx_run, torch_bytes, torch_run
from .parity import BATCH, FIRST, Parity, Pictures, compare, outputs, torch_outputs
from .quantize import halves, int8_bytes, speed_ratio

TOLERANCE = 1e-4  # of probabilities, for a file in float32
DISAGREEMENT = 0.1  # the share of images that int8 may give another class


class Unfaithful(Exception):
    """The exported file says something else than torch; it is not written."""


@dataclass(frozen=True)
class Made:
    """A file that has passed, and what was seen."""

    content: bytes
    parity: Parity  # of the file in float32
    int8: dict[str, Any] = field(default_factory=dict)


def check_form(model: Model, form: Form) -> None:
    """Refuse a network that is not there, and scores without thresholds of their own."""
    with torch.no_grad():
        count = len(model.logits(example(model, Form()).numpy()))
    allowed = [*map(str, range(1, count + 1)), MEAN]
    if form.network not in allowed:
        raise UserError(f"--network {form.network} is none of this model's; give {' or '.join(allowed)}")
    if form.reject:
        model.require_rejection()
        if form.network != MEAN and count > 1:
            raise UserError(
                "the thresholds of --reject are of the mean of the networks' scores and not of one network; leave "
                "out --reject or --network"
            )


def make(
    model: Model, card: ModelCard, form: Form, kind: str, pictures: Pictures, tolerance: float | None, *, int8: bool
) -> Made:
    """The bytes of a file of this kind, onnx or torch-export, with parity below the tolerance."""
    check_form(model, form)
    about = describe(card, form)
    program = trace(model, form)
    wanted = torch_outputs(model, pictures.pixels, form)
    content = onnx_bytes(program, form, about) if kind == "onnx" else torch_bytes(program, about)
    run = onnx_run(content) if kind == "onnx" else torch_run(content)
    parity = compare(wanted, outputs(run, pictures.pixels, form))
    require_parity(parity, TOLERANCE if tolerance is None or int8 else tolerance)
    if not int8:
        return Made(content, parity)
    small, report = make_int8(model, content, form, about, pictures)
    require_agreement(report, DISAGREEMENT if tolerance is None else tolerance)
    return Made(small, parity, report)


def require_parity(parity: Parity, tolerance: float) -> None:
    """Refuse a file that differs."""
    if not parity.worst <= tolerance or parity.exchanged:
        raise Unfaithful(
            f"the exported file differs from torch by {parity.worst:.2g} and gives {parity.images - parity.same:,} "
            f"of {parity.images:,} images another class, with {tolerance:g} allowed; no file was written: give "
            "--tolerance if that is good enough, or another --format"
        )


def require_agreement(report: dict[str, Any], most: float) -> None:
    """Refuse a quantized file that gives too many images another class."""
    if not 1 - report["agreement"] <= most + 1e-12:
        raise Unfaithful(
            f"the int8 file gives {100 * (1 - report['agreement']):.1f} % of {report['images']:,} images another "
            f"class, with {100 * most:g} % allowed; no file was written: give more --images like those it will see, "
            "a larger --tolerance, or leave out --quantize"
        )


def make_int8(
    model: Model, content: bytes, form: Form, about: str, pictures: Pictures
) -> tuple[bytes, dict[str, Any]]:
    """A quantized copy of a file, and how it compares with torch in classes, accuracy, speed and size."""
    ranges, rest = halves(pictures)
    small = int8_bytes(content, ranges, form, about)
    wanted = torch_outputs(model, rest.pixels, form)
    found = outputs(onnx_run(small), rest.pixels, form)
    parity, threads = compare(wanted, found), torch.get_num_threads()
    ratio, batch = speed_ratio(content, small, rest.pixels, form, threads)
    report = {
        "images": parity.images,
        "calibrated_on": len(ranges),
        "on_others": len(ranges) != len(pictures.pixels),
        "agreement": round(parity.agreement, 6),
        "difference": parity.probs,
        "score": parity.score,
        "accuracy": accuracy_of(wanted, found, rest),
        "speed": {"times": round(ratio, 3), "batch": batch, "threads": threads},
        "bytes": {"fp32": len(content), "int8": len(small)},
    }
    return small, report


def accuracy_of(wanted: Outputs, found: Outputs, pictures: Pictures) -> dict[str, float] | None:
    """Percent right of both, where the images' classes are known."""
    if pictures.truth is None:
        return None
    truth = np.resize(pictures.truth, len(wanted[PROBS]))
    both = {"fp32": wanted, "int8": found}
    return {name: round(100 * float((told[PROBS].argmax(1) == truth).mean()), 4) for name, told in both.items()}


def batch_sizes(images: int) -> str:
    """The batches of a check, in words."""
    return f"{FIRST[0]}, {FIRST[1]} and {BATCH}" if images > sum(FIRST) else f"{FIRST[0]} and {FIRST[1]}"
