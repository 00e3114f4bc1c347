"""Small valid inputs from which cases are made: images, archives, a trained run, an exported model, a crawl."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from .processes import Outcome, run_command

DOMAINS = ("photo", "sketch", "night")
CLASSES = ("bar", "disc")
SIZE = 32
TINY = ("batch=4", "iterations=2", "epochs=1", "backbone=digits-cnn", "weights=none", "size=32")
SETUP_LIMIT = 300.0


@dataclass(frozen=True)
class Seeds:
    """Paths of valid inputs."""

    root: Path
    world: Path
    cache: Path
    run: Path
    onnx: Path
    archive: Path
    arrays: Path
    crawl: Path
    suite: Path

    def train(self, cache: Path | None = None) -> tuple[str | Path, ...]:
        """Return the command of a short run, without --out."""
        where = ("--data", self.world, "--labeled", "photo", "--target", "night", "--cache", cache or self.cache)
        return ("train", *where, "--device", "cpu", "--preset", "quick", "--save-seconds", "0", *TINY)


def write_images(root: Path, per_class: int = 5) -> None:
    """Write `root/domain/class/n.png`: noise with a bar or a square, brighter from domain to domain."""
    rng = np.random.default_rng(0)
    for number, domain in enumerate(DOMAINS):
        for name in CLASSES:
            folder = root / domain / name
            folder.mkdir(parents=True)
            for i in range(per_class):
                image = rng.integers(0, 60 + 60 * number, (SIZE, SIZE, 3)).astype(np.uint8)
                image[12:20, (4 if name == "bar" else 12) : (28 if name == "bar" else 20)] = 220
                Image.fromarray(image).save(folder / f"{i}.png")


def make_seeds(root: Path) -> Seeds:
    """Write all seeds below `root`; raises an error if a command does not work."""
    seeds = Seeds(
        root,
        root / "world",
        root / "cache",
        root / "run",
        root / "model.onnx",
        root / "photo.zip",
        root / "arrays" / "photo.npz",
        root / "crawl",
        root / "suite.yaml",
    )
    root.mkdir(parents=True)
    write_images(seeds.world)
    with zipfile.ZipFile(seeds.archive, "w") as archive:
        for path in sorted((seeds.world / "photo").rglob("*.png")):
            archive.write(path, path.relative_to(seeds.world / "photo"))
    paths = sorted((seeds.world / "photo").rglob("*.png"))
    seeds.arrays.parent.mkdir()
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths])
    np.savez_compressed(seeds.arrays, images=pixels, labels=np.arange(len(paths)) % 2)
    write_crawl(seeds.crawl)
    seeds.suite.write_text(
        "preset: quick\nmethods:\n  - {method: source-only, name: plain}\ntasks: ['photo>night']\n"
        "settings: {batch: 4, iterations: 2, epochs: 1, backbone: digits-cnn, weights: none, size: 32}\n"
    )
    must_work(run_command([*seeds.train(), "--out", seeds.run], root, limit=SETUP_LIMIT))
    must_work(run_command(["export", seeds.run, "--format", "onnx", "-o", seeds.onnx], root, limit=SETUP_LIMIT))
    return seeds


def write_crawl(folder: Path) -> None:
    """Write a crawl as other tools leave it: a folder per keyword."""
    rng = np.random.default_rng(1)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def must_work(outcome: Outcome) -> None:
    """Raise an error if a command that prepares the campaign failed."""
    if outcome.code != 0:
        raise RuntimeError(f"the campaign cannot start: exit code {outcome.code}\n{outcome.output}")
