"""An accelerator to pretend with where there is none: torch's meta device, which has shapes and no values.

What a host would wait for is counted: values that are read back, and tensors that go there other than by a plain copy
of pinned memory. Streams are pretended too: a tensor that is used on one stream and was made on another, which nobody
waited for, is told of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ssdg import devices
from ssdg.methods.api import Learner

DEVICE = torch.device("meta")
READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "bincount"}
COPIES = {"_to_copy", "copy_"}


@dataclass(eq=False)
class Stream:
    """How much of every stream's work is known to be done when this one goes on."""

    device: torch.device | None = None
    seen: dict[Stream, int] = field(default_factory=dict)

    def wait_stream(self, other: Stream) -> None:
        self.seen |= {stream: max(done, self.seen.get(stream, 0)) for stream, done in other.seen.items()}

    def work(self) -> tuple[Stream, int]:
        self.seen[self] = self.seen.get(self, 0) + 1
        return self, self.seen[self]


class Accelerator(TorchDispatchMode):
    """Counts what a host would wait for (`waits`), and what streams should have waited for (`races`)."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.races: list[str] = []
        self.moves = 0  # of tensors to the device
        self.recorded: list[tuple[int, Stream]] = []  # storages that another stream has a hold of
        self.streams: list[Stream] = []  # all that were used
        self._now = self.main = Stream()
        self._made: dict[int, tuple[Stream, int]] = {}
        self._alive: list[Tensor] = []  # so that no storage is used twice
        self._pinned: set[int] = set()
        self._pretend(patch)

    def _pretend(self, patch: pytest.MonkeyPatch) -> None:
        new = torch.tensor
        devices._streams.cache_clear()
        patch.setattr(Tensor, "pin_memory", lambda t: self._pin(t))
        patch.setattr(Tensor, "record_stream", lambda t, stream: self.recorded.append((place(t), stream)))
        # A new tensor of given values is made on the host and copied; on the meta device nothing shows it.
        patch.setattr(torch, "tensor", lambda data, *, device=None, **kw: new(data, **kw).to(device or "cpu"))
        patch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # unknown on the meta device
        patch.setattr(torch.cuda, "Stream", Stream)
        patch.setattr(torch.cuda, "stream", self._on)
        patch.setattr(torch.cuda, "current_stream", lambda device: self._now)

    def _pin(self, tensor: Tensor) -> Tensor:
        assert tensor.device.type == "cpu"
        made = tensor.clone()
        self._alive.append(made)
        self._pinned.add(place(made))
        return made

    @contextmanager
    def _on(self, stream: Stream) -> Iterator[None]:
        before, self._now = self._now, stream
        self.streams.append(stream)
        yield
        self._now = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        if torch.is_inference_mode_enabled() or any(t.is_inference() for t in tensors((args, kwargs))):
            with self:  # operations come whole then, such as `to` instead of the copy that it makes
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        given = tensors((args, kwargs))
        there = [t for t in given if t.device == DEVICE]
        for tensor in there:
            stream, done = self._made.get(place(tensor), (self._now, 0))
            if self._now.seen.get(stream, 0) < done:
                self.races.append(name)
        is_back = name == "_to_copy" and torch.device(kwargs.get("device") or DEVICE).type == "cpu"
        if there and (is_back or self._waits(name, args, given)):
            self.waits.append(name)
        if there and name == "_local_scalar_dense":
            return 1.0
        if there and is_back:
            return torch.ones(there[0].shape, dtype=kwargs.get("dtype") or there[0].dtype)
        out = func(*args, **kwargs)
        made = [t for t in tensors(out) if t.device == DEVICE]
        if made:
            self._moved(name, [t for t in given if t.device.type == "cpu"], made, kwargs, args)
            self._alive += made
            self._made |= dict.fromkeys(map(place, made), self._now.work())
        return out

    def _waits(self, name: str, args: Any, given: list[Tensor]) -> bool:
        """Reads of values, and operations on tensors of both sides: one is copied, but for a single number."""
        by_mask = name.startswith("index") and any(t.dtype == torch.bool for t in tensors(args[1]))
        is_mixed = any(t.device.type == "cpu" and t.ndim for t in given)
        is_down = name == "copy_" and args[0].device.type == "cpu"
        return name in READS or by_mask or is_down or (is_mixed and name not in COPIES)

    def _moved(self, name: str, here: list[Tensor], made: list[Tensor], kwargs: Any, args: Any) -> None:
        if not here or name not in COPIES:
            return
        self.moves += 1
        source = here[0]
        is_async = kwargs.get("non_blocking") or args[2:3] == (True,)
        is_plain = source.is_contiguous() and source.dtype == made[0].dtype
        if not (place(source) in self._pinned and is_async and is_plain):
            self.waits.append(f"{name} of pageable memory")


def tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def place(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def move(learner: Learner) -> None:
    """A learner's networks to the device, and its optimizers with them; meta tensors have no fused kernels."""
    before = dict(learner.nets.named_parameters())
    learner.nets.to(DEVICE)
    now = {id(old): learner.nets.get_parameter(name) for name, old in before.items()}
    for optimizer in learner.opts.values():
        for group in optimizer.param_groups:
            group["params"] = [now.get(id(p), p) for p in group["params"]]
            group["fused"], group["foreach"] = False, False
