"""Deep Domain-Adversarial Image Generation (Zhou et al., AAAI 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import Field
from torch import Tensor, nn, no_grad
from torch.nn.modules.batchnorm import _BatchNorm

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...models.backbones import input_std
from ...models.styles import PerturbationNet
from ..api import MakeBackbone, Method, Progress, Sizes, descend, register, sgd, with_head
from .groups import GroupSettings, with_style_groups


class DdaigSettings(GroupSettings):
    """Settings of DDAIG; the defaults are those of its authors' release."""

    strength: float = Field(
        0.3, gt=0, description="λ: the largest change of a pixel, in units of its normalized range"
    )
    alpha: float = Field(
        0.5,
        ge=0,
        le=1,
        description="weight of perturbed images in the classifier's loss; 1 − alpha for the originals",
    )
    warmup: int = Field(0, ge=0, description="epochs in which the classifier sees no perturbed images")
    width: int = Field(32, ge=1, description="channels of the perturbation network")

    @property
    def revision(self) -> int:
        """2: revision 1 added the change to images in [0, 1], about four times as strong."""
        return 2


class Ddaig:
    """A label classifier, a domain classifier, and a network that perturbs images to fool only the latter.

    Perturbed images are not clamped to [0, 1]: black and white pixels, most of a digit, would get no gradient. Images
    and perturbed images are forwarded in separate batches, and batch norm includes both in its running statistics.
    While one network learns from another, the other's weights and statistics are frozen. Labels may be soft, and
    pseudo-labels count like true labels. With a single domain there is nothing to fool: perturbations only preserve
    the label.
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
        """Update the perturbation network, the label classifier and the domain classifier once each."""
        x, y, domain = batch.labeled.x, batch.labeled.y, batch.labeled.domain
        with frozen(self.network), frozen(self.domains):
            perturbed = self._perturb(x)
            loss_label = cross_entropy(self.network(perturbed), y)
            loss_fooled = cross_entropy(self.domains(perturbed), domain)
        descend(loss_label - loss_fooled, self.opts["perturbation"])
        loss = self._classification_loss(x, y, at)
        descend(loss, self.opts["network"])
        loss_domain = cross_entropy(self.domains(x), domain)
        descend(loss_domain, self.opts["domains"])
        scalars = {"loss": loss, "kept": loss_label, "fooled": loss_fooled, "loss_domain": loss_domain}
        return {name: value.detach() for name, value in scalars.items()}

    def _perturb(self, x: Tensor) -> Tensor:
        perturbed: Tensor = x + self.settings.strength * input_std(self.network[0]) * self.perturbation(x)
        return perturbed

    def _classification_loss(self, x: Tensor, y: Tensor, at: Progress) -> Tensor:
        alpha, loss = self.settings.alpha, cross_entropy(self.network(x), y)
        if at.epoch < self.settings.warmup:
            return loss
        with no_grad():
            perturbed = self._perturb(x)  # with the updated perturbation network
        return (1 - alpha) * loss + alpha * cross_entropy(self.network(perturbed), y)

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.network(x)
        return logits.unsqueeze(0)


@contextmanager
def frozen(net: nn.Module) -> Iterator[None]:
    """Compute no gradients for the weights and leave running statistics unchanged; the input still gets gradients."""
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
    with_style_groups(
        Method(
            name="ddaig",
            family="DG",
            paper="Zhou et al., Deep Domain-Adversarial Image Generation for Domain Generalisation, AAAI 2020",
            summary="a network learns to perturb images so that their domain is lost but their class is not",
            learner=Ddaig,
            settings=DdaigSettings,
            needs=("pixels",),
            presets={
                "quick": {"width": 16},  # a third of the time of a step on digits; 32 channels take more than half
                "quick none": {"lr": 0.01},  # at 0.03 the digits CNN forgets what it has learned and starts over
            },
        )
    )
)
