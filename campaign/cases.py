"""What a hostile input is, and how valid content is damaged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .seeds import Seeds

Words = Sequence[str | Path]


@dataclass(frozen=True)
class Case:
    """A command on a hostile input, which lies in the folder it runs in."""

    name: str
    words: Words


Maker = Callable[[Seeds, Path, random.Random], Case]
Makers = dict[str, tuple[Maker, int]]  # with the number of inputs of each round

VALUES: tuple[str, ...] = (
    "", " ", "-1", "0", "nan", "inf", "-inf", "1e400", "9" * 400, "0x_", "1_000", "true", "null", "~", "[]", "{}",
    "[" * 3000, "2024-99-99", "!!bool x", "!!timestamp x", "!!python/object/apply:os.system [id]", "&a [*a, *a]",
    "*a", "? x", "a: b: c", "../..", "/", "/dev/zero", "/dev/stdin", "/proc/self/mem", "~root", "$HOME", "\\x00",
    "\x1b[31mred", "\u202etxt", "é" * 300, "=1+1", "<script>alert(1)</script>", "%s%n", "'; drop table", "\n",
    "a\tb", "x" * 5000, "🤖", "--", "-", "@", "#", "1e-400", "\udcff\udcfe",
)  # fmt: skip
JSON_VALUES: tuple[Any, ...] = (
    None, True, -1, 10**30, 1.5, "x", "../x", [], {}, [[]], "\x1b[31m", float("nan"), "9" * 400, 1e308, "\ud800",
)  # fmt: skip


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return damaged content: flipped, cut, repeated, inserted or replaced bytes."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(data) + 1) if data else 0
        size = rng.choice([1, 1, 4, 64, 1024])
        kind = rng.randrange(6)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = rng.randbytes(size)
        elif kind == 3:
            data[at : at + size] = b"\xff" * size
        elif kind == 4:
            data[at:at] = data[at : at + size]
        else:
            data[at : at + size] = b"\0" * size
    return bytes(data)


def damage(path: Path, rng: random.Random) -> None:
    """Replace a value of a JSON file, or bytes of any file."""
    if path.suffix == ".json" and rng.random() < 0.6:
        value = json.loads(path.read_text())
        path.write_text(json.dumps(replace_leaf(value, rng)))
    else:
        path.write_bytes(mutate(path.read_bytes(), rng))


def replace_leaf(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with one part replaced, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key, kind = rng.choice(sorted(value)), rng.random()
        if kind < 0.1:
            return {name: part for name, part in value.items() if name != key}
        if kind < 0.2:
            return {**value, "unknown": rng.choice(JSON_VALUES)}
        return {**value, key: replace_leaf(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        return [replace_leaf(part, rng) if i == at else part for i, part in enumerate(value)]
    return rng.choice(JSON_VALUES)
