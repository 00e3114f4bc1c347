"""Domain Generalization via Gradient Surgery (Mansilla et al., ICCV 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from ...data.sets import Batch
from ...devices import onto
from ...losses.classification import cross_entropy
from ...losses.gradients import agreed_or_random, agreed_sum, agreement
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, register, sgd, with_head


class DgvgsSettings(Settings):
    """DGvGS's own settings."""

    conflict: Literal["zero", "random"] = Field(
        "zero", description="what a component gets on whose sign groups disagree: Agr-Sum, Agr-Rand"
    )
    groups: int = Field(3, ge=2, description="parts of a batch that stand for domains where there is one domain only")


class Dgvgs:
    """One network that moves only where the gradients of all domains point the same way.

    Domains of the batch are the groups; with a single domain the batch is parted at random. Every group passes by
    itself, as in the paper: that costs one pass of the batch, where one graph for all would be passed back once per
    group, and batch norm normalises each group by its own statistics. Two images are the least that has any, so a
    domain with one image in the batch sits the step out. Labels may be soft.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: DgvgsSettings) -> None:
        self.network = with_head(make_backbone(), sizes.num_classes)
        self.nets = nn.ModuleDict({"network": self.network})
        self.opts = {"network": sgd([self.network], settings)}
        self.settings = settings
        self.has_domains = sizes.num_domains > 1

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """A gradient per group, surgery, one update."""
        x, y, domain = batch.labeled.x, batch.labeled.y, batch.labeled.host_domain
        parameters = list(self.network.parameters())
        losses, grads = [], []
        for group in self._groups(batch.labeled.domain.cpu() if domain is None else domain):
            rows = onto(group, x.device)
            loss = cross_entropy(self.network(x[rows]), y[rows])
            grads.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
            losses.append(loss.detach())
        each = torch.stack(grads)
        follow(self._surgery(each), self.opts["network"])
        return {"loss": torch.stack(losses).mean(), "agreed": agreement(each).float().mean()}

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.network(x)
        return logits.unsqueeze(0)

    def _groups(self, domain: Tensor) -> list[Tensor]:
        """Row numbers of every group, two at least in each; all of it on the CPU, where no device is waited for."""
        if self.has_domains:
            each = [(domain == d).nonzero().squeeze(1) for d in sorted(set(domain.tolist()))]
            return [rows for rows in each if len(rows) > 1] or [torch.arange(len(domain))]
        num_groups = max(1, min(self.settings.groups, len(domain) // 2))
        return list(torch.randperm(len(domain)).tensor_split(num_groups))

    def _surgery(self, grads: Tensor) -> Tensor:
        if self.settings.conflict == "zero":
            return agreed_sum(grads)
        return agreed_or_random(grads, onto(torch.randn(grads.shape[1]), grads.device, grads.dtype))


def follow(direction: Tensor, optimizer: Optimizer) -> None:
    """One step of the optimizer with this as the gradient of its parameters, (n,) in their order."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parts = torch.split(direction, [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = torch.empty_like(parameter).copy_(part.view(parameter.shape))  # in the parameter's layout
    optimizer.step()


register(
    Method(
        name="dgvgs",
        family="DG",
        paper="Mansilla et al., Domain Generalization via Gradient Surgery, ICCV 2021",
        summary="weights move only where the gradients of all domains have the same sign",
        learner=Dgvgs,
        settings=DgvgsSettings,
        needs=("balanced",),
        presets={"quick none": {"lr": 0.01}},  # three groups' gradients are summed
    )
)
