"""The command `ssdg export`."""

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
    from ..export.exporter import ExportedFile
    from ..export.graph import GraphOptions
    from ..export.parity import CheckImages

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
    """Export a trained model to a file for other programs, after checking that it agrees with torch.

    Parameters
    ----------
    run
        The folder of a finished run or of a model.
    format
        onnx, torch-export (a .pt2 file) or safetensors (a copy of the model folder).
    network
        mean for the averaged probabilities of the networks, or 1, 2, ... for a single one.
    quantize
        int8: 8-bit weights and activations, with ranges from --images or the run's thumbnails. Only for onnx.
    out
        The file to write; for safetensors a folder.  [default: model.onnx, model-int8.onnx or model.pt2 in RUN]
    preprocessing
        inside: the input is uint8 (N, S, S, 3); beside: float32 (N, 3, S, S) in [0, 1].
    reject
        Add a second output: the score for the thresholds of 'unknown'.
    images
        Images, folders and archives for the check; class folders add accuracy.  [default: thumbnails of the run]
    tolerance
        The largest allowed difference of probabilities (1e-4); with --quantize the largest allowed fraction of images
        that get another class (0.1).
    plugin
        The Python file with the run's method, if it is a custom one.
    json_
        Print JSON.
    """
    from .early_checks import check_model

    check_model(run)
    from ..artifact.load import load_model
    from ..export.graph import GraphOptions

    options = GraphOptions(network, preprocessing == "inside", reject)
    check_arguments(format, options, quantize, out, tolerance, images)
    if format == "onnx":
        from ..export.onnx_files import require_onnx

        require_onnx()
    model = load_model(run, "cpu", plugin)
    if format == "safetensors":
        assert out is not None
        return copy(run, out)
    path = out or run / f"model{'-int8' if quantize else ''}{SUFFIXES[format]}"
    return write(run, path, model, options, format, images or [], tolerance, int8=quantize is not None, as_json=json_)


def check_arguments(
    kind: str,
    options: GraphOptions,
    quantize: str | None,
    out: Path | None,
    tolerance: float | None,
    images: list[Path] | None,
) -> None:
    """Reject invalid combinations of options before anything is read."""
    if kind == "safetensors":
        is_used = {
            "--network": options.network != "mean",  # a method builds and loads its networks together
            "--quantize": quantize is not None,
            "--preprocessing": not options.has_preprocessing,
            "--reject": options.has_score,
            "--images": bool(images),
            "--tolerance": tolerance is not None,
        }
        if used := [name for name, is_set in is_used.items() if is_set]:
            raise UserError(
                f"--format safetensors copies the model unchanged; leave out {used[0]}, or use --format onnx"
            )
        if out is None:
            raise UserError("--format safetensors needs a folder for the copy; add -o DIR")
        return
    if quantize and kind != "onnx":
        raise UserError(f"--quantize {quantize} works only with onnx files; use --format onnx, or leave it out")
    if out is not None and (out.suffix != SUFFIXES[kind] or out.is_dir()):
        raise UserError(f"'{out}' is not a file name for --format {kind}; give a name that ends in {SUFFIXES[kind]}")
    if tolerance is not None and not (0 <= tolerance <= (1 if quantize else math.inf)):
        raise UserError(
            f"--tolerance {tolerance:g} is out of range; give a number of at least 0, with --quantize at most 1"
        )


def write(
    run: Path,
    path: Path,
    model: Model,
    options: GraphOptions,
    kind: str,
    images: list[Path],
    tolerance: float | None,
    *,
    int8: bool,
    as_json: bool,
) -> int:
    """Export the model, write the file if it passes the check, and print the result."""
    from ..artifact.load import model_of, read_card
    from ..export.exporter import ParityError, check_options, export_model
    from ..export.parity import load_check_images
    from ..files import write_bytes
    from . import FAILED, print_error

    check_options(model, options)
    check_images = load_check_images(run, images, model.classes, model.size, model.resize)
    if int8 and not check_images.are_real:
        raise UserError(
            f"--quantize int8 needs images to measure ranges, and '{run}' has no thumbnails; add --images DIR"
        )
    try:
        card = read_card(model_of(run))
        exported = export_model(model, card, options, kind, check_images, tolerance, int8=int8)
    except ParityError as error:
        return print_error(str(error), FAILED)
    write_bytes(path, exported.content)
    if as_json:
        print(json.dumps(to_json(path, exported, check_images), indent=2))
    else:
        print_summary(path, model, options, exported, check_images)
    return 0


def copy(run: Path, out: Path) -> int:
    """Copy the files of the model folder."""
    from ..artifact.load import model_of
    from ..estimator.save_load import copy_model

    copy_model(model_of(run), out)
    print(f"model copied into {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    return 0


def to_json(path: Path, exported: ExportedFile, images: CheckImages) -> dict[str, Any]:
    """Return the output of `--json`."""
    parity = {**vars(exported.parity), "on": images.description, "real": images.are_real}
    return {"file": str(path), "bytes": len(exported.content), "parity": parity, "int8": exported.int8 or None}


def print_summary(
    path: Path, model: Model, options: GraphOptions, exported: ExportedFile, images: CheckImages
) -> None:
    """Print the lines of `ssdg export`, and notes on stderr."""
    from ..export.exporter import describe_batches

    size, parity = model.size, exported.parity
    shape = f"uint8 (N, {size}, {size}, 3)" if options.has_preprocessing else f"float32 (N, 3, {size}, {size})"
    print(f"wrote {path} ({len(exported.content) / 1e6:.2f} MB): images {shape} → {', '.join(options.outputs)}")
    score = f", of scores {parity.score:.2g}" if parity.score is not None else ""
    print(
        f"checked against torch on {images.description} in batches of {describe_batches(parity.images)}: largest "
        f"difference of probabilities {parity.probs:.2g}{score}; same class for {parity.same:,} of {parity.images:,}"
    )
    if exported.int8:
        print("\n".join(int8_lines(exported.int8)))
    for note in notes(model, options, images):
        print(note, file=sys.stderr)


def int8_lines(report: dict[str, Any]) -> list[str]:
    """Return sentences about the effect of quantization on classes, accuracy, speed and size."""
    which = "other images" if report["on_others"] else "the same images, because there are few"
    lines = [
        f"int8 predicts the same class as torch in fp32 for {100 * report['agreement']:.2f} % of "
        f"{report['images']:,} images; its ranges come from {report['calibrated_on']:,} images ({which})"
    ]
    if accuracy := report["accuracy"]:
        lines.append(f"accuracy (%): {accuracy['fp32']:.2f} in fp32, {accuracy['int8']:.2f} in int8")
    speed, sizes = report["speed"], report["bytes"]
    lines.append(
        f"{speed['times']:.2f} times as fast as fp32 in onnxruntime on this machine (batches of {speed['batch']}, "
        f"{speed['threads']} threads); {sizes['int8'] / sizes['fp32']:.2f} times the size"
    )
    return lines


def notes(model: Model, options: GraphOptions, images: CheckImages) -> list[str]:
    """Return the caveats of this file."""
    lines = []
    if not images.are_real:
        lines.append("note: checked on noise, because there are no images; add --images to check on real ones")
    if options.network != "mean" and model.temperature is not None:
        lines.append(f"note: the temperature {model.temperature:g} was chosen for the mean of the networks")
    if model.temperature is None:
        lines.append("note: this model has no temperature; its probabilities are not calibrated")
    return lines
