"""Damaged and strange files: images, arrays, models, run folders, and names."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from .cases import Case, Makers, Words, damage, mutate
from .seeds import Seeds

NAMES = (
    "a\nb", "\x1b[2J", "=cmd|calc", "<script>x", "<img src=x onerror=alert(1)>", "ünï", "x" * 200, " ", "-rf", "%00",
    "con", "a,b", '"', "'", "`id`", "\u202e", "+1", "@a", "\udcff\udcfe", "é\udc80",
)  # fmt: skip
STRANGE_IMAGES = (
    b"", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"BM",
    b"RIFF\0\0\0\0WEBP", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xff\0\0\xff\xff\x08\x02\0\0\0\0\0\0\0",
)  # fmt: skip


def make_image(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a class folder with a damaged or strange file among its images."""
    shutil.copytree(seeds.world / "photo", folder / "photo")
    target = folder / "photo" / "bar" / "0.png"
    kind = rng.randrange(8)
    if kind < 4:
        target.write_bytes(mutate(target.read_bytes(), rng))
    elif kind == 4:
        target.unlink()
        os.mkfifo(target)
    elif kind == 5:
        target.unlink()
        target.symlink_to(rng.choice(["/dev/zero", "0.png", "..", "/proc/self/mem", "missing"]))
    elif kind == 6:
        target.write_bytes(rng.choice(STRANGE_IMAGES))
    else:
        (folder / "photo" / "self").symlink_to("self")
    return Case("image", rng.choice(readers(seeds)))


def readers(seeds: Seeds) -> list[Words]:
    """Return the commands that read the class folders in `photo`."""
    return [
        ("data", "verify", "photo"),
        ("data", "describe", "."),
        ("data", "statistics", "."),
        ("predict", seeds.run, "photo", "-o", "p.csv"),
        ("predict", seeds.onnx, "photo", "-o", "p.csv"),
        ("evaluate", seeds.run, "--data", "photo"),
        ("web", "ingest", "photo", "-o", "web"),
        ("web", "audit", seeds.web, "--against", "photo", "--no-labels", "--dry-run"),
    ]


def make_names(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of folders whose classes and files have strange names."""
    shutil.copytree(seeds.world / "photo", folder / "photo")
    (folder / "photo" / "bar").rename(folder / "photo" / rng.choice(NAMES))
    first = folder / "photo" / "disc" / "0.png"
    first.rename(first.with_name(rng.choice(NAMES) + ".png"))
    return Case("names", rng.choice([*readers(seeds), ("predict", seeds.run, "photo", "-o", "p.jsonl")]))


def make_arrays(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of a damaged .npz file."""
    (folder / "photo.npz").write_bytes(mutate(seeds.arrays.read_bytes(), rng))
    words: list[Words] = [("data", "describe", "."), ("data", "unpack", ".", "u"), ("data", "verify", ".")]
    return Case("arrays", rng.choice(words))


def make_model(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a prediction of a damaged model folder."""
    shutil.copytree(seeds.run / "model", folder / "model")
    target = rng.choice(sorted(path for path in (folder / "model").iterdir() if path.is_file()))
    damage(target, rng)
    return Case(f"model {target.name}", ("predict", "model", seeds.world / "night" / "bar", "-o", "p.csv"))


def make_onnx(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a prediction of a damaged ONNX file."""
    if rng.random() < 0.02:
        os.mkfifo(folder / "m.onnx")
    else:
        (folder / "m.onnx").write_bytes(mutate(seeds.onnx.read_bytes(), rng))
    return Case("onnx", ("predict", "m.onnx", seeds.world / "night" / "bar", "-o", "p.csv"))


def make_run(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of a damaged run folder."""
    shutil.copytree(seeds.run, folder / "run")
    suffixes = (".json", ".jsonl", ".npz", ".safetensors", ".csv", ".webp")
    target = rng.choice([path for path in sorted((folder / "run").rglob("*")) if path.suffix in suffixes])
    if rng.random() < 0.05:
        target.unlink()
        os.mkfifo(target)
    else:
        damage(target, rng)
    words: list[Words] = [
        ("report", "run", "-o", "r.html"),
        ("select", "run"),
        ("resume", "run"),
        ("evaluate", "run", "--data", seeds.world / "night"),
        ("export", "run", "--format", "safetensors", "-o", "m"),
        (*seeds.train(), "--out", "run"),
    ]
    return Case(f"run {target.name}", rng.choice(words))


def make_cache(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a run with a damaged cache of decoded images."""
    shutil.copytree(seeds.cache, folder / "damaged")
    target = rng.choice(sorted(path for path in (folder / "damaged").rglob("*") if path.is_file()))
    damage(target, rng)
    return Case(
        f"cache {target.suffix}", (*seeds.train(folder / "damaged"), "--method", "source-only", "--out", "run")
    )


FILE_MAKERS: Makers = {
    "images": (make_image, 4),
    "names": (make_names, 4),
    "npz files": (make_arrays, 4),
    "models": (make_model, 3),
    "onnx files": (make_onnx, 4),
    "run folders": (make_run, 4),
    "image caches": (make_cache, 1),
}
