"""A run from start to end in one folder."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from threading import current_thread, main_thread
from typing import Any

import torch

from ..config import RunConfig
from ..data.hidden import Problem
from ..data.streams import Pipeline
from ..discovery.discover import discover
from ..errors import UserError
from ..files import locked, remove_leftovers, write_json
from ..machine import Machine
from ..methods import METHODS, find_method
from ..methods.api import LearnerT, MakeBackbone, Method, Settings, Sizes
from ..models.backbones import build_backbone
from ..profiling import measured
from ..seeds import derive_seed
from .audit import audit_domains
from .events import Events, Listener
from .loop import Clock
from .plan import fit, plan
from .product import Built, card_of, predict_target, save_model
from .result import make_result, versions
from .samples import Samples
from .scores import unsupervised_scores, watched_images
from .stage_cache import Shelf
from .stages import StageTrainer


@dataclass(frozen=True)
class Builder:
    """Makes learners; see `ssdg.methods.api.Build`."""

    config: RunConfig
    num_classes: int
    machine: Machine
    built: dict[int, Built] = field(default_factory=dict)  # by id of the learner

    def __call__(
        self,
        key: str,
        learner: Callable[[MakeBackbone, Sizes, Any], LearnerT],
        settings: Settings,
        *,
        num_domains: int = 1,
        backbone: str | None = None,
        weights: str | None = None,
    ) -> LearnerT:
        """A learner on this machine, its initial weights drawn from (seed, key)."""
        name, source = backbone or self.config.backbone, weights or self.config.weights
        torch.manual_seed(derive_seed(self.config.seed, "init", key))
        made = learner(lambda: build_backbone(name, source), Sizes(self.num_classes, num_domains), settings)
        self.machine.prepare(made)
        self.built[id(made)] = Built(learner_name(learner), name, num_domains, settings)
        return made


def learner_name(learner: object) -> str:
    """The registered method whose product is of this class; a helper that no method ships has no name."""
    plain = {name: method.learner for name, method in METHODS.items() if method.family != "DA+DG"}
    return next((name for name, kind in plain.items() if kind is learner), "")


def run(
    config: RunConfig,
    problem: Problem,
    folder: Path,
    machine: Machine,
    *,
    listeners: tuple[Listener, ...] = (),
    save_seconds: float = 30.0,
    shelf: Path | None = None,
    about: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train, or go on training, in `folder`; returns what `result.json` holds.

    Stages that other runs have left in the folder `shelf` are taken from there, and new ones are left there.
    Called again on a finished folder it trains nothing and returns the same result.
    """
    method = find_method(config.method)
    check_needs(method, problem, config, machine.world)
    busy = f"{folder} is in use by another process; wait for it or give another --out"
    with locked(folder / ".lock", busy=busy) if machine.is_main else nullcontext(), stopping() as stop:
        if machine.is_main:
            claim(folder, config, problem, about or {})
        machine.wait()
        if (done := finished(folder)) is not None:
            return done
        events = Events(folder / "events.jsonl" if machine.is_main else None, listeners)
        pipeline = pipeline_of(config, problem, machine)
        found = discover(config, problem, folder, pipeline, machine)
        problem = found.problem if found else problem
        stages = plan(config, problem.task)
        events.emit("start", config=config.flat(), stages=[vars(s) for s in stages])
        if found:
            events.emit("discovered", **found.about())
        samples = Samples(folder / "samples", problem, pipeline)
        if machine.is_main:
            samples.write_index()
        watched = watched_images(problem.task)
        trainer = StageTrainer(
            folder=folder,
            seed=config.seed,
            problem=problem,
            pipeline=pipeline,
            machine=machine,
            events=events,
            clock=Clock(save_seconds, stop, machine),
            shelf=Shelf(shelf) if shelf else None,
            # Stages of other methods are shared by runs with other unlabeled images, so their epochs have no score.
            watched=watched if "unlabeled" in method.needs else None,
            look=samples.look,
        )
        build = Builder(config, len(problem.task.classes), machine)
        learner = fit(config, problem.task, trainer, build)
        result = make_result(config, problem, trainer.metas, trainer.audits, machine)
        if found:
            truth = audit_domains(problem, are_known=config.data is not None)
            result["discovery"] = {"asked": config.discover_domains, **found.about(), **truth}
        if machine.is_main:
            if watched is not None:
                result["unsupervised"] = unsupervised_scores(learner, watched, pipeline)
            card = card_of(learner, build.built[id(learner)], config, problem, pipeline, result)
            save_model(folder / "model", learner, card)
            predict_target(folder / "predictions.csv", learner, problem, pipeline, card.temperature)
            if profile := measured():
                result["profile"] = profile.as_json()
            write_json(folder / "result.json", result)
        events.emit("end", result={k: result[k] for k in ("target", "validation") if k in result})
        machine.wait()
    return result


