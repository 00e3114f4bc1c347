"""The commands that write something, each with the files that have to be the same whenever it is killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .bench_workers import fork_workers
from .processes import Outcome, Setup, run_command
from .seeds import Seeds

LIMIT = 300.0  # seconds; training may be slow next to other work, but it ends
WEIGHTS = ("run/model/*.safetensors", "run/predictions.csv", "run/labels/*")
CELLS = ("bench/cells/*/model/*.safetensors", "bench/cells/*/predictions.csv")


@dataclass(frozen=True)
class Job:
    """A command that writes to the folder `out`.

    `exact` are glob patterns below `out`. `weight` is how often it is chosen: less often if it takes long.
    `code` is its exit code when nothing disturbs it. `fill` writes what has to be in `out` before.
    `inject` puts a disturbance into the process that it is for, which is not always the one of the command.
    """

    name: str
    words: Callable[[Path], Sequence[str | Path]]
    exact: tuple[str, ...]
    weight: float = 2.0
    code: int = 0
    fill: Callable[[Path], object] | None = None
    inject: Callable[[Setup], Setup] = lambda disturb: disturb
    is_worker: bool = False

    def start_folder(self, out: Path) -> Path:
        """Return the folder as it is before the command: new, with what the command needs."""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        if self.fill is not None:
            self.fill(out)
        return out

    def run(self, out: Path, disturb: Setup = lambda: None, signal_after: tuple[int, float] | None = None) -> Outcome:
        """Run the command once."""
        setup = self.inject(disturb)
        return run_command(self.words(out), out.parent, setup=setup, signal_after=signal_after, limit=LIMIT)


def make_jobs(seeds: Seeds) -> list[Job]:
    """Return all jobs."""
    return [*training_jobs(seeds), *model_jobs(seeds), *data_jobs(seeds)]


def training_jobs(seeds: Seeds) -> list[Job]:
    """Return runs, and a benchmark whose launcher or worker is disturbed."""
    frozen = ("--method", "source-only", "freeze=stage1", "warm_epochs=1", "views=1")
    bench = ("bench", seeds.suite, "--data", seeds.world, "--cache", seeds.cache, "--jobs", "1", "--device", "cpu")

    def bench_words(out: Path) -> Sequence[str | Path]:
        return (*bench, "--save-seconds", "0", "--out", out / "bench")

    def into_launcher(disturb: Setup) -> Setup:
        def setup() -> None:
            fork_workers(lambda: None)
            disturb()

        return setup

    def into_worker(disturb: Setup) -> Setup:
        return lambda: fork_workers(disturb)

    return [
        Job("train mcd", lambda out: (*seeds.train(), "--method", "mcd", "--out", out / "run"), WEIGHTS, 3),
        Job("train eid", lambda out: (*seeds.train(), "cycles=1", "--out", out / "run"), WEIGHTS, 3),
        Job("train frozen", lambda out: (*seeds.train(out / "cache"), *frozen, "--out", out / "run"), WEIGHTS, 3),
        Job("bench launcher", bench_words, CELLS, 1, inject=into_launcher),
        Job("bench worker", bench_words, CELLS, 3, inject=into_worker, is_worker=True),
    ]


def model_jobs(seeds: Seeds) -> list[Job]:
    """Return the commands that read a run."""
    run, night = seeds.run, seeds.world / "night"
    return [
        Job("predict", lambda out: ("predict", run, night, "-o", out / "p.csv"), ("p.csv",), 4),
        Job("export", lambda out: ("export", run, "--format", "safetensors", "-o", out / "m"), ("m/*.safetensors",)),
        Job("export onnx", lambda out: ("export", run, "--format", "onnx", "-o", out / "m.onnx"), ("m.onnx",), 0.2),
        Job("report", lambda out: ("report", run, "-o", out / "r.html"), (), 1),
    ]


def data_jobs(seeds: Seeds) -> list[Job]:
    """Return the commands that write data."""
    fetch, images = ("data", "fetch", "pacs"), ("PACS/**/*.png",)
    audit = ("--backbone", "digits-cnn", "--weights", "none", "--size", "32", "--cache", seeds.cache)
    against = ("--against", seeds.world / "photo")
    return [
        Job("web ingest", lambda out: ("web", "ingest", seeds.crawl, "-o", out / "web"), ("web/**/*.png",), 4),
        Job(
            "web audit",
            lambda out: ("web", "audit", out / "web", *against, *audit),
            ("web/manifest.csv", "web/**/*.png"),
            fill=lambda out: shutil.copytree(seeds.web, out / "web"),
        ),
        Job("data unpack", lambda out: ("data", "unpack", seeds.arrays.parent, out / "u"), ("u/**/*.png",), 4),
        # Exit code 1: PACS has more images than the archive.
        Job("data fetch file", lambda out: (*fetch, "--from", seeds.pacs, "--to", out / "PACS"), images, 3, code=1),
        Job(
            "data fetch server",
            lambda out: (*fetch, "--source", f"{seeds.site}/PACS.zip", "--to", out / "PACS"),
            images,
            code=1,
        ),
    ]
