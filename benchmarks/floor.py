"""The plain baseline: the same forward and backward passes in a plain loop, in fp32, NCHW, with unfused SGD.

Its networks follow their papers: the digits CNN has its ReLU before the max-pool, style confusion uses plain
operations. Inputs are random tensors. It uses the system allocator: a process that measures
the baseline must not call `keep_freed_memory`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.optim import SGD

from ssdg.methods.api import with_head
from ssdg.models.backbones import build_backbone
from ssdg.models.layers import attach_style

INNER_STEPS = 4  # of MCD's step C


def plain_backbone(name: str) -> Any:
    """The network as its paper writes it down: ours has its ReLUs behind its max-pools."""
    net: Any = build_backbone(name)
    if name.startswith("resnet"):
        net.maxpool, net.relu = net.relu, nn.MaxPool2d(3, stride=2, padding=1)
    if name == "digits-cnn":
        for stage in (net.stage1, net.stage2, net.stage3, net.stage4):
            stage[1], stage[2] = stage[2], stage[1]
    return net


class PlainStyle(nn.Module):
    """Style confusion, written down as its equations are."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) to the same shape."""
        mean, deviation = x.mean((2, 3), keepdim=True), (x.var((2, 3), keepdim=True) + 1e-6).sqrt()
        mix = torch.distributions.Beta(0.5, 0.5).sample((len(x), 1, 1, 1))
        order = torch.randperm(len(x))
        beta = mix * mean + (1 - mix) * mean[order]
        gamma = mix * deviation + (1 - mix) * deviation[order]
        return gamma * ((x - mean) / deviation) + beta


def mcd(backbone: str, classes: int) -> Callable[[Tensor, Tensor], None]:
    """Steps A, B and C; four inner steps."""
    net: nn.Module = plain_backbone(backbone).train()
    heads = nn.ModuleList([nn.Linear(build_backbone(backbone).num_features, classes) for _ in range(2)])
    opts = [SGD(m.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4, fused=False) for m in (net, heads)]

    def descend(loss: Tensor, *chosen: SGD) -> None:
        for opt in chosen:
            opt.zero_grad()
        torch.autograd.backward(loss)
        for opt in chosen:
            opt.step()

    def outputs(features: Tensor) -> Tensor:
        return torch.stack([head(features).softmax(-1) for head in heads]).square().sum()

    def passes(x: Tensor, u: Tensor) -> None:
        descend(outputs(net(x)), *opts)
        with torch.no_grad():
            features = torch.cat([net(x), net(u)])
        descend(outputs(features), opts[1])
        for _ in range(INNER_STEPS):
            descend(outputs(net(u)), opts[0])

    return passes


def dcg(backbone: str, classes: int) -> Callable[[Tensor, Tensor], None]:
    """Both networks with their style confusors, one after the other."""
    nets = []
    for _ in range(2):
        net = plain_backbone(backbone)
        attach_style(net, PlainStyle)
        nets.append(with_head(net, classes).train())
    opt = SGD([p for net in nets for p in net.parameters()], lr=1e-4, momentum=0.9, weight_decay=5e-4, fused=False)

    def passes(x: Tensor, u: Tensor) -> None:
        images = torch.cat([x, u])
        opt.zero_grad()
        torch.autograd.backward(torch.stack([net(images).square().sum() for net in nets]).sum())
        opt.step()

    return passes


def look(backbone: str, classes: int, networks: int) -> Callable[[Tensor], None]:
    """A batch through so many networks for their predictions: evaluation and labeling."""
    nets = [with_head(plain_backbone(backbone), classes).eval() for _ in range(networks)]

    def passes(x: Tensor) -> None:
        with torch.no_grad():
            for net in nets:
                net(x).argmax(-1)

    return passes


def read(path: Path, size: int) -> Tensor:
    """An image from its file, as a loader reads it again in every epoch: decode, resize, shift, flip, to a tensor."""
    with Image.open(path) as file:
        image = file.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    if size > 32:
        image = image.transform((size, size), Image.Transform.AFFINE, (1, 0, 3, 0, 1, -3))
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().div(255.0)


def seconds(act: Callable[[], object], repeats: int, clock: Callable[[], float]) -> list[float]:
    """What the clock says of every repeat."""
    taken = []
    for _ in range(repeats):
        since = clock()
        act()
        taken.append(clock() - since)
    return taken
