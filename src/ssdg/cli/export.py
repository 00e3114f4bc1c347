"""`ssdg export`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..errors import UserError

if TYPE_CHECKING:
    from ..artifact.load import Model
    from ..export.exporter import Made
    from ..export.graph import Form
    from ..export.parity import Pictures

SUFFIXES = {"onnx": ".onnx", "torch-export": ".pt2"}
Paths = Annotated[list[Path] | None, Parameter(consume_multiple=True)]


def export(
    run: Path,
    *,
    format: Literal["onnx", "torch-export", "safetensors"],
    network: str = "mean",
    quantize: Literal["int8"] | None = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    preprocessing: Literal["inside", "beside"] = "inside",
    reject: bool = False,
    images: Paths = None,
    tolerance: float | None = None,
    plugin: Path | None = None,
    json_: bool = False,
) -> int:
    """Write a trained model as a file for other programs, once it has been found to say what torch says.

    Parameters
    ----------
    run
        The folder of a run that has ended, or of a model.
    format
        onnx, torch-export (a .pt2 file) or safetensors (the model's folder as it is).
    network
        The mean of the networks' probabilities, or 1, 2, ... for one of them alone.
    quantize
        int8: weights and activations of 8 bits, ranges by --images or the run's thumbnails. For onnx.
    out
        The file to write; for safetensors a folder.  [default: model.onnx, model-int8.onnx or model.pt2 in RUN]
    preprocessing
        inside: the input is uint8 (N, S, S, 3); beside: float32 (N, 3, S, S) in [0, 1].
    reject
        A second output, the score that the thresholds for 'unknown' are of.
    images
        Images, folders and archives to check on; class folders tell accuracy too.  [default: thumbnails of the run]
    tolerance
        The largest difference of probabilities (1e-4); with --quantize the share of images of another class (0.1).
    plugin
        The Python file with the run's method, where it is one of your own.
    json_
        Print JSON.
    """
    from ..artifact.load import load_model
    from ..export.graph import Form

    form = Form(network, preprocessing == "inside", reject)
    check_words(format, form, quantize, out, tolerance, images)
    if format == "onnx":
        from ..export.onnx_files import require_onnx

        require_onnx()
    model = load_model(run, "cpu", plugin)
    if format == "safetensors":
        assert out is not None
        return copy(run, out)
    path = out or run / f"model{'-int8' if quantize else ''}{SUFFIXES[format]}"
    return write(run, path, model, form, format, images or [], tolerance, int8=quantize is not None, as_json=json_)


def write(
    run: Path,
    path: Path,
    model: Model,
    form: Form,
    kind: str,
    images: list[Path],
    tolerance: float | None,
    *,
    int8: bool,
    as_json: bool,
) -> int:
    """Make the file, and write it if it passes."""
    from ..artifact.load import model_of, read_card
    from ..export.exporter import Unfaithful, check_form, make
    from ..export.parity import pictures
    from ..files import write_bytes
    from . import FAILED, complain

    check_form(model, form)
    found = pictures(run, images, model.classes, model.size)
    if int8 and not found.are_real:
        raise UserError(
            f"--quantize int8 needs images to measure ranges on, and '{run}' has no thumbnails; give --images DIR"
        )
    try:
        made = make(model, read_card(model_of(run)), form, kind, found, tolerance, int8=int8)
    except Unfaithful as error:
        return complain(str(error), FAILED)
    write_bytes(path, made.content)
    if as_json:
        print(json.dumps(report(path, made, found), indent=2))
    else:
        tell(path, model, form, made, found)
    return 0


def check_words(
    kind: str, form: Form, quantize: str | None, out: Path | None, tolerance: float | None, images: list[Path] | None
) -> None:
    """Refuse what cannot be meant, before anything is read."""
    if kind == "safetensors":
        given = {
            "--network": form.network != "mean",  # a method's networks are built and loaded together
            "--quantize": quantize is not None,
            "--preprocessing": not form.inside,
            "--reject": form.reject,
            "--images": bool(images),
            "--tolerance": tolerance is not None,
        }
        if wrong := [name for name, is_given in given.items() if is_given]:
            raise UserError(f"--format safetensors copies the model as it is; leave out {wrong[0]}, or give onnx")
        if out is None:
            raise UserError("--format safetensors needs a folder to copy the model to; give -o DIR")
        return
    if quantize and kind != "onnx":
        raise UserError(f"--quantize {quantize} is for onnx files; give --format onnx, or leave it out")
    if out is not None and (out.suffix != SUFFIXES[kind] or out.is_dir()):
        raise UserError(f"'{out}' is no name for a file of --format {kind}; give one that ends in {SUFFIXES[kind]}")
    if tolerance is not None and not (0 <= tolerance <= (1 if quantize else math.inf)):
        raise UserError(f"--tolerance {tolerance:g} is none; give a number from 0 on, with --quantize up to 1")


def copy(run: Path, out: Path) -> int:
    """The model's folder, all of its own files."""
    from ..artifact.load import model_of
    from ..estimator.save_load import copy_model

    copy_model(model_of(run), out)
    print(f"model copied into {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    return 0


def report(path: Path, made: Made, pictures: Pictures) -> dict[str, Any]:
    """What `--json` prints."""
    parity = {**vars(made.parity), "on": pictures.told, "real": pictures.are_real}
    return {"file": str(path), "bytes": len(made.content), "parity": parity, "int8": made.int8 or None}


def tell(path: Path, model: Model, form: Form, made: Made, pictures: Pictures) -> None:
    """The lines of `ssdg export`."""
    from ..export.exporter import batch_sizes

    size, parity = model.size, made.parity
    shape = f"uint8 (N, {size}, {size}, 3)" if form.inside else f"float32 (N, 3, {size}, {size})"
    print(f"wrote {path} ({len(made.content) / 1e6:.2f} MB): images {shape} → {', '.join(form.outputs)}")
    score = f", of scores {parity.score:.2g}" if parity.score is not None else ""
    print(
        f"checked against torch on {pictures.told}, {batch_sizes(parity.images)} at a time: largest difference of "
        f"probabilities {parity.probs:.2g}{score}; {parity.same:,} of {parity.images:,} get the same class"
    )
    if made.int8:
        print("\n".join(int8_lines(made.int8)))
    for note in notes(model, form, pictures):
        print(note, file=sys.stderr)


def int8_lines(told: dict[str, Any]) -> list[str]:
    """What quantizing gained and cost."""
    whose = "others" if told["on_others"] else "the same ones, for there are few"
    lines = [
        f"int8 gives {100 * told['agreement']:.2f} % of {told['images']:,} images the same class as torch in fp32; "
        f"its ranges are of {told['calibrated_on']:,} images ({whose})"
    ]
    if told["accuracy"]:
        lines.append(f"percent right: {told['accuracy']['fp32']:.2f} in fp32, {told['accuracy']['int8']:.2f} in int8")
    speed, sizes = told["speed"], told["bytes"]
    lines.append(
        f"{speed['times']:.2f} times as fast as fp32 in onnxruntime here ({speed['batch']} images at a time, "
        f"{speed['threads']} threads); {sizes['int8'] / sizes['fp32']:.2f} of the size"
    )
    return lines


def notes(model: Model, form: Form, pictures: Pictures) -> list[str]:
    """What a user should know of this file."""
    found = []
    if not pictures.are_real:
        found.append("note: there were no images to check on, so it was noise; give --images to check on real ones")
    if form.network != "mean" and model.temperature is not None:
        found.append(f"note: the temperature {model.temperature:g} was chosen for the mean of the networks")
    if model.temperature is None:
        found.append("note: this model has no temperature; probabilities are as the networks say them")
    return found
