"""A run from start to end in one folder: prepare, train, finish."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache as memoize
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import current_thread, main_thread
from typing import Any, Literal, Self

import torch

from ..config import Flat, RunConfig
from ..data.cache import default_cache
from ..data.hidden import Problem
from ..data.sets import ImageTable
from ..discovery.discover import Discovery, discover
from ..errors import UserError, brief
from ..files import locked, remove_leftovers, write_json
from ..machine import Machine
from ..methods import METHODS, find_method
from ..methods.api import Build, Learner, LearnerRequest, Method, Sizes
from ..models.backbones import build_backbone
from ..models.frozen import freeze
from ..profiling import current_profile
from ..schema import Discovery as DiscoveryRecord
from ..schema import ProbeScores, Profile, Result, RunFile, Unsupervised, read_json, read_run_file, to_json
from ..seeds import derive_seed
from .audit import audit_domains
from .events import Events, Listener
from .loop import Clock
from .pipelines import Pipelines, image_pipeline, open_pipelines
from .plan import fit, plan
from .product import BuiltLearner, make_card, predict_target, save_model
from .reference_probe import FILE as PROBE_FILE
from .reference_probe import HeadStart, has_probe, score_probe, solve_head
from .result import make_result, versions
from .samples import Samples
from .scores import unsupervised_scores, watched_images
from .stage_cache import StageCache
from .stages import StageTrainer


@dataclass(frozen=True)
class NetworkSettings:
    """What building a network needs of a configuration: no path of data, and no target."""

    seed: int
    backbone: str
    weights: str
    freeze: str
    batch_norm: Literal["train", "eval"]

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        """Return the network settings of a run."""
        return cls(config.seed, config.backbone, config.weights, config.freeze, config.batch_norm)


@dataclass(frozen=True)
class Builder:
    """Builds the learners of a run on its machine and remembers how each was built."""

    config: NetworkSettings
    num_classes: int
    machine: Machine
    head_start: Callable[[], HeadStart] | None = None  # what heads start from
    built: dict[int, BuiltLearner] = field(default_factory=dict)  # by id of the learner

    @property
    def build(self) -> Build:
        """What a method receives."""
        return Build(self.make)

    def make(self, request: LearnerRequest) -> Learner:
        """Build a learner whose initial weights derive from (seed, key)."""
        backbone, weights = request.backbone or self.config.backbone, request.weights or self.config.weights
        torch.manual_seed(derive_seed(self.config.seed, "init", request.key))
        sizes = Sizes(self.num_classes, request.num_domains)
        extend = request.settings.extend_backbone
        boundary = request.freeze or self.config.freeze

        def make_backbone() -> Any:
            net = build_backbone(backbone, weights)
            freeze(net, None if boundary == "none" else boundary, self.config.batch_norm)
            return extend(net)

        learner = request.learner(make_backbone, sizes, request.settings)
        if self.head_start is not None and request.backbone is None:
            self.head_start().put_into(learner.nets)
        self.machine.prepare(learner)
        name = method_of_learner(request)
        self.built[id(learner)] = BuiltLearner(name, backbone, request.num_domains, request.settings)
        return learner


def method_of_learner(request: LearnerRequest) -> str:
    """Return the registered method whose product has this class; "" for a helper that no method ships.

    Two methods may ship the same class: then the one with these settings.
    """
    methods = [m for m in METHODS.values() if m.family != "DA+DG" and m.learner is request.learner]
    exact = [method for method in methods if method.settings is type(request.settings)]
    return next((method.name for method in [*exact, *methods]), "")


def run(
    config: RunConfig,
    problem: Problem,
    folder: Path,
    machine: Machine,
    *,
    listeners: tuple[Listener, ...] = (),
    save_seconds: float = 30.0,
    stage_cache: Path | None = None,
    provenance: Flat | None = None,
    cache: Path | None = None,
    probe: bool = False,
) -> dict[str, Any]:
    """Train in `folder`, or resume there.

    A run that was interrupted ends with the same weights, bit for bit, as one that was not. Called again on a
    finished folder, it trains nothing and returns the same result.

    Parameters
    ----------
    config
        The resolved settings, from `ssdg.open_run`.
    problem
        The images and their hidden labels, from `ssdg.open_run`.
    folder
        The run folder; created if missing.
    machine
        Where to compute, from `ssdg.start_machine`.
    listeners
        Functions that receive every event (a dict, as in `events.jsonl`).
    save_seconds
        Minimum time between two checkpoints.
    stage_cache
        Folder of finished stages to share with other runs.
    provenance
        Further entries for `run.json`, such as the command.
    cache
        Folder for the maps of frozen trunks; default: `ssdg.default_cache()`.
    probe
        Also score a linear classifier on the pretrained features, as a reference that the run should beat.

    Returns
    -------
    dict
        The contents of `result.json`.

    Raises
    ------
    UserError
        If the folder belongs to another configuration or other images, is in use, or the method lacks data.
    Stopped
        After the checkpoint that follows Ctrl-C or SIGTERM.

    Examples
    --------
    >>> import ssdg
    >>> from pathlib import Path
    >>> settings = {"data": "digits", "labeled": "syn", "target": "mnist", "method": "source-only", "preset": "quick"}
    >>> settings |= {"epochs": 1, "iterations": 2}
    >>> config, problem = ssdg.open_run(settings, ssdg.default_cache(), device="cpu")  # doctest: +SKIP
    >>> result = ssdg.run(config, problem, Path("runs/first"), ssdg.start_machine("cpu"))  # doctest: +SKIP
    >>> sorted(result["target"]["final"])  # accuracies (%)  # doctest: +SKIP
    ['mean', 'network_1']
    """
    method = find_method(config.method)
    check_needs(method, problem, config, machine.world)
    busy = f"{folder} is in use by another process; wait for it or give another --out"
    with locked(folder / ".lock", busy=busy) if machine.is_main else nullcontext(), stop_on_signal() as stop:
        if machine.is_main:
            claim(folder, config, problem, provenance or {})
        machine.wait()
        if (result := read_finished(folder)) is not None:
            return result
        events = Events(folder / "events.jsonl" if machine.is_main else None, listeners)
        prepared = prepare(config, problem, folder, machine, events, cache or default_cache(), stop)
        if probe and has_probe(config) and machine.is_main:
            prepared.score_probe(events)
        machine.wait()
        clock = Clock(save_seconds, stop, machine)
        trained = train(prepared, events, clock, StageCache(stage_cache) if stage_cache else None)
        result = to_json(finish(trained))
        events.emit("end", result={name: result[name] for name in ("target", "validation") if name in result})
        machine.wait()
    return result


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run ready to train: domains are known, samples are chosen."""

    config: RunConfig
    problem: Problem
    folder: Path
    machine: Machine
    pipelines: Pipelines
    discovery: Discovery | None
    samples: Samples
    watched: ImageTable | None  # unlabeled images that the product is scored on

    def score_probe(self, events: Events) -> None:
        """Fit and score the reference probe, unless an earlier process did; `finish` adds it to the result."""
        scores = score_probe(self.config, self.problem, self.pipelines, self.watched, self.folder)
        events.emit("probe", **to_json(scores))


