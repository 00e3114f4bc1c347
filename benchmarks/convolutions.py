"""What bounds training on this processor: the 3x3 convolutions of a network, in fp32 and in bf16.

    python benchmarks/convolutions.py [--network digits-cnn] [--repeats 15]

One thread, channels last, CPU seconds, medians. `forward` is the convolution, `input` and `weight` are the two
derivatives that a step down the gradient needs; images need no derivative.
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
from ssdg.machine import keep_freed_memory

# Of a pass: images, then channels before, channels after and side of the 3x3 convolutions in the four stages.
NETWORKS = {
    "resnet18": (32, ((64, 64, 24), (128, 128, 12), (256, 256, 6), (512, 512, 3))),  # at 96 px
    "digits-cnn": (128, ((3, 64, 32), (64, 64, 16), (64, 64, 8), (64, 64, 4))),
}
RGB = 3
PARTS = {"forward": None, "input": [True, False, False], "weight": [False, True, False]}


def act(x: Tensor, weight: Tensor, grad: Tensor, wanted: list[bool] | None) -> object:
    """One convolution, or one of its derivatives."""
    if wanted is None:
        return F.conv2d(x, weight, padding=1)
    sides = [1, 1], [1, 1], [1, 1]  # stride, padding, dilation
    return torch.ops.aten.convolution_backward(grad, x, weight, None, *sides, False, [0, 0], 1, wanted)


def seconds(batch: int, shape: tuple[int, int, int], dtype: torch.dtype, repeats: int) -> dict[str, float]:
    """The median of each part."""
    before, after, side = shape
    x, grad = (
        torch.randn(batch, channels, side, side).to(dtype).contiguous(memory_format=torch.channels_last)
        for channels in (before, after)
    )
    weight = torch.randn(after, before, 3, 3).to(dtype)
    parts = {part: wanted for part, wanted in PARTS.items() if before != RGB or part != "input"}
    calls = {part: partial(act, x, weight, grad, wanted) for part, wanted in parts.items()}
    return {part: statistics.median(floor.seconds(call, repeats, time.process_time)) for part, call in calls.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, default="resnet18")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    table = Table("3x3 convolution", "part", "fp32, ms", "bf16, ms", "fp32 / bf16", "bf16, GFLOP/s")
    totals = {torch.float32: 0.0, torch.bfloat16: 0.0}
    batch, shapes = NETWORKS[arguments.network]
    for before, after, side in shapes:
        taken = {dtype: seconds(batch, (before, after, side), dtype, arguments.repeats) for dtype in totals}
        work = 2 * 9 * batch * side**2 * before * after
        for part in taken[torch.float32]:
            slow, fast = (taken[dtype][part] for dtype in totals)
            numbers = (f"{slow * 1e3:.2f}", f"{fast * 1e3:.2f}", f"{slow / fast:.2f}", f"{work / fast / 1e9:.0f}")
            table.add_row(f"{before} to {after} channels, {side} px", part, *numbers)
        for dtype, parts in taken.items():
            totals[dtype] += sum(parts.values())
    table.add_section()
    slow, fast = totals.values()
    table.add_row("all", "", f"{slow * 1e3:.1f}", f"{fast * 1e3:.1f}", f"{slow / fast:.2f}", "")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
