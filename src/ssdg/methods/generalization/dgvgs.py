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
from ...losses.gradients import agreed_or_random, agreed_sum, signs_agree
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, register, sgd, with_head


class DgvgsSettings(Settings):
    """Settings of DGvGS."""

    conflict: Literal["zero", "random"] = Field(
        "zero", description="update of components whose signs conflict: zero (Agr-Sum) or random (Agr-Rand)"
    )
    groups: int = Field(3, ge=2, description="random parts of a batch that replace domains if there is only one")


class Dgvgs:
    """One network whose weights change only where the gradients of all domains have the same sign.

    The groups are the domains of the batch; with a single domain the batch is split at random. Each group is
    forwarded separately, as in the paper: in total that costs one pass over the batch, whereas a common graph would
    need a backward pass over the whole batch per group. Batch norm normalizes each group with its own statistics,
    which need at least two images: a domain with one image in the batch is skipped in that step. Labels may be soft.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: DgvgsSettings) -> None:
        self.network = with_head(make_backbone(), sizes.num_classes)
        self.nets = nn.ModuleDict({"network": self.network})
        self.opts = {"network": sgd([self.network], settings)}
        self.settings = settings
        self.has_domains = sizes.num_domains > 1

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Compute a gradient per group, combine them by surgery, and update once."""
        x, y, domain = batch.labeled.x, batch.labeled.y, batch.labeled.host_domain
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        losses, grads = [], []
        for group in self._groups(batch.labeled.domain.cpu() if domain is None else domain):
            rows = onto(group, x.device)
            loss = cross_entropy(self.network(x[rows]), y[rows])
            grads.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
            losses.append(loss.detach())
        stacked = torch.stack(grads)
        step_with_gradient(self._surgery(stacked), self.opts["network"])
        return {"loss": torch.stack(losses).mean(), "agreed": signs_agree(stacked).float().mean()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.network(x)
        return logits.unsqueeze(0)

    def _groups(self, domain: Tensor) -> list[Tensor]:
        """Return the rows of each group, at least two in each; all on the CPU, so that no device is waited for."""
        if self.has_domains:
            groups = [(domain == d).nonzero().squeeze(1) for d in sorted(set(domain.tolist()))]
            return [rows for rows in groups if len(rows) > 1] or [torch.arange(len(domain))]
        num_groups = max(1, min(self.settings.groups, len(domain) // 2))
        return list(torch.randperm(len(domain)).tensor_split(num_groups))

    def _surgery(self, grads: Tensor) -> Tensor:
        if self.settings.conflict == "zero":
            return agreed_sum(grads)
        return agreed_or_random(grads, onto(torch.randn(grads.shape[1]), grads.device, grads.dtype))


def step_with_gradient(gradient: Tensor, optimizer: Optimizer) -> None:
    """Take one step of the optimizer with `gradient` (n,), concatenated over its parameters in their order."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parts = torch.split(gradient, [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = torch.empty_like(parameter).copy_(part.view(parameter.shape))  # in the parameter's layout
    optimizer.step()


register(
    Method(
        name="dgvgs",
        family="DG",
        paper="Mansilla et al., Domain Generalization via Gradient Surgery, ICCV 2021",
        summary="weights change only where the gradients of all domains have the same sign",
        learner=Dgvgs,
        settings=DgvgsSettings,
        needs=("balanced",),
        presets={"quick none": {"lr": 0.01}},  # the gradients of three groups are summed
    )
)
