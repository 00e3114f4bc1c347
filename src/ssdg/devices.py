"""Work on an accelerator that does not block the host. On a CPU these functions add nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor


def evaluation_batch(device: torch.device, size: int) -> int:
    """Return the number of images per forward pass without gradients; the same bits as any other on a CPU.

    On a CPU, 128 images of 192 px take more freed memory than the process keeps: 15.7 instead of 12.9 ms per image.
    """
    return 32 if device.type == "cpu" and size >= 96 else 128


def onto(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Copy a CPU tensor to the device, optionally in another dtype.

    Only a plain copy of pinned memory is asynchronous; any other copy waits for the work queued on the device.
    Therefore the host converts the dtype and makes the tensor contiguous first.
    """
    ready = tensor.to(dtype or tensor.dtype)
    if device.type == "mps":  # shares the memory of the host: nothing to pin
        return ready.to(device)
    return ready if device.type == "cpu" else ready.contiguous().pin_memory().to(device, non_blocking=True)


def run_concurrently(calls: Sequence[Callable[[Tensor], Tensor]], x: Tensor) -> list[Tensor]:
    """Return the result of each call on `x`: sequentially on a CPU or MPS, else each in a separate CUDA stream.

    The host issues the calls in order, so draws from its generators are the same either way. Autograd runs the
    backward pass on the streams of the forward pass and synchronizes the caller's stream at the end.
    """
    if x.device.type in ("cpu", "mps"):
        return [call(x) for call in calls]
    current, streams = torch.cuda.current_stream(x.device), _streams(x.device, len(calls))
    outputs = []
    for call, stream in zip(calls, streams, strict=True):
        stream.wait_stream(current)  # for x, and for weights that the last step changed
        with torch.cuda.stream(stream):
            outputs.append(call(x))
        x.record_stream(stream)  # the allocator must not reuse its memory before this stream is done with it
    for output, stream in zip(outputs, streams, strict=True):
        current.wait_stream(stream)
        output.record_stream(current)
    return outputs


@lru_cache(maxsize=8)  # the allocator keeps memory per stream, so new streams in every step would waste it
def _streams(device: torch.device, count: int) -> tuple[torch.cuda.Stream, ...]:
    return tuple(torch.cuda.Stream(device) for _ in range(count))  # type: ignore[no-untyped-call]
