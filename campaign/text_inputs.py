"""Hostile command lines, settings and suites."""

from __future__ import annotations

import random
from pathlib import Path

from .cases import VALUES, Case, Makers, mutate
from .seeds import Seeds

KEYS = (
    "epochs", "lr", "seed", "batch", "method", "backbone", "weights", "size", "augment", "freeze", "views",
    "cycles", "apl", "labeler", "labeler.epochs", "iterations", "clean_rate", "precision", "inference",
    "trunk_rate", "head", "mix", "ramp", "unknown", "", "a.b.c", "__class__", "style", "delta", "momentum",
    "weight_decay", "preset", "setting",
)  # fmt: skip
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("train",), ("resume",), ("evaluate",), ("predict",), ("features",), ("export",), ("bench",), ("bench", "list"),
    ("bench", "status"), ("methods",), ("table",), ("figure",), ("select",), ("report",), ("web",), ("web", "ingest"),
    ("web", "audit"), ("data",), ("data", "list"), ("data", "describe"), ("data", "verify"), ("data", "statistics"),
    ("data", "unpack"), ("data", "fetch", "pacs", "--from", "missing.zip"),
)  # fmt: skip
OPTIONS = (
    "--out", "-o", "--data", "--labeled", "--unlabeled", "--target", "--web", "--web-label", "--preset", "--method",
    "--seed", "--device", "--threads", "--format", "--json", "--reject", "--minutes", "--save-seconds", "--plugin",
    "--cache", "--jobs", "--tasks", "--methods", "--batch", "--precision", "--classes", "--config", "--dry-run",
    "--help", "--unknown", "--from", "--to", "--against", "--similarity", "--min-side", "--max-mb", "--encoding",
)  # fmt: skip


def make_command_line(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a command with random options and values."""
    words = list(rng.choice(COMMANDS))
    for _ in range(rng.randrange(5)):
        kind = rng.random()
        if kind < 0.5:
            words += [rng.choice(OPTIONS), rng.choice(VALUES)]
        elif kind < 0.7:
            words.append(rng.choice(VALUES))
        elif kind < 0.8:
            words.append(str(rng.choice([seeds.run, seeds.world, seeds.onnx, seeds.archive, seeds.suite])))
        else:
            words.append(f"{rng.choice(KEYS)}={rng.choice(VALUES)}")
    if words[0] == "train":
        words.append("--dry-run")
    return Case("command line", words)


def make_setting(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a dry run with a hostile setting."""
    return Case("setting", [*seeds.train(), "--dry-run", f"{rng.choice(KEYS)}={rng.choice(VALUES)}"])


def make_suite(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a benchmark of a damaged suite."""
    text = seeds.suite.read_text()
    choice = rng.random()
    if choice < 0.4:
        part = rng.choice(["quick", "source-only", "plain", "photo>night", "4", "32"])
        text = text.replace(part, rng.choice(VALUES), 1)
    elif choice < 0.9:
        text = mutate(text.encode(), rng).decode(errors="replace")
    else:
        text = alias_bomb()
    (folder / "suite.yaml").write_text(text, errors="surrogateescape")
    where = ("--data", seeds.world / "missing", "--out", "bench", "--jobs", "1", "--device", "cpu")
    return Case("suite", ("bench", "suite.yaml", *where))


def alias_bomb() -> str:
    """Return YAML of nine lines that stands for nine to the power of ten values."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for name, before in zip("bcdefghij", "abcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines)


TEXT_MAKERS: Makers = {
    "command lines": (make_command_line, 8),
    "settings": (make_setting, 5),
    "suites": (make_suite, 4),
}
