"""Checkpoints: one safetensors file each, whole or absent, with no pickled code."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..artifact.tensors import Meta, copy_tensors, load_tensors, save_tensors
from ..methods.api import Learner


def save_state(path: Path, learner: Learner, meta: Meta) -> None:
    """Write networks, optimizers and `meta` (JSON) as one file."""
    save_tensors(path, state_tensors(learner), meta)


def state_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return everything that changes during training: networks and optimizers."""
    return {**_network_tensors(learner), **_optimizer_tensors(learner)}


def load_state(path: Path, learner: Learner) -> Meta:
    """Load a checkpoint into the learner, in place; return its `meta`."""
    tensors, meta = load_tensors(path)
    networks = {k.removeprefix("net."): v for k, v in tensors.items() if k.startswith("net.")}
    copy_tensors(networks, dict(learner.nets.state_dict()), path)
    _restore_all(learner, tensors)
    return meta


def load_optimizers(path: Path, learner: Learner) -> None:
    """Load the optimizers of a checkpoint into the learner; its networks do not change."""
    _restore_all(learner, load_tensors(path, "opt.")[0])


def is_finite(learner: Learner) -> bool:
    """Return whether all weights and statistics of the networks are finite."""
    tensors = [t for t in learner.nets.state_dict().values() if t.is_floating_point()]
    return bool(torch.stack([t.isfinite().all() for t in tensors]).all())


def _network_tensors(learner: Learner) -> dict[str, Tensor]:
    return {f"net.{name}": tensor for name, tensor in learner.nets.state_dict().items()}


def _optimizer_tensors(learner: Learner) -> dict[str, Tensor]:
    tensors = {}
    for name, optimizer in learner.opts.items():
        for number, slots in optimizer.state_dict()["state"].items():
            for slot, value in slots.items():
                if value is not None:
                    tensors[f"opt.{name}.{number}.{slot}"] = torch.as_tensor(value)
    return tensors


def _restore_all(learner: Learner, tensors: dict[str, Tensor]) -> None:
    for name, optimizer in learner.opts.items():
        prefix = f"opt.{name}."
        _restore(optimizer, {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})


def _restore(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore momentum and similar state in the parameters' layout; rates and decay come from the settings."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for name, value in tensors.items():
        number, slot = name.split(".", 1)
        parameter = parameters[int(number)]
        same_shape = value.shape == parameter.shape
        state = torch.empty_like(parameter).copy_(value) if same_shape else value.clone()
        optimizer.state[parameter][slot] = state
