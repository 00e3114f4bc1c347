"""How work reaches an accelerator without the host waiting for it. On a CPU nothing here does anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor


def onto(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A CPU tensor on the device, of its own dtype or another.

    Only a plain copy of pinned memory runs beside the host: all else waits for what the device has to do before it.
    So the dtype is changed, and gaps between rows are closed, on this side.
    """
    ready = tensor.to(dtype or tensor.dtype)
    return ready if device.type == "cpu" else ready.contiguous().pin_memory().to(device, non_blocking=True)


def side_by_side(calls: Sequence[Callable[[Tensor], Tensor]], x: Tensor) -> list[Tensor]:
    """What each call makes of x: one after the other on a CPU, on an accelerator each on a CUDA stream of its own.

    The host issues them in their order, so draws from its generators are the same either way. Autograd passes back
    on the streams of the way forth, and lets the caller's stream wait for them in the end.
    """
    if x.device.type == "cpu":
        return [call(x) for call in calls]
    here, streams = torch.cuda.current_stream(x.device), _streams(x.device, len(calls))
    made = []
    for call, stream in zip(calls, streams, strict=True):
        stream.wait_stream(here)  # for x, and for weights that the last step has changed
        with torch.cuda.stream(stream):
            made.append(call(x))
        x.record_stream(stream)  # its memory is given away no sooner than this stream is done with it
    for out, stream in zip(made, streams, strict=True):
        here.wait_stream(stream)
        out.record_stream(here)
    return made


@lru_cache(maxsize=8)  # new ones for every step would each keep memory of their own
def _streams(device: torch.device, count: int) -> tuple[torch.cuda.Stream, ...]:
    return tuple(torch.cuda.Stream(device) for _ in range(count))  # type: ignore[no-untyped-call]
