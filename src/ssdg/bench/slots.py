"""Places for workers on this machine: so many that they do not fight for cores and GPUs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from .worker import Options


@dataclass(frozen=True)
class Slot:
    """A place for one worker: the cores it is bound to (empty: any) and its GPU (empty: all there are)."""

    number: int
    cores: tuple[int, ...] = ()
    gpu: str = ""


def make_slots(jobs: int, threads: int, cores: Sequence[int], gpus: Sequence[str] = ()) -> list[Slot]:
    """Cores of their own for all workers where there are enough, else none; GPUs in turn."""
    enough = jobs * threads <= len(cores)
    return [
        Slot(
            n,
            tuple(cores[n * threads : (n + 1) * threads]) if enough else (),
            gpus[n % len(gpus)] if gpus else "",
        )
        for n in range(jobs)
    ]


def find_gpus(device: str) -> list[str]:
    """The GPUs that workers may use, as CUDA names them."""
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


def find_slots(jobs: int | None, options: Options) -> list[Slot]:
    """As many workers as asked for; else one for each GPU, or as many as the cores of this process allow."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    gpus = find_gpus(options.device)
    usual = len(gpus) or max(1, (len(cores) or os.cpu_count() or 1) // options.threads)
    return make_slots(jobs or usual, options.threads, cores, gpus)
