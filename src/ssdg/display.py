"""The progress of a run in a terminal or a notebook: a bar with the time left, a line per epoch; elsewhere lines."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from .config import SMALL_CNNS, RunConfig
from .data.hidden import Problem
from .engine.events import Event
from .engine.timing.forecast import Forecast
from .schema import stage_group
from .terminal import Console


def is_watched() -> bool:
    """Return whether output goes to a terminal or a notebook, not to a file or a pipe."""
    console = Console()
    return console.is_terminal or console.is_jupyter


class Screen:
    """A progress bar with the time left, and lines above it. Without a terminal there are lines only."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(quiet=quiet, highlight=False, soft_wrap=True)
        # A notebook needs ipywidgets to draw a bar.
        has_bar = find_spec("ipywidgets") is not None if self.console.is_jupyter else self.console.is_terminal
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counted]} · {task.fields[left]} left"),
            console=self.console,
            transient=True,
            disable=not has_bar,
        )

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line verbatim: names of folders, domains and classes may look like markup."""
        self.console.print(text, style=style, markup=False)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self.say(text, "yellow")


def describe_recipe(config: RunConfig) -> str:
    """Return in one line what preset `best` chose for the images, and why."""
    is_small = config.backbone in SMALL_CNNS
    size = "small images, so a small network" if is_small else f"photographs at {config.size} px"
    if config.weights == "none":
        start = "random weights"
    elif config.freeze == "none":
        start = "pretrained weights, all layers trained"
    else:
        layers = "all layers" if config.freeze == "all" else f"layers up to {config.freeze}"
        start = f"pretrained weights, {layers} frozen and computed once for {config.views} views"
    mirror = {"character-views": "never mirrored", "photo-views": "mirrored too"}.get(config.augment, "")
    views = f"randomized views ({mirror})" if mirror else f"augment={config.augment}"
    return f"{size}; {start}; {views}"


class Display(Screen):
    """Shows the events of a run. Without a folder (a dry run) it names no files and shows no scores."""

    def __init__(self, folder: Path | None, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self.folder = folder
        self.clock = TimeLeft()
        self.start = time.monotonic()
        self.titles: dict[tuple[str, int], str] = {}

    @property
    def is_dry(self) -> bool:
        """Whether the run is a dry run."""
        return self.folder is None

    def expect(self, forecast: Forecast) -> None:
        """Start the bar with an estimate of the whole run."""
        self.clock.forecast = forecast

    def announce(self, config: RunConfig, problem: Problem) -> None:
        """Print what is trained on what."""
        say, task = self.say, problem.task
        web = dict.fromkeys(problem.web_labels, f", web-labels {config.web_label}")
        named = [f"{name} ({len(images):,}{web.get(name, '')})" for name, images in task.unlabeled.items()]
        others = ", ".join(named) or "none"
        say(f"{config.method} · preset {config.preset} · seed {config.seed}, {len(task.classes)} classes", "bold")
        say(f"  labeled    {problem.domains[0]} ({len(task.labeled):,} images)")
        say(f"  unlabeled  {others}")
        if problem.target is not None:
            state = "" if problem.target.is_labeled else ", to be predicted"
            role = "unseen    " if config.setting == "ssdg" else "adapted to"
            say(f"  {role} {problem.target.name} ({len(problem.target.images):,}{state})")
        say(f"  network    {config.backbone}, weights {config.weights}, {config.size} px, {config.precision}")
        if config.preset == "best":
            say(f"  recipe     {describe_recipe(config)}")
        say(f"  folder     {self.folder or 'temporary'}")
        for path, reason in problem.unreadable[:5]:
            say(f"  left out   {path}: {reason}", "yellow")
        if len(problem.unreadable) > 5:
            say(f"  left out   {len(problem.unreadable):,} files in all, listed in unreadable.tsv", "yellow")

    def hear(self, event: Event) -> None:
        """Show an event of the engine."""
        show = getattr(self, f"_on_{event['event']}", None)
        if show is not None:
            show(event)

    def _on_start(self, event: Event) -> None:
        self.clock.expect(event["stages"])
        self.titles = {(stage["key"], stage["round"]): stage.get("title", "") for stage in event["stages"]}
        if self.clock.forecast is not None:
            steps = f"{self.clock.total:,} steps, evaluation and final scoring"
            end = time.strftime("%H:%M", time.localtime(time.time() + (self.clock.left or 0)))
            self.say(f"  expected   about {duration(self.clock.left)}: {steps}; end at {end}")
        left = duration(self.clock.left)
        self.task = self.bar.add_task("starting", total=self.clock.total, counted="steps", left=left)

    def _on_discovered(self, event: Event) -> None:
        domains = ", ".join(f"{name} ({count:,} images)" for name, count in event["domains"].items())
        self.say(f"unlabeled domains by style: {domains}", "cyan")

    def _on_trunk(self, event: Event) -> None:
        layers = "all layers" if event["boundary"] == "all" else f"layers up to {event['boundary']}"
        size = f"{event['bytes_per_image'] / 1000:,.1f} kB per image with {event['views']} views"
        state = f"{event['missing']:,} to compute in {event['precision']}" if event["missing"] else "all stored"
        self.say(f"frozen layers: {layers}; stored maps take {size}; {state}", "cyan")
        self.extraction = self.bar.add_task(
            "frozen layers", total=event["missing"], counted="maps", left="-", visible=False
        )
        self.extraction_start = time.monotonic()

    def _on_extract(self, event: Event) -> None:
        seconds = (time.monotonic() - self.extraction_start) * (event["total"] / event["done"] - 1)
        is_done = event["done"] == event["total"]
        self.bar.update(self.extraction, completed=event["done"], left=duration(seconds), visible=not is_done)

    def _on_probe(self, event: Event) -> None:
        if self.is_dry:
            return
        sets = {"validation": "held-out labeled images", "target": "the target"}
        scores = [f"{event[name]:.2f} % on {title}" for name, title in sets.items() if event.get(name) is not None]
        self.say(f"probe (linear classifier on the pretrained features): {', '.join(scores) or 'fitted'}", "cyan")

    def _on_step(self, event: Event) -> None:
        self.clock.tick(event)
        self.bar.update(
            self.task,
            completed=self.clock.done,
            description=self._stage(event),
            left=duration(self.clock.left),
        )

    def _stage(self, event: Event) -> str:
        title = self.titles.get((event["key"], event["round"])) or event["key"]
        return f"cycle {event['round']} · {title}"

    def _on_epoch(self, event: Event) -> None:
        losses = [f"loss {event['loss']:.3f}"] if "loss" in event else []  # the parts are in events.jsonl
        scores = [f"{name} {event[name][-1]:.2f} %" for name in ("validation", "target") if name in event]
        prefix = f"{self._stage(event)} · epoch {event['epoch']}/{event['epochs']}"
        self.clock.pause()
        if self.is_dry:
            self.say(prefix)
            return
        self.say(f"{prefix:<44} {'  '.join([*losses, *scores])}")

    def _on_trained(self, event: Event) -> None:
        self.clock.finish(event)

    def _on_labeled(self, event: Event) -> None:
        for name, row in event["domains"].items():
            accuracy = ""
            if row.get("accuracy") is not None and not self.is_dry:
                accuracy = f", accuracy {row['accuracy']:.2f} %"
                if row["kept"] < row["images"] and row["kept_accuracy"] is not None:
                    accuracy += f" (selected: {row['kept_accuracy']:.2f} %)"
            prefix = f"cycle {event['round']} · {event.get('title') or event['key']} · {name}"
            counts = f"selected {row['kept']:,} of {row['images']:,}"
            self.say(f"{prefix:<44} {counts}{accuracy}{describe_crawl(row)}", "cyan")

    def conclude(self, result: dict[str, Any]) -> None:
        """Print the final numbers; those of a dry run mean nothing."""
        self.bar.stop()
        if self.is_dry:
            if "profile" in result:
                self.console.print(profile_table(result["profile"]))
            return
        target = result["task"]["target"]
        for name, title in (("target", f"unseen {target}"), ("validation", "held-out labeled")):
            if name in result:
                self.console.print(score_table(title, result[name]))
        if warning := below_probe(result):
            self.warn(warning)
        if "profile" in result:
            self.console.print(profile_table(result["profile"]))
        assert self.folder is not None
        if target is not None:
            self.say(f"predictions for {target}: {self.folder / 'predictions.csv'}")
        times = f"{duration(time.monotonic() - self.start)} in all, {duration(result['seconds'])} of it in training"
        self.say(f"{times}; all numbers in {self.folder / 'result.json'}")


def below_probe(result: dict[str, Any]) -> str:
    """Return a warning if the run is less accurate than the probe; "" if it is not, or if there is no probe."""
    for name, title in (("target", f"unseen {result['task']['target']}"), ("validation", "held-out labeled images")):
        reference, scores = result.get("probe", {}).get(name), result.get(name)
        if reference is not None and scores is not None:
            accuracy = scores["final"]["mean"]
            if accuracy < reference:
                return (
                    f"below the probe: {accuracy:.2f} % on {title}, where a linear classifier on the pretrained "
                    f"features reaches {reference:.2f} %; train that instead (--method probe or self-training), or "
                    "freeze more layers (freeze=), lower lr, or start from the probe (head=probe)"
                )
            return ""
    return ""


def score_table(title: str, scores: dict[str, Any]) -> Table:
    """Return a table of final and last-five accuracies of each network and of their mean; one network is its mean."""
    table = Table(title=f"accuracy (%) on {escape(title)}", title_justify="left", title_style="bold")
    table.add_column("")
    names = {name: name.replace("_", " ") for name in scores["final"]}
    if len(names) == 2:
        names = {"mean": "network"}
    columns = list(names)
    for name in names.values():
        table.add_column(name, justify="right")
    table.add_row("last epoch", *(f"{scores['final'][c]:.2f}" for c in columns))
    if scores["epochs_averaged"] > 1:
        mean_of = f"mean of last {scores['epochs_averaged']} epochs"
        table.add_row(mean_of, *(f"{scores['last_five'][c]:.2f}" for c in columns))
    return table


def profile_table(profile: dict[str, Any]) -> Table:
    """Return a table of the time per phase, longest first."""
    rate = profile["images_per_second"]
    title = "time per phase" + (f"; {rate:,.0f} images/s in training" if rate else "")
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("phase", "seconds", "share, %"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for name, seconds in sorted(profile["seconds"].items(), key=lambda pair: -pair[1]):
        table.add_row(name, f"{seconds:,.1f}", f"{100 * seconds / profile['total']:.1f}")
    return table


class TimeLeft:
    """Estimates the time left: steps to come, weighted by the time a step of their kind has taken so far.

    With a forecast, there is an estimate before the first step, which includes evaluations and the final scoring.
    """

    def __init__(self) -> None:
        self.forecast: Forecast | None = None
        self.evaluations: dict[tuple[str, int], int] = {}  # one per epoch of the product
        self.planned: dict[tuple[str, int], int] = {}
        self.at: dict[tuple[str, int], int] = {}
        self.pace: dict[str, float] = {}  # seconds per step by group of stages
        self.mark: tuple[tuple[str, int], int, float] | None = None

    @property
    def total(self) -> int:
        """The steps of the whole run."""
        return sum(self.planned.values())

    @property
    def done(self) -> int:
        """The steps done."""
        return sum(self.at.values())

    @property
    def left(self) -> float | None:
        """The seconds left, or None before the first step if there is no forecast."""
        if not self.pace and self.forecast is None:
            return None
        remaining = {stage: steps - self.at.get(stage, 0) for stage, steps in self.planned.items()}
        seconds = sum(steps * self._pace(stage[0]) for stage, steps in remaining.items())
        return seconds + self._rest(remaining)

    def _pace(self, key: str) -> float:
        """Return the seconds of a step: of this kind so far, else as forecast, else the mean of other kinds."""
        group = stage_group(key)
        if group in self.pace:
            return self.pace[group]
        if self.forecast is not None:
            return self.forecast.step(key)
        return sum(self.pace.values()) / len(self.pace)

    def _rest(self, remaining: dict[tuple[str, int], int]) -> float:
        """Return the seconds of everything but steps: a share of each as large as that of the steps to come."""
        if self.forecast is None:
            return 0.0
        shares = {stage: steps / (self.planned[stage] or 1) for stage, steps in remaining.items()}
        evaluations = sum(count * shares[stage] for stage, count in self.evaluations.items())
        labeling = self.forecast.labeling * sum(remaining.values()) / (self.total or 1)
        frozen = 0.0 if self.done else self.forecast.frozen
        return frozen + evaluations * self.forecast.evaluation + labeling + self.forecast.final

    def expect(self, stages: list[dict[str, Any]]) -> None:
        """Set the planned stages."""
        self.planned = {(s["key"], s["round"]): s["steps"] for s in stages}
        self.evaluations = {(s["key"], s["round"]): s["epochs"] for s in stages if s.get("product")}

    def tick(self, event: Event) -> None:
        """Record a step."""
        stage, now = (event["key"], event["round"]), time.monotonic()
        if self.mark is not None and self.mark[0] == stage and event["step"] > self.mark[1]:
            fresh = (now - self.mark[2]) / (event["step"] - self.mark[1])
            group = stage_group(stage[0])
            self.pace[group] = 0.8 * self.pace.get(group, fresh) + 0.2 * fresh
        self.mark = (stage, event["step"], now)
        self.at[stage] = event["step"]

    def pause(self) -> None:
        """Do not count the time until the next step as that of a step, if evaluations count by themselves."""
        if self.forecast is not None:
            self.mark = None

    def finish(self, event: Event) -> None:
        """Record the end of a stage; its real length replaces the planned one."""
        stage = (event["key"], event["round"])
        self.at[stage] = self.planned[stage] = event["steps"]


def duration(seconds: float | None) -> str:
    """Return `3:05:09`, `12:30`, or `-` if unknown."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def describe_crawl(row: dict[str, Any]) -> str:
    """Return what is known about images of no class and about web-labels."""
    text = ""
    if "ood" in row:
        text += f"; {row['ood'] - row['ood_kept']:,} of {row['ood']:,} OOD images discarded"
        if row.get("ood_precision") is not None:
            text += f" ({row['ood_precision']:.2f} % of all discarded)"
    if "repaired" in row:
        text += f"; web-labels: {row['repaired']:,} of {row['web_wrong']:,} wrong ones repaired"
        text += f", {row['broken']:,} broken"
    return text