def prepare(
    config: RunConfig, problem: Problem, folder: Path, machine: Machine, events: Events, cache: Path, stop: Flag
) -> PreparedRun:
    """Discover domains if configured, announce the plan and write the thumbnails."""
    images = image_pipeline(config, len(problem.task.classes), machine)
    discovery = discover(config, problem, folder, images, machine)
    problem = discovery.problem if discovery else problem
    pipelines = open_pipelines(config, problem, machine, cache, events, stop.is_set)
    events.emit("start", config=config.flat(), stages=[to_json(stage) for stage in plan(config, problem.task)])
    if discovery:
        events.emit("discovered", **discovery.summary())
    samples = Samples(folder / "samples", problem, pipelines)
    if machine.is_main:
        samples.write_index()
    watched = watched_images(problem.task)
    return PreparedRun(config, problem, folder, machine, pipelines, discovery, samples, watched)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """The product and everything that was recorded on the way."""

    prepared: PreparedRun
    learner: Learner
    built: BuiltLearner
    trainer: StageTrainer


def train(prepared: PreparedRun, events: Events, clock: Clock, stage_cache: StageCache | None) -> TrainedRun:
    """Run the method's algorithm with a trainer that saves and resumes stages."""
    config, problem = prepared.config, prepared.problem
    # Other methods share stages across runs with different unlabeled sets, so per-epoch scores would not match.
    is_scored = "unlabeled" in find_method(config.method).needs
    trainer = StageTrainer(
        folder=prepared.folder,
        seed=config.seed,
        problem=problem,
        pipelines=prepared.pipelines,
        machine=prepared.machine,
        events=events,
        clock=clock,
        cache=stage_cache,
        watched=prepared.watched if is_scored else None,
        on_stage=prepared.samples.save_features,
    )
    start = partial(solve_head, config, problem, prepared.pipelines) if config.head == "probe" else None
    networks = NetworkSettings.of(config)
    builder = Builder(networks, len(problem.task.classes), prepared.machine, memoize(start) if start else None)
    learner = fit(config, problem.task, trainer, builder.build)
    return TrainedRun(prepared, learner, builder.built[id(learner)], trainer)


