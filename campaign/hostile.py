"""Hostile inputs by grammar and mutation: no traceback, no hang, no gigabytes, no byte outside the case's folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .kills import fresh, names_below
from .processes import Outcome, run_command
from .report import Finding, Tally
from .seeds import Seeds

MAX_MEMORY = 2**30  # bytes above start-up
LIMIT = 60.0  # a case that takes longer than HANG of its own time is a finding; LIMIT ends it
HANG = 20.0
EXIT_CODES = (0, 1, 2)
Words = Sequence[str | Path]

VALUES: tuple[str, ...] = (
    "", " ", "-1", "0", "nan", "inf", "-inf", "1e400", "9" * 400, "0x_", "1_000", "true", "null", "~", "[]", "{}",
    "[" * 3000, "2024-99-99", "!!bool x", "!!timestamp x", "!!python/object/apply:os.system [id]", "&a [*a, *a]",
    "*a", "? x", "a: b: c", "../..", "/", "/dev/zero", "/dev/stdin", "/proc/self/mem", "~root", "$HOME", "\\x00",
    "\x1b[31mred", "\u202etxt", "é" * 300, "=1+1", "<script>alert(1)</script>", "%s%n", "'; drop table", "\n",
    "a\tb", "x" * 5000, "🤖", "--", "-", "@", "#", "1e-400",
)  # fmt: skip
KEYS = (
    "epochs", "lr", "seed", "batch", "method", "backbone", "weights", "size", "augment", "freeze", "views",
    "cycles", "apl", "labeler", "labeler.epochs", "iterations", "clean_rate", "precision", "inference",
    "trunk_rate", "head", "mix", "ramp", "unknown", "", "a.b.c", "__class__", "style", "delta", "momentum",
    "weight_decay", "preset", "setting",
)  # fmt: skip
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("train",), ("resume",), ("evaluate",), ("predict",), ("features",), ("export",), ("bench",), ("bench", "list"),
    ("methods",), ("table",), ("figure",), ("select",), ("report",), ("web",), ("web", "ingest"), ("web", "audit"),
    ("data",), ("data", "list"), ("data", "describe"), ("data", "verify"), ("data", "statistics"),
    ("data", "unpack"),
)  # fmt: skip
OPTIONS = (
    "--out", "-o", "--data", "--labeled", "--unlabeled", "--target", "--web", "--web-label", "--preset", "--method",
    "--seed", "--device", "--threads", "--format", "--json", "--reject", "--minutes", "--save-seconds", "--plugin",
    "--cache", "--jobs", "--tasks", "--methods", "--batch", "--precision", "--classes", "--config", "--dry-run",
    "--help", "--unknown",
)  # fmt: skip
NAMES = (
    "a\nb",
    "\x1b[2J",
    "=cmd|calc",
    "<script>x",
    "ünï",
    "x" * 200,
    " ",
    "-rf",
    "%00",
    "con",
    "a,b",
    '"',
    "'",
    "`id`",
    "\u202e",
)
JSON_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    "x",
    "../x",
    [],
    {},
    [[]],
    "\x1b[31m",
    float("nan"),
    "9" * 400,
)


@dataclass(frozen=True)
class Case:
    """A command on a hostile input, which lies in the folder it runs in."""

    name: str
    words: Words


Maker = Callable[[Seeds, Path, random.Random], Case]


def run_hostile(
    seeds: Seeds, work: Path, rng: random.Random, until: float, tally: Tally, most: int | None = None
) -> None:
    """Run cases until the time is over, or `most` of them: every kind of input in turn."""
    turn = 0
    while time.monotonic() < until and (most is None or turn < most):
        part, make = list(MAKERS.items())[turn % len(MAKERS)]
        turn += 1
        around = fresh(work / "case")
        inside = around / "inside"
        inside.mkdir()
        case = make(seeds, inside, random.Random(rng.random()))
        outcome = run_command(case.words, inside, setup=lambda inside=inside: use_home(inside), limit=LIMIT)  # type: ignore[misc]
        judge(part, case, outcome, around, tally)


def use_home(folder: Path) -> None:
    """Make the fork write what belongs into the user's home to the case's folder."""
    os.environ["HOME"] = str(folder / "home")
    os.environ["SSDG_CACHE"] = str(folder / "cache")


def judge(part: str, case: Case, outcome: Outcome, around: Path, tally: Tally) -> None:
    """Record what is wrong with the outcome of a case."""
    tally.count(part)
    tally.memory = max(tally.memory, outcome.memory)
    tally.seconds = max(tally.seconds, outcome.seconds)
    problems = {
        "traceback": outcome.crashed,
        "hang": outcome.hung or outcome.seconds > HANG,
        "memory": outcome.memory > MAX_MEMORY,
        "outside": {name.split("/")[0] for name in names_below(around)} != {"inside"},
        "terminal escape": "\x1b[2J" in outcome.output,
        f"exit code {outcome.code}": not outcome.crashed and not outcome.hung and outcome.code not in EXIT_CODES,
    }
    words = " ".join(str(word)[:60] for word in case.words)
    for problem, is_wrong in problems.items():
        if is_wrong:
            tally.add(Finding(part, f"{case.name}: ssdg {words}", problem, outcome.output[-2000:]))


# Command lines and settings


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
    return Case("command line", [word.replace("\x00", "") for word in words])


def make_setting(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a dry run with a hostile setting."""
    setting = f"{rng.choice(KEYS)}={rng.choice(VALUES)}".replace("\x00", "")
    return Case("setting", [*seeds.train(), "--dry-run", setting])


