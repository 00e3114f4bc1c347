"""Networks with moving averages: what the cycle trains if the run labels its own unlabeled domains (`apl=self`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn, stack

from ...data.sets import Batch
from ...devices import run_concurrently
from ...losses.classification import cross_entropy, cross_entropy_per_sample
from ...losses.consistency import ema_decay
from ...losses.information import label_diversity
from ...losses.selection import small_loss_rows
from ...models.layers import EMA
from ..api import MakeBackbone, Progress, Sizes, descend, sgd
from .dual import DualNetworks, build_network, total
from .settings import SELF, EidSettings


class AveragedNetworks:
    """One or two networks and the moving average of each; `logits` returns those of the averages.

    With `average_decay=0` there are no averages, and `logits` returns those of the networks.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: EidSettings) -> None:
        self.settings = settings
        num = settings.networks
        self.networks = [build_network(make_backbone, sizes.num_classes, settings) for _ in range(num)]
        decay = settings.average_decay
        self.averages = [EMA(network, decay) for network in self.networks] if decay else []
        names = ("first", "second")
        # Averages come first: features in reports are those of the first backbone.
        self.nets = nn.ModuleDict({f"{name}_average": net for name, net in zip(names, self.averages, strict=False)})
        self.nets.update(dict(zip(names, self.networks, strict=False)))
        self.opts = {"networks": sgd(self.networks, settings)}

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Learn labels and pseudo-labels as one batch; then update the averages."""
        x, y, trusted = batch.labeled.x, batch.labeled.y, batch.labeled.trusted
        logits = run_concurrently(self.networks, x)
        terms = {"loss_l": total(self._losses(logits, y, trusted, at))}
        if self.settings.diversity and not bool(trusted.all()):
            terms["diversity"] = total(label_diversity(part[~trusted]) for part in logits)
        loss = total(terms.values())
        descend(loss, self.opts["networks"])
        self._update_averages(at)
        return {"loss": loss.detach(), **{name: term.detach() for name, term in terms.items()}}

    def _update_averages(self, at: Progress) -> None:
        decay = ema_decay(int(at.schedule_step), self.settings.average_decay)
        for average, network in zip(self.averages, self.networks, strict=False):
            average.update(network, decay)

    def _losses(self, logits: list[Tensor], y: Tensor, trusted: Tensor, at: Progress) -> list[Tensor]:
        """Return the cross-entropy of each network; with two, on the pseudo-labels that the other finds clean."""
        rate = self.settings.rate(at.epoch, at.epochs)
        if len(logits) == 1 or rate == 1 or bool(trusted.all()):
            return [cross_entropy(part, y) for part in logits]
        untrusted = (~trusted).nonzero().squeeze(-1)
        picked = []
        for part in logits:
            losses = cross_entropy_per_sample(part.detach()[untrusted], y[untrusted])
            picked.append(torch.cat([trusted.nonzero().squeeze(-1), untrusted[small_loss_rows(losses, rate)]]))
        return [cross_entropy(part[rows], y[rows]) for part, rows in zip(logits, reversed(picked), strict=True)]

    def logits(self, x: Tensor) -> Tensor:
        """Return (networks, B, classes) of the averages, or of the networks if there are none."""
        return stack([net(x) for net in self.averages or self.networks])


def build_networks(make_backbone: MakeBackbone, sizes: Sizes, cfg: EidSettings) -> DualNetworks | AveragedNetworks:
    """Build the product of `eid`: the dual networks of DCG, or averaged networks with `apl=self`."""
    return (AveragedNetworks if cfg.apl == SELF else DualNetworks)(make_backbone, sizes, cfg)
