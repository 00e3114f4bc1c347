"""The command `ssdg discover`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import UserError, count_noun, one_line
from . import Threads

if TYPE_CHECKING:
    from ..discovery.mixed_folder import DiscoveredFolder, MixedFolder, StyleSettings

COLUMNS = ("path", "domain", "confidence")
MAX_LISTED = 10  # unreadable images in the summary


def discover(
    folder: Path,
    *,
    out: Annotated[Path, Parameter(alias="-o")],
    domains: str = "auto",
    backbone: str = "efficientnet-lite0",
    weights: str | None = None,
    size: Annotated[int | None, Parameter(validator=Number(gte=8, lte=1024))] = None,
    seed: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    device: str = "auto",
    threads: Threads = None,
    cache: Path | None = None,
) -> int:
    """Split mixed-domain images by style: write the domain of every image, and a contact sheet next to it.

    With the defaults, the domains are those of ssdg train --unlabeled FOLDER --discover-domains auto.

    Parameters
    ----------
    folder
        Folder or .zip archive of images in any structure; names and subfolders are ignored.
    out
        The table to write, a .csv file: path, domain, confidence. The contact sheet has the same name with .png.
    domains
        auto (1 to 6), or the number of domains.
    backbone
        The backbone whose first layers describe the style.
    weights
        imagenet, a file, or none: statistics of the pixels.  [default: imagenet; none for images of up to 40 pixels]
    size
        Height and width in pixels to which images are resized.  [default: that of the images, at most 192]
    seed
        Seed of the clustering.
    device
        auto, cpu, cuda or mps.
    threads
        CPU threads.  [default: all cores]
    cache
        Folder for decoded images.  [default: $SSDG_CACHE or ~/.cache/ssdg]
    """
    from ..data.cache import default_cache
    from ..data.sources.tree import check_root
    from .early_checks import check_backbone_package, check_device_name, check_training_packages

    number = parse_number(domains)
    check_out(out)
    check_device_name(device)
    check_training_packages()
    check_backbone_package(backbone)
    check_root(folder)
    import torch

    from ..discovery.domain_sheet import write_contact_sheet
    from ..discovery.mixed_folder import StyleSettings, open_folder

    if threads is not None:
        torch.set_num_threads(threads)
    settings = StyleSettings(number, backbone, weights, size, seed)
    discovered = run_discovery(open_folder(folder, settings), settings, cache or default_cache(), device)
    write_table(out, folder, discovered)
    write_contact_sheet(sheet_of(out), discovered)
    print_summary(discovered, out)
    return 0


def parse_number(text: str) -> int | None:
    """Return the number of domains; None for auto."""
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise UserError(f"--domains {one_line(text, 40)} is not a number of domains; give auto, or 1 or more")
    return int(text)


def check_out(out: Path) -> None:
    """Raise an error if the table or the contact sheet cannot be written there."""
    if out.suffix.lower() != ".csv":
        raise UserError(f"'{out}' is not a table; give -o a file name that ends in .csv")
    for path in (out, sheet_of(out)):
        if path.is_dir():
            raise UserError(f"'{path}' is a folder; give -o another file name")


def sheet_of(out: Path) -> Path:
    """Return the path of the contact sheet."""
    return out.with_suffix(".png")


def run_discovery(folder: MixedFolder, settings: StyleSettings, cache: Path, device: str) -> DiscoveredFolder:
    """Get the weights and split the images on the device."""
    from ..discovery.mixed_folder import discover_folder
    from ..hub.download import download_imagenet_weights
    from ..machine import start_machine

    download_imagenet_weights(settings.backbone, folder.weights)
    return discover_folder(folder, settings, cache, start_machine(device).device)


def write_table(out: Path, folder: Path, discovered: DiscoveredFolder) -> None:
    """Write a row per readable image, as safe for spreadsheets as the predictions are."""
    from ..files import atomic_path
    from ..safe_csv import write_rows

    def rows() -> Iterator[tuple[str, str, str]]:
        yield COLUMNS
        for item, number, confidence in zip(discovered.items, discovered.domain, discovered.confidence, strict=True):
            yield f"{folder}/{item.path}", discovered.names[number], f"{confidence:.6f}"

    with atomic_path(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        write_rows(file, rows())


def print_summary(discovered: DiscoveredFolder, out: Path) -> None:
    """List the unreadable images on stderr, then print the domains and the files."""
    unreadable = discovered.unreadable
    for path, reason in unreadable[:MAX_LISTED]:
        print(f"unreadable: {one_line(path)}: {one_line(reason)}", file=sys.stderr)
    if len(unreadable) > MAX_LISTED:
        print(f"unreadable: {len(unreadable) - MAX_LISTED:,} more", file=sys.stderr)
    for number, name in enumerate(discovered.names):
        is_member = discovered.domain == number
        confidence = discovered.confidence[is_member].mean()
        print(f"{name}: {count_noun(int(is_member.sum()), 'image')}, mean confidence {confidence:.2f}")
    skipped = f"; {count_noun(len(unreadable), 'file')} could not be read" if unreadable else ""
    domains, images = count_noun(len(discovered.names), "domain"), count_noun(len(discovered.items), "image")
    print(f"{domains} of {images} written to {out} and {sheet_of(out)}{skipped}")