def make_suite(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a benchmark of a damaged suite."""
    text = seeds.suite.read_text()
    choice = rng.random()
    if choice < 0.4:
        text = text.replace(
            rng.choice(["quick", "source-only", "plain", "photo>night", "4", "32"]), rng.choice(VALUES), 1
        )
    elif choice < 0.7:
        text = mutate(text.encode(), rng).decode(errors="replace")
    else:
        text = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
        )
    (folder / "suite.yaml").write_text(text, errors="replace")
    words = (
        "bench",
        "suite.yaml",
        "--data",
        seeds.world / "missing",
        "--out",
        "bench",
        "--jobs",
        "1",
        "--device",
        "cpu",
    )
    return Case("suite", words)


# Files


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
        target.write_bytes(
            rng.choice([b"", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"GIF89a", b"\x89PNG\r\n\x1a\n"])
        )
    else:
        (folder / "photo" / "self").symlink_to("self")
    reader = rng.choice(
        [("data", "verify", "photo"), ("data", "describe", "."), ("predict", seeds.run, "photo", "-o", "p.csv")]
    )
    return Case("image", reader)


def make_archive(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of a damaged zip file."""
    (folder / "photo.zip").write_bytes(mutate(seeds.archive.read_bytes(), rng))
    reader = rng.choice(
        [
            ("data", "verify", "photo.zip"),
            ("predict", seeds.run, "photo.zip", "-o", "p.csv"),
            ("web", "ingest", "photo.zip", "-o", "web"),
            ("data", "describe", "."),
        ]
    )
    return Case("archive", reader)


def make_arrays(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of a damaged .npz file."""
    (folder / "photo.npz").write_bytes(mutate(seeds.arrays.read_bytes(), rng))
    return Case(
        "arrays",
        rng.choice([("data", "describe", "."), ("data", "unpack", ".", "u"), ("data", "verify", ".")]),
    )


def make_model(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a prediction of a damaged model folder."""
    shutil.copytree(seeds.run / "model", folder / "model")
    target = rng.choice(sorted(path for path in (folder / "model").iterdir() if path.is_file()))
    damage(target, rng)
    return Case(f"model {target.name}", ("predict", "model", seeds.world / "night" / "bar", "-o", "p.csv"))


def make_onnx(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a prediction of a damaged ONNX file."""
    if rng.random() < 0.05:
        os.mkfifo(folder / "m.onnx")
    else:
        (folder / "m.onnx").write_bytes(mutate(seeds.onnx.read_bytes(), rng))
    return Case("onnx", ("predict", "m.onnx", seeds.world / "night" / "bar", "-o", "p.csv"))


def make_run(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of a damaged run folder."""
    shutil.copytree(seeds.run, folder / "run")
    files = [
        path
        for path in sorted((folder / "run").rglob("*"))
        if path.suffix in (".json", ".jsonl", ".npz", ".safetensors")
    ]
    target = rng.choice(files)
    if rng.random() < 0.05:
        target.unlink()
        os.mkfifo(target)
    else:
        damage(target, rng)
    reader = rng.choice(
        [
            ("report", "run", "-o", "r.html"),
            ("select", "run"),
            ("resume", "run"),
            ("evaluate", "run", seeds.world / "night"),
        ]
    )
    return Case(f"run {target.name}", reader)


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


def make_crawl(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return an import of a list with strange paths and labels."""
    shutil.copytree(seeds.crawl, folder / "crawl")
    rows = ["path,class"] + [f"crawl/bar/{i}.png,bar" for i in range(4)]
    for _ in range(rng.randrange(1, 4)):
        path = rng.choice(["../../etc/passwd", "/etc/passwd", "crawl/bar/0.png", *VALUES])
        rows.insert(rng.randrange(len(rows) + 1), f"{path},{rng.choice(VALUES)}")
    text = "\n".join(rows)
    data = text.encode(errors="replace")
    (folder / "list.csv").write_bytes(mutate(data, rng) if rng.random() < 0.3 else data)
    return Case("crawl", ("web", "ingest", rng.choice(["list.csv", "crawl"]), "-o", "web"))


def make_names(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of folders whose classes and files have strange names."""
    shutil.copytree(seeds.world / "photo", folder / "photo")
    name = rng.choice(NAMES)
    (folder / "photo" / "bar").rename(folder / "photo" / name)
    first = folder / "photo" / "disc" / "0.png"
    first.rename(first.with_name(rng.choice(NAMES) + ".png"))
    readers: list[Words] = [
        ("data", "verify", "photo"),
        ("data", "describe", "."),
        ("predict", seeds.run, "photo", "-o", "p.csv"),
        ("predict", seeds.run, "photo"),
        ("web", "ingest", "photo", "-o", "web"),
        ("evaluate", seeds.run, "photo"),
    ]
    return Case("names", rng.choice(readers))


MAKERS: dict[str, Maker] = {
    "command lines": make_command_line,
    "settings": make_setting,
    "suites": make_suite,
    "images": make_image,
    "zip files": make_archive,
    "npz files": make_arrays,
    "models": make_model,
    "onnx files": make_onnx,
    "run folders": make_run,
    "crawls": make_crawl,
    "names": make_names,
}
