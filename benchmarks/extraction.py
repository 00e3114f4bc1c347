"""Speed of storing the maps of a frozen trunk against bare forward passes, interleaved in one run.

    python benchmarks/extraction.py [--size 192] [--boundary stage5] [--images 512]

Core seconds per image of (1) bare forward passes in the same precision and batch size, and (2) reading decoded
images, the same forward passes, conversion to half precision, checksums and writing, for the plain image and views.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ssdg.data.augment import to_float
from ssdg.data.map_cache import MapFile
from ssdg.data.pixel_files import FilePixels
from ssdg.engine.pipelines import ENCODE_BATCH, TrunkEncoder
from ssdg.machine import is_fast_at_bf16, keep_freed_memory
from ssdg.models.backbones import build_backbone
from ssdg.models.frozen import freeze, trunk_maps

ROUNDS = 5
NUM_VIEWS = 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--boundary", default="stage5")
    parser.add_argument("--images", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    backbone = build_backbone(args.backbone, args.weights)
    freeze(backbone, args.boundary)
    precision = "bf16" if is_fast_at_bf16("cpu") else "fp32"
    encoder = TrunkEncoder(backbone, args.size, torch.device("cpu"), precision)
    with tempfile.TemporaryDirectory() as folder:
        pixels = random_pixels(Path(folder) / "images.u8", args.images, args.size)
        seconds = measure(encoder, pixels, Path(folder))
    bare = statistics.median(seconds["bare"])
    print(
        f"{args.backbone}, {args.size} px, up to {args.boundary}, {precision}, one thread, median of {ROUNDS} rounds"
    )
    for name, values in seconds.items():
        each = statistics.median(values)
        spread = f"{1000 * min(values):.2f} to {1000 * max(values):.2f}"
        print(f"{name:<22}{1000 * each:7.2f} ms per image ({spread}); {bare / each:.2f} of the speed of bare passes")


def random_pixels(path: Path, count: int, size: int) -> FilePixels:
    """Smooth random images in a file, as decoding leaves them."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(count):
            coarse = rng.integers(0, 256, (size // 16, size // 16, 3), np.uint8)
            file.write(np.kron(coarse, np.ones((16, 16, 1), np.uint8)).tobytes())
    return FilePixels(path, (count, size, size, 3))


def measure(encoder: TrunkEncoder, pixels: FilePixels, folder: Path) -> dict[str, list[float]]:
    """Take turns; return core seconds per image by what was measured."""
    rows, shape = np.arange(len(pixels)), encoder.shape
    seconds: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        seconds.setdefault("bare", []).append(timed(partial(bare_passes, encoder, pixels), len(rows)))
        for view in range(NUM_VIEWS + 1):
            file = MapFile(folder / f"{number}-{view}.f16", len(rows), shape, partial(encoder, pixels, view))
            name = f"stored, view {view}" if view else "stored, plain"
            seconds.setdefault(name, []).append(
                timed(partial(file.fill, rows, ENCODE_BATCH, lambda count: None), len(rows))
            )
    return seconds


def timed(work: Callable[[], None], count: int) -> float:
    """Return core seconds per image."""
    start = time.process_time()
    work()
    return (time.process_time() - start) / count


def bare_passes(encoder: TrunkEncoder, pixels: FilePixels) -> None:
    """Forward passes of images in memory, nothing else."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=encoder.precision == "bf16"):
        for start in range(0, len(pixels), ENCODE_BATCH):
            images = torch.from_numpy(pixels[np.arange(start, min(start + ENCODE_BATCH, len(pixels)))])
            trunk_maps(encoder.backbone, to_float(images))


if __name__ == "__main__":
    main()
