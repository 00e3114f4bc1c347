"""No step waits for the device: nothing that a step computes from images or weights is read back by the host.

There may be no accelerator to watch here, so the ones to look for are told by where values come from: what is made
of images or weights would lie on the device, what is drawn on the CPU would not. Reading the former back, by
`.item()`, by a mask or by counting, is what makes a host wait.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ssdg.data.sets import Batch
from ssdg.engine.feeding import make_stream
from ssdg.engine.loop import add
from ssdg.methods.api import Progress
from test_contract import ALL, product_of

READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "bincount"}


def is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


class Watch(TorchDispatchMode):
    """Notes every operation that reads a value of the device back."""

    def __init__(self, *on_device: Tensor) -> None:
        super().__init__()
        self.alive = list(on_device)  # so that no storage is used twice
        self.places = {t.untyped_storage().data_ptr() for t in on_device}
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = filter(is_tensor, tree_leaves((args, kwargs or {})))
        is_there = any(t.untyped_storage().data_ptr() in self.places for t in given)
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            t.dtype == torch.bool for t in tree_leaves(args[1]) if is_tensor(t)
        )
        if is_there and (name in READS or by_mask):
            self.waits.append(name)
        out = func(*args, **(kwargs or {}))
        if is_there:
            made = list(filter(is_tensor, tree_leaves(out)))
            self.alive += made
            self.places |= {t.untyped_storage().data_ptr() for t in made}
        return out


def tensors_of(batch: Batch) -> list[Tensor]:
    parts = (batch.labeled, batch.pseudo, batch.unlabeled)
    return [value for part in parts if part for value in vars(part).values() if is_tensor(value)]


def one_hot(y: Tensor, num_classes: int) -> Tensor:
    """As CUDA computes it: only the CPU's looks whether every class is below the number."""
    return (y.unsqueeze(-1) == torch.arange(num_classes)).long()


@pytest.mark.parametrize("method", ALL)
def test_a_step_reads_nothing_back(method: str, world: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "one_hot", one_hot)
    learner, inputs, pipeline = product_of(method, world, cache)
    stream = make_stream(inputs, 4, 7, pipeline)
    learner.nets.train()
    sums: dict[str, Tensor] = {}
    add(sums, learner.step(stream.draw(0), Progress(1, 0, 2, 0, 20)))  # momentum is made in the first step
    batch = stream.draw(1)
    with Watch(*tensors_of(batch), *learner.nets.state_dict().values(), *sums.values()) as watch:
        add(sums, learner.step(batch, Progress(1, 0, 2, 1, 20)))
    assert len(watch.places) > 20
    assert watch.waits == []


@pytest.mark.parametrize(
    "read",
    [lambda x: x.sum().item(), lambda x: x[x > 0], lambda x: (x > 0).nonzero(), lambda x: float(x.max())],
)
def test_the_watch_sees_what_waits(read: Any) -> None:
    x = torch.randn(4)
    with Watch(x) as watch:
        read(2 * x)
    assert watch.waits


def test_the_watch_passes_over_what_is_drawn_on_the_cpu() -> None:
    x = torch.randn(4)
    with Watch(x) as watch:
        x * torch.rand(()).item() + torch.rand(4)[torch.tensor([True, False, True, True])].sum()
    assert not watch.waits