def pipeline_of(config: RunConfig, problem: Problem, machine: Machine) -> Pipeline:
    """How this run's images become tensors."""
    classes = len(problem.task.classes)
    return Pipeline(config.augment, machine.device, classes, machine.rank, machine.world)


def check_needs(method: Method, problem: Problem, config: RunConfig, world: int) -> None:
    """Refuse at once what the method cannot work with."""
    if "unlabeled" in method.needs and not problem.task.unlabeled:
        raise UserError(
            f"method '{method.name}' needs unlabeled images and none were given; "
            "add --unlabeled, or use --method source-only"
        )
    inner = getattr(config.settings, "labeler", None)
    for settings in (config.settings, inner):
        # Batch norm needs two images in every process.
        if isinstance(settings, Settings) and (settings.batch % world or settings.batch < 2 * world):
            raise UserError(
                f"batch={settings.batch} cannot be shared by {world} processes; "
                f"give a multiple of {world}, {2 * world} or more"
            )


def claim(folder: Path, config: RunConfig, problem: Problem, about: dict[str, Any]) -> None:
    """Make the folder this run's, or check that it is, and clear away what a killed process was writing."""
    for place in ("stages", "labels", "samples", "model"):
        remove_leftovers(folder / place / "*")
    for name in ("run.json", "domains.npz", "result.json", "predictions.csv"):
        remove_leftovers(folder / name)
    path = folder / "run.json"
    mine: dict[str, Any] = {"hash": config.hash, "fingerprint": problem.fingerprint, "config": config.flat()}
    if not path.exists():
        if problem.unreadable:
            lines = [f"{name}\t{reason}\n" for name, reason in problem.unreadable]
            (folder / "unreadable.tsv").write_text("".join(lines), encoding="utf-8")
        write_json(path, {**mine, **about, "versions": versions()})
        return
    theirs = read_claim(folder)
    if theirs["hash"] != mine["hash"]:
        before, now = theirs["config"], mine["config"]
        keys = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))
        told = ", ".join(f"{k}={before.get(k)!r} there, {now.get(k)!r} now" for k in keys[:3])
        raise UserError(f"{folder} holds a run of another configuration ({told}); give another --out")
    if theirs["fingerprint"] != mine["fingerprint"]:
        raise UserError(f"the images have changed since the run in {folder} began; give another --out")


def read_claim(folder: Path) -> dict[str, Any]:
    """What `claim` wrote when the run was started."""
    path = folder / "run.json"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(told["config"], dict) and {"hash", "fingerprint"} <= told.keys():
            return dict(told)
    except FileNotFoundError:
        raise UserError(
            f"'{folder}' is not a run folder (it has no run.json); start one with ssdg train --out {folder}"
        ) from None
    except (ValueError, KeyError, TypeError):
        pass
    raise UserError(f"'{path}' is damaged or not of a run; give another folder")


def finished(folder: Path) -> dict[str, Any] | None:
    """The result of a run that has ended, with the facts of the machine that computed it."""
    parts = ("result.json", "model/model.json", "model/model.safetensors")
    if not all((folder / part).exists() for part in parts):
        return None
    return dict(json.loads((folder / "result.json").read_text(encoding="utf-8")))


@contextmanager
def stopping() -> Iterator[Flag]:
    """Turn the first Ctrl-C or SIGTERM into a flag; a second one of its kind interrupts at once.

    torchrun passes a Ctrl-C on as SIGTERM, so one of each is still one wish.
    """
    flag = Flag()
    if current_thread() is not main_thread():
        yield flag
        return

    asked: set[int] = set()

    def ask(number: int, frame: object) -> None:
        if number in asked:
            raise KeyboardInterrupt
        if not asked:
            os.write(2, b"stopping after this step ...\n")  # print may not be entered twice
        asked.add(number)
        flag.set()

    before = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
