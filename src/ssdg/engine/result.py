"""`result.json`: the numbers of a run with their provenance."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from ..artifact.tensors import Meta
from ..config import RunConfig
from ..data.hidden import Problem
from ..machine import Machine
from .audit import STATEMENT, audit_web

LAST_EPOCHS = 5  # the paper reports the mean of the last five epochs


def make_result(
    config: RunConfig,
    problem: Problem,
    metas: Mapping[str, Meta],
    audits: list[dict[str, Any]],
    machine: Machine,
) -> dict[str, Any]:
    """All that a table or a report needs to know of a run."""
    epochs = [
        {"round": meta["round"], **{name: value for name, value in row.items() if name != "others"}}
        for meta in metas.values()
        if meta["product"]
        for row in meta["history"]
    ]
    result: dict[str, Any] = {
        "method": config.method,
        "seed": config.seed,
        "task": {
            "setting": config.setting,
            "labeled": problem.domains[0],
            "unlabeled": list(problem.domains[1:]),
            "target": problem.target.name if problem.target else None,
            "classes": list(problem.task.classes),
            "images": _counts(problem),
        },
        "epochs": epochs,
        "pseudo_labels": audits,
        "phases": {name: _phase(meta) for name, meta in metas.items()},
        "images_seen": sum(_images(meta) for meta in metas.values()),
        "seconds": round(sum(meta["seconds"] for meta in metas.values()), 3),
        "hidden_labels": STATEMENT,
        "config": config.flat(),
        "hash": config.hash,
        "fingerprint": problem.fingerprint,
        "versions": versions(),
        "machine": machine_facts(machine),
    }
    if problem.web_labels:
        result["web_labels"] = {"strategy": config.web_label, "domains": audit_web(problem)}
    for name in ("target", "validation"):
        if epochs and all(name in row for row in epochs):
            result[name] = _summary([row[name] for row in epochs if row["round"] == epochs[-1]["round"]])
    return result


def _summary(rows: list[list[float]]) -> dict[str, Any]:
    """Percent right of each network and of their mean: the last epoch, and the mean of the last five.

    `rows` are the epochs of the last cycle; where it has fewer than five, `epochs_averaged` says how many.
    """
    last = rows[-LAST_EPOCHS:]
    means = [round(sum(column) / len(last), 4) for column in zip(*last, strict=True)]
    return {"final": named(rows[-1]), "last_five": named(means), "epochs_averaged": len(last)}


def named(values: list[float]) -> dict[str, float]:
    """`network_1`, `network_2`, ..., `mean`."""
    names = [*(f"network_{number}" for number in range(1, len(values))), "mean"]
    return dict(zip(names, values, strict=True))


def _counts(problem: Problem) -> dict[str, int]:
    counts = {problem.domains[0]: len(problem.task.labeled)}
    counts |= {name: len(images) for name, images in problem.task.unlabeled.items()}
    if problem.validation is not None:
        counts["validation"] = len(problem.validation)
    if problem.target is not None:
        counts["target"] = len(problem.target.images)
    return counts


def _images(meta: Meta) -> int:
    return int(meta["step"] * meta["images_per_step"])


def _phase(meta: Meta) -> dict[str, Any]:
    seconds = meta["seconds"]
    rate = round(_images(meta) / seconds, 1) if seconds else None
    return {
        "steps": meta["step"],
        "images": _images(meta),
        "seconds": seconds,
        "images_per_second": rate,
        "losses": [{k: v for k, v in row.items() if isinstance(v, float)} for row in meta["history"]],
    }


def versions() -> dict[str, str]:
    """Of this package and of what decides its numbers."""
    names = ("ssdg", "torch", "numpy", "accelerate", "pillow", "simplejpeg")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine_facts(machine: Machine) -> dict[str, Any]:
    """What computed the numbers: on the same machine, equal facts and equal inputs give equal bits."""
    return {
        "device": str(machine.device.type),
        "precision": machine.precision,
        "processes": machine.world,
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
    }
