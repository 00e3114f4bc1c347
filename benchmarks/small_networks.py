"""What a training step costs with the networks for 32 px, and with PyTorch's instance norm instead of ours.

    python benchmarks/small_networks.py [--repeats 40]

One thread, bf16, channels last, batches of 64, CPU seconds, medians. The networks take turns, so that a busy machine
slows all of them down equally.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn

from ssdg.machine import keep_freed_memory
from ssdg.methods.api import with_head
from ssdg.models.backbones import build_backbone
from ssdg.models.common import LeanInstanceNorm2d

BATCH, CLASSES, WARM_UP = 64, 10, 5
BASELINE = "digits-cnn"


def networks() -> dict[str, nn.Module]:
    """Return classifiers by the name of their row."""
    built: dict[str, nn.Module] = {
        name: with_head(build_backbone(name), CLASSES) for name in (BASELINE, "character-cnn")
    }
    usual = with_head(build_backbone("character-cnn"), CLASSES)
    for stage in usual[0].children():
        if isinstance(stage, nn.Sequential) and isinstance(stage[2], LeanInstanceNorm2d):
            stage[2] = nn.InstanceNorm2d(stage[2].num_features, affine=True)
    built["character-cnn, nn.InstanceNorm2d"] = usual
    for net in built.values():
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return built


def step_seconds(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the CPU seconds of a forward and a backward pass."""
    started = time.process_time()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(net(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    return time.process_time() - started


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40)
    repeats = parser.parse_args().repeats
    keep_freed_memory()
    torch.set_num_threads(1)
    x = torch.rand(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(CLASSES, (BATCH,))
    nets = networks()
    seconds: dict[str, list[float]] = {name: [] for name in nets}
    for _ in range(WARM_UP + repeats):
        for name, net in nets.items():
            seconds[name].append(step_seconds(net, x, y))
    medians = {name: statistics.median(values[WARM_UP:]) for name, values in seconds.items()}
    table = Table("network", "ms per step", f"relative to {BASELINE}")
    for name, median in medians.items():
        table.add_row(name, f"{1000 * median:.1f}", f"{median / medians[BASELINE]:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
