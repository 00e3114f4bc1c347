"""DCG, dual calibrative generalization: each of two networks learns the samples that the other considers clean."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn, stack

from ...data.sets import Batch
from ...devices import run_concurrently
from ...losses.classification import cross_entropy, cross_entropy_per_sample
from ...losses.information import label_diversity
from ...losses.selection import small_loss_rows
from ...models.layers import StyleConfusor, attach_style
from ..api import MakeBackbone, Progress, Sizes, descend, sgd, with_head
from .settings import EidSettings


class DualNetworks:
    """Two networks of the same architecture, each with its own head; `logits` returns both."""

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: EidSettings) -> None:
        self.settings = settings
        self.networks = [build_network(make_backbone, sizes.num_classes, settings) for _ in range(2)]
        self.nets = nn.ModuleDict({"first": self.networks[0], "second": self.networks[1]})
        self.opts = {"both": sgd(self.networks, settings)}

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Update both networks (Algorithm 1, innermost loop) with the sum of their losses (Eq. allloss)."""
        labeled, pseudo = batch.labeled, batch.pseudo
        assert pseudo is not None
        x = torch.cat([labeled.x, pseudo.x])  # styles are confused across labeled and unlabeled images
        counts = [len(labeled.x), len(pseudo.x)]
        parts = [torch.split(logits, counts) for logits in run_concurrently(self.networks, x)]
        terms: dict[str, Tensor] = {}
        if len(labeled.x):  # a shuffled union may contain no labeled or no pseudo-labeled image
            terms["loss_l"] = total(cross_entropy(logits_l, labeled.y) for logits_l, _ in parts)
        if len(pseudo.x):
            rate = self.settings.rate(at.epoch, at.epochs)
            terms |= self._unlabeled_terms([logits_u for _, logits_u in parts], pseudo.y, rate)
        loss = total(terms.values())
        descend(loss, self.opts["both"])
        return {"loss": loss.detach(), **{name: term.detach() for name, term in terms.items()}}

    def _unlabeled_terms(self, logits_u: list[Tensor], y: Tensor, rate: float) -> dict[str, Tensor]:
        selected = [small_loss_rows(cross_entropy_per_sample(logits.detach(), y), rate) for logits in logits_u]
        # Each network learns the samples selected by the other (Eq. clean_loss).
        swapped = zip(logits_u, reversed(selected), strict=True)
        terms = {"loss_u": total(cross_entropy(logits[rows], y[rows]) for logits, rows in swapped)}
        if self.settings.diversity:
            terms["diversity"] = total(label_diversity(logits) for logits in logits_u)
        return terms

    def logits(self, x: Tensor) -> Tensor:
        """Return (2, B, classes)."""
        return stack(run_concurrently(self.networks, x))


def build_network(make_backbone: MakeBackbone, num_classes: int, cfg: EidSettings) -> nn.Module:
    """Return a classifier that confuses styles in training, if the settings say so."""
    backbone = make_backbone()
    if cfg.style:
        attach_style(
            backbone,
            lambda: StyleConfusor(cfg.style_alpha, cfg.style_probability, cfg.style_eps, cfg.style_detach),
        )
    return with_head(backbone, num_classes)


def total(terms: Iterable[Tensor]) -> Tensor:
    """Sum scalar tensors."""
    return stack(list(terms)).sum()
