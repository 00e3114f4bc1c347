"""The command `ssdg features`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import Stopped, UserError, count_noun
from . import Threads
from .predict import Flag, progress_bar

if TYPE_CHECKING:
    from ..artifact.feature_encoder import FeatureEncoder
    from ..inference.feature_export import Exported

BACKBONE, WEIGHTS = "efficientnet-lite0", "imagenet"  # without --model


def features(
    *paths: str,
    out: Annotated[Path, Parameter(alias="-o")],
    model: Path | None = None,
    network: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    backbone: str | None = None,
    weights: str | None = None,
    size: Annotated[int | None, Parameter(validator=Number(gte=8, lte=1024))] = None,
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    half: Flag = False,
    device: str = "auto",
    plugin: Path | None = None,
    threads: Threads = None,
    null: Flag = False,
) -> int:
    """Extract features of images: the pooled output of a backbone or of a trained run's backbone.

    Parameters
    ----------
    paths
        Images, folders of images, .zip archives, quoted patterns such as 'photos/**/*.jpg', and - for a list of
        paths on standard input.
    out
        The file to write: .parquet (path, features, error; constant memory) or .npz (paths, features, unreadable,
        reasons, meta; all in memory).
    model
        The folder of a finished run or of a model whose backbone to use, instead of --backbone, --weights and --size.
    network
        The network of the model, if it has several.  [default: 1]
    backbone
        The backbone, such as resnet50 or timm:NAME.  [default: efficientnet-lite0]
    weights
        imagenet, none (random) or a file.  [default: imagenet]
    size
        Height and width in pixels to which images are resized.  [default: 224, or the model's]
    precision
        Precision of the forward pass; auto: bf16 where the hardware is fast at it.
    half
        Write float16 instead of float32: half the size.
    device
        auto, cpu, cuda or mps.
    plugin
        The Python file with the model's method, if it is a custom one.
    threads
        CPU threads of the network.  [default: all cores]
    null
        The paths on standard input end with NUL characters, as find -print0 writes them.
    """
    from ..inference.feature_export import check_feature_file
    from ..inference.find_images import check_inputs

    check_feature_file(out)
    check_source(model, {"--backbone": backbone, "--weights": weights, "--size": size}, network, plugin)
    check_inputs(paths)
    encoder = load_encoder(
        model, network or 1, backbone or BACKBONE, weights or WEIGHTS, size, device, precision, plugin, threads
    )
    try:
        exported = write(paths, out, encoder, half=half, null=null)
    except KeyboardInterrupt:
        raise Stopped(f"interrupted; nothing was written to '{out}'") from None
    print_summary(exported, encoder.num_features, out)
    return 0


def check_source(
    model: Path | None, backbone_options: dict[str, object], network: int | None, plugin: Path | None
) -> None:
    """Reject options of a backbone next to --model, and options of a model without it."""
    if model is not None:
        if used := [name for name, value in backbone_options.items() if value is not None]:
            raise UserError(
                f"--model has its own backbone, weights and image size; leave out {' and '.join(used)}, or --model"
            )
    elif network is not None or plugin is not None:
        name = "--plugin" if network is None else "--network"
        raise UserError(f"{name} selects a part of a trained model; add --model RUN, or leave it out")


def load_encoder(
    model: Path | None,
    network: int,
    backbone: str,
    weights: str,
    size: int | None,
    device: str,
    precision: Literal["auto", "fp32", "bf16"],
    plugin: Path | None,
    threads: int | None,
) -> FeatureEncoder:
    """Load the model, or build the backbone."""
    from .early_checks import check_backbone_package, check_model, check_training_packages

    check_training_packages()
    check_backbone_package(backbone)
    if model is not None:
        check_model(model)
    import torch

    from ..artifact.feature_encoder import backbone_encoder, model_encoder
    from ..hub.download import download_imagenet_weights

    if threads is not None:
        torch.set_num_threads(threads)
    if model is not None:
        return model_encoder(model, network, device, precision, plugin)
    download_imagenet_weights(backbone, weights)
    return backbone_encoder(backbone, weights, size, device, precision)


def write(paths: tuple[str, ...], out: Path, encoder: FeatureEncoder, *, half: bool, null: bool) -> Exported:
    """Write the features of all images, with a progress bar."""
    from .. import __version__
    from ..inference.feature_export import Layout, export_features
    from ..inference.find_images import STDIN, find_images

    layout = Layout(encoder.num_features, half, {"ssdg": __version__, **encoder.meta})
    entries = find_images(paths, sys.stdin.buffer if STDIN in paths else None, null=null)  # type: ignore[arg-type]
    with progress_bar(paths, "encoding") as report:
        return export_features(out, entries, encoder, layout, report)


def print_summary(exported: Exported, num_features: int, out: Path) -> None:
    """List the first unreadable images on stderr, and print the last line of the output."""
    counts, unreadable = exported.counts, exported.unreadable
    for path, reason in unreadable:
        print(f"unreadable: {path}: {reason}", file=sys.stderr)
    if more := counts.unreadable - len(unreadable):
        print(f"unreadable: {more:,} more", file=sys.stderr)
    note = f"; {counts.unreadable:,} could not be read" if counts.unreadable else ""
    images = count_noun(counts.rows - counts.unreadable, "image")
    print(f"{num_features:,} features of {images} written to {out}{note}")