def finish(trained: TrainedRun) -> Result:
    """Score the product and write the model, the predictions and `result.json`; return the result."""
    prepared, learner = trained.prepared, trained.learner
    config, problem, folder = prepared.config, prepared.problem, prepared.folder
    pipeline = prepared.pipelines.of(learner)
    result = make_result(config, problem, trained.trainer, prepared.machine)
    if prepared.discovery:
        truth = audit_domains(problem, are_known=config.data is not None)
        facts = {"asked": config.discover_domains, **prepared.discovery.summary(), **truth}
        result.discovery = DiscoveryRecord.model_validate(facts)
    if prepared.machine.is_main:
        if prepared.watched is not None:
            scores = unsupervised_scores(learner, prepared.watched, pipeline)
            result.unsupervised = Unsupervised.model_validate(scores)
        card = make_card(learner, trained.built, config, problem, pipeline, result)
        save_model(folder / "model", learner, card)
        predict_target(folder / "predictions.csv", learner, problem, pipeline, card.temperature)
        if (folder / PROBE_FILE).exists():
            result.probe = read_json(folder / PROBE_FILE, ProbeScores)
        if profile := current_profile():
            result.profile = Profile.model_validate(profile.as_json())
        write_json(folder / "result.json", to_json(result))
    return result


def check_needs(method: Method, problem: Problem, config: RunConfig, world: int) -> None:
    """Reject data and batch sizes that the method cannot work with."""
    if "unlabeled" in method.needs and not problem.task.unlabeled:
        raise UserError(
            f"method '{method.name}' needs unlabeled images and none were given; "
            "add --unlabeled, or use --method source-only"
        )
    for settings in (config.settings, *config.settings.nested().values()):
        # Batch norm needs two images in every process.
        if settings.batch % world or settings.batch < 2 * world:
            raise UserError(
                f"batch={settings.batch} cannot be shared by {world} processes; "
                f"give a multiple of {world}, {2 * world} or more"
            )


def claim(folder: Path, config: RunConfig, problem: Problem, provenance: Flat) -> None:
    """Reserve the folder for this run, or check that it belongs to it; remove leftovers of a killed process."""
    for name in ("stages", "labels", "samples", "model"):
        remove_leftovers(folder / name / "*")
    for name in ("run.json", "domains.npz", "probe.json", "result.json", "predictions.csv"):
        remove_leftovers(folder / name)
    path, current = folder / "run.json", config.flat()
    if not path.exists():
        if problem.unreadable:
            lines = [f"{name}\t{reason}\n" for name, reason in problem.unreadable]
            (folder / "unreadable.tsv").write_text("".join(lines), encoding="utf-8")
        identity = {"hash": config.hash, "fingerprint": problem.fingerprint, "config": current}
        run_file = RunFile.model_validate({**identity, **provenance, "versions": versions()})
        write_json(path, to_json(run_file))
        return
    existing = read_run_file(folder)
    if existing.hash != config.hash:
        before = existing.config
        keys = sorted(k for k in before.keys() | current.keys() if before.get(k) != current.get(k))
        differences = ", ".join(f"{k}={brief(before.get(k))} there, {brief(current.get(k))} now" for k in keys[:3])
        reason = differences or f"an earlier version of {config.method}, which gives other numbers"
        raise UserError(f"{folder} holds a run of another configuration ({reason}); give another --out")
    if existing.fingerprint != problem.fingerprint:
        raise UserError(f"the images have changed since the run in {folder} began; give another --out")


def read_finished(folder: Path) -> dict[str, Any] | None:
    """Return the result of a finished run, with the facts of the machine that computed it."""
    files = ("result.json", "model/model.json", "model/model.safetensors")
    if not all((folder / name).exists() for name in files):
        return None
    return to_json(read_json(folder / "result.json", Result))


@contextmanager
def stop_on_signal() -> Iterator[Flag]:
    """Turn the first Ctrl-C or SIGTERM into a flag; a second one of the same kind interrupts at once.

    torchrun forwards a Ctrl-C as SIGTERM, so one of each still counts as one request.
    """
    flag = Flag()
    if current_thread() is not main_thread():
        yield flag
        return

    received: set[int] = set()

    def handle(number: int, frame: object) -> None:
        if number in received:
            raise KeyboardInterrupt
        if not received:
            os.write(2, b"stopping after this step ...\n")  # print is not reentrant
        received.add(number)
        flag.set()

    previous = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
