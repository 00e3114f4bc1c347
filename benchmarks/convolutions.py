"""What bounds training on this processor: the convolutions of ResNet-18 at 96 px, in fp32 and in bf16.

    python benchmarks/convolutions.py [--batch 32] [--repeats 15]

One thread, channels last, CPU seconds, medians. `forward` is the convolution, `input` and `weight` are the two
derivatives that a step down the gradient needs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

import floor
from ssdg.engine.machine import keep_freed_memory

SHAPES = ((64, 24), (128, 12), (256, 6), (512, 3))  # channels and side of the 3x3 convolutions in the four stages
PARTS = {"forward": None, "input": [True, False, False], "weight": [False, True, False]}


def act(x: Tensor, weight: Tensor, grad: Tensor, wanted: list[bool] | None) -> object:
    """One convolution, or one of its derivatives."""
    if wanted is None:
        return F.conv2d(x, weight, padding=1)
    sides = [1, 1], [1, 1], [1, 1]  # stride, padding, dilation
    return torch.ops.aten.convolution_backward(grad, x, weight, None, *sides, False, [0, 0], 1, wanted)


def seconds(channels: int, side: int, dtype: torch.dtype, batch: int, repeats: int) -> dict[str, float]:
    """The median of each part."""
    layout = torch.channels_last
    x, grad = (torch.randn(batch, channels, side, side).to(dtype).contiguous(memory_format=layout) for _ in range(2))
    weight = torch.randn(channels, channels, 3, 3).to(dtype)
    calls = {part: partial(act, x, weight, grad, wanted) for part, wanted in PARTS.items()}
    return {part: statistics.median(floor.seconds(call, repeats, time.process_time)) for part, call in calls.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    table = Table("3x3 convolution", "part", "fp32, ms", "bf16, ms", "fp32 / bf16", "bf16, GFLOP/s")
    totals = {torch.float32: 0.0, torch.bfloat16: 0.0}
    for channels, side in SHAPES:
        taken = {dtype: seconds(channels, side, dtype, given.batch, given.repeats) for dtype in totals}
        work = 2 * 9 * given.batch * side**2 * channels**2
        for part in PARTS:
            slow, fast = (taken[dtype][part] for dtype in totals)
            numbers = (f"{slow * 1e3:.2f}", f"{fast * 1e3:.2f}", f"{slow / fast:.2f}", f"{work / fast / 1e9:.0f}")
            table.add_row(f"{channels} channels, {side} px", part, *numbers)
        for dtype, parts in taken.items():
            totals[dtype] += sum(parts.values())
    table.add_section()
    slow, fast = totals.values()
    table.add_row("all", "", f"{slow * 1e3:.1f}", f"{fast * 1e3:.1f}", f"{slow / fast:.2f}", "")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
