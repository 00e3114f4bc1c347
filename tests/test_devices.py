"""Copies to a device and streams."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from accelerator import DEVICE, Accelerator, place
from ssdg.devices import onto, run_concurrently
from ssdg.errors import UserError
from ssdg.machine import start_machine

CPU = torch.device("cpu")


def test_on_a_cpu_nothing_is_copied() -> None:
    x = torch.rand(3, 4)
    assert onto(x, CPU) is x
    assert onto(x, CPU, torch.float32) is x
    assert torch.equal(onto(x[:, 1], CPU, torch.float64), x[:, 1].double())


def test_mps_is_refused_where_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(UserError, match=r"--device mps needs a Mac with an Apple GPU .* give --device cpu, or auto"):
        start_machine("mps")


@pytest.mark.parametrize(("device", "cpu"), [("mps", False), ("auto", True), ("cpu", True)])
def test_mps_is_used_only_on_request(device: str, cpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = []
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("ssdg.machine.Accelerator", lambda cpu, kwargs_handlers: requested.append(cpu))
    start_machine(device)
    assert requested == [cpu]


def test_a_tensor_reaches_the_device_in_its_dtype_or_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with Accelerator(monkeypatch) as accelerator:
        same, other = onto(torch.rand(3, 4).T, DEVICE), onto(torch.arange(3), DEVICE, torch.float64)
    assert (same.device, same.dtype, same.shape) == (DEVICE, torch.float32, (4, 3))
    assert (other.device, other.dtype) == (DEVICE, torch.float64)
    assert accelerator.moves == 2
    assert not accelerator.waits


def test_calls_on_a_cpu_follow_each_other_without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = Accelerator(monkeypatch)
    torch.manual_seed(0)
    outputs = run_concurrently([lambda x: x + torch.rand(2), lambda x: x * torch.rand(2)], torch.ones(2))
    torch.manual_seed(0)
    assert torch.equal(torch.stack(outputs), torch.stack([1 + torch.rand(2), torch.rand(2)]))
    assert not accelerator.streams


def test_calls_on_a_device_wait_for_the_caller_and_the_caller_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Tensor] = []

    def call(x: Tensor) -> Tensor:
        drawn.append(torch.rand(2))
        return x + 1

    torch.manual_seed(0)
    with Accelerator(monkeypatch) as accelerator:
        x = torch.empty(2, device=DEVICE).mul_(2)
        first, second = run_concurrently([call, call], x)
        first + second
    torch.manual_seed(0)
    assert torch.equal(torch.cat(drawn), torch.cat([torch.rand(2), torch.rand(2)]))
    assert not accelerator.races
    one, two = accelerator.streams
    assert one is not two
    # Memory of a tensor is given away when its own stream is done with it: other users must be told of.
    main = accelerator.main
    assert accelerator.recorded == [(place(x), one), (place(x), two), (place(first), main), (place(second), main)]
