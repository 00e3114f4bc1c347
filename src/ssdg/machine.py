"""Device, precision and processes, through accelerate."""

from __future__ import annotations

import copy
import ctypes
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, broadcast_object_list
from torch import Tensor, nn

from .errors import UserError, unknown
from .limits import DEVICES
from .methods.api import Learner

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Machine:
    """Device, precision and processes of a run."""

    accelerator: Accelerator
    precision: str

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return torch.device(self.accelerator.device)

    @property
    def rank(self) -> int:
        """The rank of this process, from 0."""
        return int(self.accelerator.process_index)

    @property
    def world(self) -> int:
        """The number of processes that train together."""
        return int(self.accelerator.num_processes)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all processes."""
        self.accelerator.wait_for_everyone()

    def same(self, value: str) -> str:
        """Return the main process's value in every process."""
        values = [value]
        broadcast_object_list(values)
        return values[0]

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process; all processes must call it."""
        if self.world == 1:
            return flag
        flags = torch.tensor(int(flag), device=self.device)
        torch.distributed.all_reduce(flags)
        return bool(flags)

    def prepare(self, learner: Learner) -> None:
        """Move a new learner here: device, memory format, precision of its backbones, shared gradients.

        Images are channels last. On a CPU the weights are not: convolutions reorder them anyway (same numbers in the
        same time), and fused SGD copies non-contiguous tensors, which makes it two and a half times slower.
        """
        layout = torch.preserve_format if self.device.type == "cpu" else torch.channels_last
        learner.nets.to(self.device, memory_format=layout)  # type: ignore[call-overload]
        if self.precision == "bf16":
            run_in_bf16(learner.nets, self.device.type)
        if self.world > 1:
            for optimizer in learner.opts.values():
                optimizer.register_step_pre_hook(lambda opt, args, kwargs: self._average_gradients(opt))

    def _average_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Average gradients over processes before every update, which suits methods with several optimizers."""
        gradients = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in gradients])
        torch.distributed.all_reduce(flat)
        means = torch.split(flat / self.world, [g.numel() for g in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view(gradient.shape))


@dataclass(frozen=True, eq=False)
class Autocast:
    """A method of a module, such as `forward`, run in bfloat16.

    An object, not a closure: a deep copy of the module gets its own copy instead of calling the original.
    """

    module: nn.Module
    name: str
    device: str

    def __call__(self, *args: Any) -> Tensor:
        """Call the method of the module's class."""
        with torch.autocast(self.device, torch.bfloat16):
            out: Tensor = getattr(type(self.module), self.name)(self.module, *args)
        return out


def run_in_bf16(nets: nn.Module, device: str) -> None:
    """Make the backbones inside `nets` compute in bfloat16, in place."""
    for module in nets.modules():
        if hasattr(module, "prefers_bf16"):
            # Per forward pass, not per step: autocast caches its casts, which updates within a step make stale.
            for name in ("forward", "maps"):
                setattr(module, name, Autocast(module, name, device))


def gains_from_bf16(nets: nn.Module) -> bool:
    """Return whether `nets` compute at least a part of a backbone: with all of it frozen, only heads are left."""
    return any(hasattr(net, "prefers_bf16") and getattr(net, "boundary", None) != "all" for net in nets.modules())


def bf16_copy(learner: Learner, device: str) -> Learner:
    """Return a learner with the same weights, not copies of them, whose backbones compute in bfloat16."""
    twin = copy_modules(learner)
    run_in_bf16(twin.nets, device)
    return twin


def copy_modules(learner: Learner) -> Learner:
    """Return a copy of a learner and its modules that shares all tensors and optimizers; for evaluation."""
    shared = [*learner.nets.parameters(), *learner.nets.buffers(), learner.opts]
    return copy.deepcopy(learner, {id(value): value for value in shared})


def keep_freed_memory() -> None:
    """Make glibc reuse freed memory for the next step: up to three times faster on a CPU, same numbers.

    By default every large tensor is mapped from the system and returned to it, and zeroed each time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 2**26)):  # MMAP_MAX, TRIM_THRESHOLD, TOP_PAD (64 MB)
        mallopt(option, value)


def return_freed_memory() -> None:
    """Return free memory to the system. Called between stages: the next one needs blocks of other sizes."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def start_machine(device: str = "auto", precision: str = "fp32") -> Machine:
    """Join the other processes (torchrun) and select a device.

    Parameters
    ----------
    device
        auto (a CUDA device if there is one), cpu, cuda or mps.
    precision
        fp32 or bf16, of the backbones' forward passes.

    Returns
    -------
    Machine
        Pass it to `ssdg.run`.

    Raises
    ------
    UserError
        If the device is unknown or not available.
    """
    check_device(device)
    keep_freed_memory()
    is_cpu = device == "cpu" or (device != "mps" and not torch.cuda.is_available())
    # One process evaluates and labels while the others wait, which may exceed the default timeout of ten minutes.
    timeout = InitProcessGroupKwargs(timeout=timedelta(days=1))
    return Machine(Accelerator(cpu=is_cpu, kwargs_handlers=[timeout]), precision)


def check_device(device: str) -> None:
    """Reject a device that is unknown or not available."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda needs a CUDA device and none is available; give --device cpu, or auto")
    if device == "mps" and not torch.backends.mps.is_available():
        raise UserError(
            "--device mps needs a Mac with an Apple GPU and a torch built for it, and none is available; "
            "give --device cpu, or auto"
        )


def choose_precision(backbone: nn.Module, device: str) -> Precision:
    """Return bf16 if the hardware is fast at it and the backbone benefits; a rule, so that it is reproducible."""
    is_gpu = device != "cpu" and torch.cuda.is_available()
    pays = is_gpu or bool(getattr(backbone, "prefers_bf16", False))
    return "bf16" if pays and is_fast_at_bf16(device) else "fp32"


def is_fast_at_bf16(device: str) -> bool:
    """Return whether the hardware has instructions for bfloat16."""
    if device != "cpu" and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())
