"""Deep Domain-Adversarial Image Generation (Zhou et al., AAAI 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import Field
from torch import Tensor, nn, no_grad
from torch.nn.modules.batchnorm import _BatchNorm

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...models.styles import PerturbationNet
from ..api import MakeBackbone, Method, Progress, Sizes, descend, register, sgd, with_head
from .groups import GroupSettings, across_domains


class DdaigSettings(GroupSettings):
    """DDAIG's own settings; the defaults are those of its authors' release."""

    strength: float = Field(0.3, gt=0, description="λ: the largest change of a pixel in [0, 1]")
    alpha: float = Field(0.5, ge=0, le=1, description="share of changed images in the classifier's loss")
    warmup: int = Field(0, ge=0, description="epochs in which the classifier sees no changed images")
    width: int = Field(32, ge=1, description="channels of the network that changes images")


class Ddaig:
    """A classifier, a classifier of domains, and a network that changes images so that only the latter is fooled.

    Changed images are not clamped to [0, 1]: black and white pixels, most of a digit, would take no gradient. Images
    and changed images pass in separate batches, and batch norm takes both into its running statistics. While one
    network learns from another, that one's weights and statistics stay. Labels may be soft, and guessed ones count
    like true ones. With one domain there is nothing to fool, and changes only keep the label.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: DdaigSettings) -> None:
        self.settings = settings
        self.network = with_head(make_backbone(), sizes.num_classes)
        self.domains = with_head(make_backbone(), sizes.num_domains)
        self.perturbation = PerturbationNet(settings.width)
        self.nets = nn.ModuleDict(
            {"network": self.network, "domains": self.domains, "perturbation": self.perturbation}
        )
        self.opts = {name: sgd([net], settings) for name, net in self.nets.items()}

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """One update each of the perturbation, the classifier and the classifier of domains."""
        x, y, domain = batch.labeled.x, batch.labeled.y, batch.labeled.domain
        with fixed(self.network), fixed(self.domains):
            changed = self._change(x)
            kept, fooled = cross_entropy(self.network(changed), y), cross_entropy(self.domains(changed), domain)
        descend(kept - fooled, self.opts["perturbation"])
        loss = self._classify(x, y, at)
        descend(loss, self.opts["network"])
        loss_domain = cross_entropy(self.domains(x), domain)
        descend(loss_domain, self.opts["domains"])
        scalars = {"loss": loss, "kept": kept, "fooled": fooled, "loss_domain": loss_domain}
        return {name: value.detach() for name, value in scalars.items()}

    def _change(self, x: Tensor) -> Tensor:
        changed: Tensor = x + self.settings.strength * self.perturbation(x)
        return changed

    def _classify(self, x: Tensor, y: Tensor, at: Progress) -> Tensor:
        alpha, loss = self.settings.alpha, cross_entropy(self.network(x), y)
        if at.epoch < self.settings.warmup:
            return loss
        with no_grad():
            changed = self._change(x)  # by the perturbation as it is now
        return (1 - alpha) * loss + alpha * cross_entropy(self.network(changed), y)

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.network(x)
        return logits.unsqueeze(0)


@contextmanager
def fixed(net: nn.Module) -> Iterator[None]:
    """Passes made inside reach the input alone: no gradient for the weights, no change of running statistics."""
    norms = [(n, n.momentum) for n in net.modules() if isinstance(n, _BatchNorm) and n.momentum is not None]
    weights = [p for p in net.parameters() if p.requires_grad]
    for weight in weights:
        weight.requires_grad_(False)
    for norm, _ in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)
        for norm, momentum in norms:
            norm.momentum = momentum


register(
    across_domains(
        Method(
            name="ddaig",
            family="DG",
            paper="Zhou et al., Deep Domain-Adversarial Image Generation for Domain Generalisation, AAAI 2020",
            summary="a network learns to change images so that their domain is lost and their class is not",
            learner=Ddaig,
            settings=DdaigSettings,
            presets={
                "quick": {"width": 16},  # a third of a step on digits; 32 take more than half
                "quick none": {"lr": 0.01},  # at 0.03 the digits CNN forgets what it knew and starts anew
            },
        )
    )
)
