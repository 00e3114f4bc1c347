"""The contents of `result.json`: the numbers of a run with their provenance."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from ..config import RunConfig
from ..data.hidden import Problem
from ..machine import Machine
from ..methods.api import StageRequest
from ..schema import RESULT_FORMAT, Epoch, Phase, Result, Scores, StageMeta, Task, WebLabels, to_json
from .audit import STATEMENT, audit_web
from .stages import StageTrainer

LAST_EPOCHS = 5  # the paper reports the mean of the last five epochs


def make_result(config: RunConfig, problem: Problem, trainer: StageTrainer, machine: Machine) -> Result:
    """Return everything that a table or a report needs to know about a run."""
    metas = trainer.metas.values()
    epochs = [make_epoch(meta.round, row) for meta in metas if meta.product for row in map(to_json, meta.history)]
    result = Result(
        format=RESULT_FORMAT,
        method=config.method,
        seed=config.seed,
        task=make_task(config, problem),
        epochs=epochs,
        pseudo_labels=trainer.audits,
        phases={name: make_phase(meta, trainer.requests[name]) for name, meta in trainer.metas.items()},
        images_seen=sum(map(num_images, metas)),
        seconds=round(sum(meta.seconds for meta in metas), 3),
        hidden_labels=STATEMENT,
        config=config.flat(),
        hash=config.hash,
        fingerprint=problem.fingerprint,
        versions=versions(),
        machine=machine_facts(machine),
    )
    if problem.web_labels:
        result.web_labels = WebLabels(strategy=config.web_label, domains=audit_web(problem))
    last_cycle = [row for row in epochs if row.round == epochs[-1].round]
    if epochs and all(row.target for row in epochs):
        result.target = summarize([row.target for row in last_cycle])
    if epochs and all(row.validation for row in epochs):
        result.validation = summarize([row.validation for row in last_cycle])
    return result


def make_task(config: RunConfig, problem: Problem) -> Task:
    """Return the domains and classes of the run."""
    return Task(
        setting=config.setting,
        labeled=problem.domains[0],
        unlabeled=list(problem.domains[1:]),
        target=problem.target.name if problem.target else None,
        classes=list(problem.task.classes),
        images=count_images(problem),
    )


def make_epoch(round: int, row: dict[str, object]) -> Epoch:
    """Return an epoch without the scores on targets of other runs."""
    return Epoch.model_validate({"round": round, **{name: value for name, value in row.items() if name != "others"}})


def make_phase(meta: StageMeta, request: StageRequest) -> Phase:
    """Return the record of a finished stage."""
    losses = [{name: v for name, v in to_json(row).items() if isinstance(v, float)} for row in meta.history]
    return Phase(
        key=meta.key,
        round=meta.round,
        title=request.title,
        group=request.group,
        product=meta.product,
        steps=meta.step,
        images=num_images(meta),
        seconds=meta.seconds,
        images_per_second=round(num_images(meta) / meta.seconds, 1) if meta.seconds else None,
        losses=losses,
    )


def summarize(rows: list[list[float]]) -> Scores:
    """Return the accuracy (%) of each network and of their mean: the last epoch, and the mean of the last five.

    `rows` are the epochs of the last cycle; `epochs_averaged` counts them where there are fewer than five.
    """
    last = rows[-LAST_EPOCHS:]
    means = [round(sum(column) / len(last), 4) for column in zip(*last, strict=True)]
    return Scores(final=by_network(rows[-1]), last_five=by_network(means), epochs_averaged=len(last))


def by_network(values: list[float]) -> dict[str, float]:
    """Return the values under `network_1`, `network_2`, ..., `mean`."""
    names = [*(f"network_{number}" for number in range(1, len(values))), "mean"]
    return dict(zip(names, values, strict=True))


def count_images(problem: Problem) -> dict[str, int]:
    """Return the number of images by domain, "validation" and "target"."""
    counts = {problem.domains[0]: len(problem.task.labeled)}
    counts |= {name: len(images) for name, images in problem.task.unlabeled.items()}
    if problem.validation is not None:
        counts["validation"] = len(problem.validation)
    if problem.target is not None:
        counts["target"] = len(problem.target.images)
    return counts


def num_images(meta: StageMeta) -> int:
    """Return how many images a stage has drawn."""
    return meta.step * meta.images_per_step


def versions() -> dict[str, str]:
    """Return the versions of this package and of everything that decides its numbers."""
    names = ("ssdg", "torch", "numpy", "accelerate", "pillow", "simplejpeg")
    numbers = {"python": platform.python_version()}
    for name in names:
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            numbers[name] = "not installed"
    return numbers


def machine_facts(machine: Machine) -> dict[str, str | int]:
    """Return what computed the numbers: on the same machine, equal facts and equal inputs give equal bits."""
    return {
        "device": str(machine.device.type),
        "precision": machine.precision,
        "processes": machine.world,
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
    }
