"""Checkpoints: one safetensors file each, whole or absent, with no pickled code."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from ..errors import UserError
from ..files import atomic_path
from ..methods.api import Learner

Meta = dict[str, Any]
MAX_HEADER = 100_000_000  # bytes, the format's own limit


def save_state(path: Path, learner: Learner, meta: Meta) -> None:
    """Write networks, optimizers and `meta` (JSON) as one file."""
    save_tensors(path, state_tensors(learner), meta)


def state_tensors(learner: Learner) -> dict[str, Tensor]:
    """All that changes while training: networks and optimizers."""
    return {**_network_tensors(learner), **_optimizer_tensors(learner)}


def load_state(path: Path, learner: Learner) -> Meta:
    """Put a checkpoint into the learner, in place; return its `meta`."""
    tensors, meta = load_tensors(path)
    fill(dict(learner.nets.state_dict()), {k[4:]: v for k, v in tensors.items() if k.startswith("net.")}, path)
    _restore_all(learner, tensors)
    return meta


def load_optimizers(path: Path, learner: Learner) -> None:
    """Put the optimizers of a checkpoint into the learner; its networks stay as they are."""
    _restore_all(learner, load_tensors(path, "opt.")[0])


def read_meta(path: Path) -> Meta | None:
    """The `meta` of a checkpoint, or None when there is no file."""
    try:
        with path.open("rb") as file:  # one look at one file, even while another process replaces it
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, MAX_HEADER)))
        return dict(json.loads(header["__metadata__"]["meta"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from None


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: Meta) -> None:
    """Write tensors and JSON as one safetensors file, atomically."""
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(ready, temporary, metadata={"meta": json.dumps(meta)})
        except SafetensorError as error:  # a full disk, which the library does not tell as an OSError
            raise OSError(errno.EIO, str(error), str(path)) from None


def load_tensors(path: Path, begin: str = "") -> tuple[dict[str, Tensor], Meta]:
    """Read what `save_tensors` wrote, the tensors whose names begin so."""
    with _open(path) as file:
        names = [name for name in file.keys() if name.startswith(begin)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}, json.loads(file.metadata()["meta"])


def fill(into: dict[str, Tensor], given: dict[str, Tensor], path: Path) -> None:
    """Copy tensors by name; keep the memory layout of the receiver. Names and shapes must fit."""
    wrong = sorted(
        {n for n in into.keys() | given.keys() if n not in into or n not in given}
        | {n for n in into.keys() & given.keys() if into[n].shape != given[n].shape}
    )
    if wrong:
        raise UserError(
            f"{path} does not fit this network ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''}); "
            "it was made with other settings: give the backbone and classes it was trained with"
        )
    with torch.no_grad():
        for name, tensor in into.items():
            tensor.copy_(given[name])


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} cannot be read ({error}); delete it and run the same command again")


def is_finite(learner: Learner) -> bool:
    """Whether no weight and no statistic of the networks is NaN or infinite."""
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
    """Rates and decay come from the settings; momentum and the like from the file, in the parameters' layout."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer.state.clear()
    for name, value in tensors.items():
        number, slot = name.split(".", 1)
        parameter = parameters[int(number)]
        same_shape = value.shape == parameter.shape
        kept = torch.empty_like(parameter).copy_(value) if same_shape else value.clone()
        optimizer.state[parameter][slot] = kept
