"""Device, precision and processes, through accelerate."""

from __future__ import annotations

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
from .methods.api import Learner

Precision = Literal["fp32", "bf16"]
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Machine:
    """Where and how tensors are computed."""

    accelerator: Accelerator
    precision: str

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return torch.device(self.accelerator.device)

    @property
    def rank(self) -> int:
        """This process among all, from 0."""
        return int(self.accelerator.process_index)

    @property
    def world(self) -> int:
        """How many processes train together."""
        return int(self.accelerator.num_processes)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all processes."""
        self.accelerator.wait_for_everyone()

    def same(self, value: str) -> str:
        """The main process's value, in every process."""
        values = [value]
        broadcast_object_list(values)
        return values[0]

    def any(self, flag: bool) -> bool:
        """Whether the flag is up in any process; all must ask."""
        if self.world == 1:
            return flag
        flags = torch.tensor(int(flag), device=self.device)
        torch.distributed.all_reduce(flags)
        return bool(flags)

    def prepare(self, learner: Learner) -> None:
        """Move a new learner here: device, layout, precision of its backbones, shared gradients.

        Images come channels last. On a CPU the weights do not: convolutions lay them out anew anyhow (same numbers
        in the same time), and fused SGD copies what is not contiguous, which takes it two and a half times as long.
        """
        layout = torch.preserve_format if self.device.type == "cpu" else torch.channels_last
        learner.nets.to(self.device, memory_format=layout)  # type: ignore[call-overload]
        for module in learner.nets.modules():
            if hasattr(module, "bf16_pays") and self.precision == "bf16":
                # Per pass and not per step: autocast caches its casts, which a step's own updates make stale.
                for name in ("forward", "maps"):
                    setattr(module, name, Autocast(module, name, self.device.type))
        if self.world > 1:
            for optimizer in learner.opts.values():
                optimizer.register_step_pre_hook(lambda opt, args, kwargs: self._average_gradients(opt))

    def _average_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Data parallelism as one exchange before every update: it fits methods with several optimizers."""
        gradients = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in gradients])
        torch.distributed.all_reduce(flat)
        means = torch.split(flat / self.world, [g.numel() for g in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view(gradient.shape))


@dataclass(frozen=True, eq=False)
class Autocast:
    """A pass of a module, named by its method, in bfloat16.

    An object and not a closure: a deep copy of the module gets one of its own instead of the original's passes.
    """

    module: nn.Module
    name: str
    device: str

    def __call__(self, *args: Any) -> Tensor:
        """What the module's class makes of the arguments."""
        with torch.autocast(self.device, torch.bfloat16):
            out: Tensor = getattr(type(self.module), self.name)(self.module, *args)
        return out


def keep_freed_memory() -> None:
    """Tell glibc to keep what a step frees for the next one: up to three times faster on a CPU, same numbers.

    By default every large tensor is mapped from the system and returned to it, zeroed again each time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 2**26)):  # MMAP_MAX, TRIM_THRESHOLD, TOP_PAD (64 MB)
        mallopt(option, value)


def return_freed_memory() -> None:
    """Give the system back what is free now. Between stages: the next one needs memory in other pieces."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def start_machine(device: str = "auto", precision: str = "fp32") -> Machine:
    """Join the other processes (torchrun) and take a device; `auto` is a CUDA device if there is one."""
    check_device(device)
    keep_freed_memory()
    is_cpu = device == "cpu" or not torch.cuda.is_available()
    # One process evaluates and labels while the others wait, which may take longer than the usual ten minutes.
    patience = InitProcessGroupKwargs(timeout=timedelta(days=1))
    return Machine(Accelerator(cpu=is_cpu, kwargs_handlers=[patience]), precision)


def check_device(device: str) -> None:
    """Refuse a device that is not known or not there."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda was given and no CUDA device is found; give --device cpu, or auto")


def choose_precision(backbone: nn.Module, device: str) -> Precision:
    """bf16 where the hardware computes it fast and the backbone gains from it; a rule, so that it never wavers."""
    if device != "cpu" and torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16" if fast and bool(getattr(backbone, "bf16_pays", False)) else "fp32"
