"""Small valid inputs from which cases are made: images, archives, a run, an exported model, a crawl, a web site."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from .processes import Outcome, run_command
from .server import serving

DOMAINS = ("photo", "sketch", "night")
CLASSES = ("bar", "disc")
SIZE = 32
TINY = ("batch=4", "iterations=1", "epochs=1", "backbone=digits-cnn", "weights=none", "size=32", "precision=fp32")
PACS = ("photo", "art_painting", "cartoon", "sketch")
SETUP_LIMIT = 300.0
SUITE = """preset: quick
methods:
  - {method: source-only, name: plain}
tasks: ['photo>night']
settings: {batch: 4, iterations: 1, epochs: 1, backbone: digits-cnn, weights: none, size: 32, precision: fp32}
"""


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
    web: Path
    pacs: Path
    suite: Path
    sites: tuple[str, ...]  # addresses of a hostile server; the first one has a friendly robots.txt

    @property
    def site(self) -> str:
        """The address of the server without rules for robots."""
        return self.sites[0]

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


@contextmanager
def make_seeds(root: Path) -> Iterator[Seeds]:
    """Write all seeds below `root` and start the web site; raise an error if a command does not work."""
    root.mkdir(parents=True)
    world = root / "world"
    write_images(world)
    photos = sorted((world / "photo").rglob("*.png"))
    archive, pacs = root / "photo.zip", root / "PACS.zip"
    write_zip(archive, {str(path.relative_to(world / "photo")): path for path in photos})
    write_zip(pacs, {f"{name}/{path.relative_to(world / 'photo')}": path for name in PACS for path in photos})
    write_crawl(root / "crawl")
    (root / "suite.yaml").write_text(SUITE)
    with serving(pacs, photos[0]) as sites:
        seeds = Seeds(
            root, world, root / "cache", root / "run", root / "model.onnx", archive, write_arrays(root, photos),
            root / "crawl", root / "web", pacs, root / "suite.yaml", sites,
        )  # fmt: skip
        must_work(run_command([*seeds.train(), "--out", seeds.run], root, limit=SETUP_LIMIT))
        must_work(run_command(["export", seeds.run, "--format", "onnx", "-o", seeds.onnx], root, limit=SETUP_LIMIT))
        must_work(run_command(["web", "ingest", seeds.crawl, "-o", seeds.web], root, limit=SETUP_LIMIT))
        yield seeds


def write_zip(path: Path, members: dict[str, Path]) -> None:
    """Write an archive of files by their names in it."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in members.items():
            archive.write(member, name)


def write_arrays(root: Path, photos: Sequence[Path]) -> Path:
    """Write the photos as an .npz file and return its path."""
    path = root / "arrays" / "photo.npz"
    path.parent.mkdir()
    pixels = np.stack([np.asarray(Image.open(photo)) for photo in photos])
    np.savez_compressed(path, images=pixels, labels=np.arange(len(photos)) % 2)
    return path


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
