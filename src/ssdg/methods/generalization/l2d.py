"""Learning to Diversify (Wang et al., ICCV 2021)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.discrepancy import class_mmd
from ...losses.information import gaussian_nll, mutual_information_upper_bound, supervised_contrastive_loss
from ...models.heads import linear_head
from ...models.styles import StyleComplement
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd

HIDDEN = 512  # units of the network that predicts q


class L2dSettings(Settings):
    """Settings of L2D; weights, temperature and strength are those of the authors' release."""

    contrast_weight: float = Field(
        1.0, ge=0, description="weight of the contrastive loss in the loss of the task network"
    )
    temperature: float = Field(0.07, gt=0, description="temperature of the contrastive loss")
    bound_weight: float = Field(
        0.1, ge=0, description="weight of the mutual information bound in the loss of the style module"
    )
    strength: float = Field(
        0.6, gt=0, le=1, description="fraction of the new style in a stylized image; the rest is the original"
    )
    style_lr: float = Field(1.0, gt=0, description="learning rate of the style module, trained by plain SGD")


class L2d:
    """A network that learns stylized images, and a module that searches for styles the network knows least.

    Images and their stylized versions are forwarded in one batch, so batch norm normalizes them together. Domains and
    whether labels are trusted are ignored. Labels are class indices: contrast and consistency compare classes.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: L2dSettings) -> None:
        self.features = make_backbone()
        width = self.features.num_features
        self.head = linear_head(width, sizes.num_classes)
        self.guess = linear_head(width, 2 * width, hidden=(HIDDEN,))  # predicts q(z'|z)
        self.style = StyleComplement(settings.strength)
        parts = {"features": self.features, "head": self.head, "guess": self.guess, "style": self.style}
        self.nets = nn.ModuleDict(parts)
        self.opts: dict[str, Optimizer] = {
            "task": sgd([self.features, self.head], settings),
            "guess": sgd([self.guess], settings),
            "style": SGD(self.style.parameters(), lr=settings.style_lr),
        }
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Update the task network on randomly stylized images, then the style module against the updated network."""
        x, y = batch.labeled.x, batch.labeled.y
        with torch.no_grad():
            stylized = self.style(x, self.style.draw_filters())
        latents, y_both = self.features(torch.cat([x, stylized])), torch.cat([y, y])
        loss = cross_entropy(self.head(latents), y_both)
        contrast = supervised_contrastive_loss(latents, y_both, self.settings.temperature)
        z, z_new = latents.detach().chunk(2)
        nll = gaussian_nll(*self._conditional(z), z_new)
        descend(loss + self.settings.contrast_weight * contrast + nll, self.opts["task"], self.opts["guess"])

        z, z_new = self.features(torch.cat([x, self.style(x, self.style.fixed_filters())])).chunk(2)
        bound = mutual_information_upper_bound(*self._conditional(z), z_new)
        discrepancy = class_mmd(z, z_new, y)
        self._step_style(discrepancy + self.settings.bound_weight * bound)
        scalars = {"loss": loss, "contrast": contrast, "likelihood": nll, "bound": bound, "apart": discrepancy}
        return {name: value.detach() for name, value in scalars.items()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)

    def _conditional(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance, in [−1, 1], of q(z'|z); the mean is z plus the predicted change."""
        change, log_var = self.guess(z).chunk(2, dim=1)
        return z + change, log_var.tanh()

    def _step_style(self, loss: Tensor) -> None:
        """Update the style module; unlike `descend`, compute no gradients for the weights of other networks."""
        parameters = list(self.style.parameters())
        for parameter, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = grad
        self.opts["style"].step()


register(
    Method(
        name="l2d",
        family="DG",
        paper="Wang et al., Learning to Diversify for Single Domain Generalization, ICCV 2021",
        summary="a module learns to generate images of styles that the network does not know yet",
        learner=L2d,
        settings=L2dSettings,
        needs=("pixels",),
    )
)
