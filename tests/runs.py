"""Small runs on the tiny world."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ssdg.engine.run import run
from ssdg.engine.setup import open_run
from ssdg.machine import start_machine
from ssdg.methods import find_method

SHORT: dict[str, Any] = {"epochs": 2, "batch": 4, "lr": 0.01}
WORLD: dict[str, Any] = {
    "labeled": "photo",
    "target": "night",
    "backbone": "digits-cnn",
    "weights": "none",
    "size": 32,
    "precision": "fp32",  # on every machine
}


def short_settings(method: str, **more: Any) -> dict[str, Any]:
    """Settings under which a method trains on the tiny world in a second or two."""
    frozen = {"warm_epochs": 1} if find_method(method).freeze else {}  # no random layers to freeze
    settings: dict[str, Any] = {**WORLD, **SHORT, **frozen, "method": method, **more}
    fields = find_method(method).settings.model_fields
    return {**{k: v for k, v in (("labeler", dict(SHORT)), ("cycles", 2)) if k in fields}, **settings}


def train_here(world: Path, cache: Path, folder: Path, method: str, **more: Any) -> dict[str, Any]:
    """A run in this process; returns its result."""
    given = short_settings(method, data=str(world), **more)
    config, problem = open_run(given, cache, device="cpu")
    return run(config, problem, folder, start_machine("cpu", config.precision), cache=cache)


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """One thread, no colours, wide lines."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1", **(more or {})}


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """The final weights of a run."""
    return load_file(folder / "model" / "model.safetensors")


def same_weights(first: Path, second: Path) -> bool:
    """Bit for bit."""
    a, b = weights_of(first), weights_of(second)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
