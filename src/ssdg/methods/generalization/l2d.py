"""Learning to Diversify (Wang et al., ICCV 2021)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.discrepancy import class_mmd
from ...losses.information import gaussian_nll, mutual_information_above, supervised_contrast
from ...models.heads import linear_head
from ...models.styles import StyleComplement
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd

HIDDEN = 512  # units of the network behind q


class L2dSettings(Settings):
    """L2D's own settings; weights, temperature and strength are those of the authors' release."""

    contrast_weight: float = Field(1.0, ge=0, description="of the contrast between classes in the task's loss")
    temperature: float = Field(0.07, gt=0, description="of the contrast")
    bound_weight: float = Field(0.1, ge=0, description="of the bound on mutual information in the styles' loss")
    strength: float = Field(0.6, gt=0, le=1, description="share of the new style in an image; the rest is the image")
    style_lr: float = Field(1.0, gt=0, description="learning rate of the styles, by plain SGD")


class L2d:
    """A module makes images of new styles; a network learns them; the module looks for styles it knows least.

    Images and their new versions pass in one batch, so batch norm normalises them together; domains and the trust
    in labels are not looked at. Labels are class indices: contrast and consistency compare classes.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: L2dSettings) -> None:
        self.features = make_backbone()
        width = self.features.num_features
        self.head = linear_head(width, sizes.num_classes)
        self.guess = linear_head(width, 2 * width, hidden=(HIDDEN,))  # of q(z'|z)
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
        """The task's step on images of drawn styles, then the styles' step against the new network."""
        x, y = batch.labeled.x, batch.labeled.y
        with torch.no_grad():
            drawn = self.style(x, self.style.draw())
        latents, y_both = self.features(torch.cat([x, drawn])), torch.cat([y, y])
        loss = cross_entropy(self.head(latents), y_both)
        contrast = supervised_contrast(latents, y_both, self.settings.temperature)
        z, z_new = latents.detach().chunk(2)
        likely = gaussian_nll(*self._conditional(z), z_new)
        descend(loss + self.settings.contrast_weight * contrast + likely, self.opts["task"], self.opts["guess"])

        z, z_new = self.features(torch.cat([x, self.style(x, self.style.own())])).chunk(2)
        bound = mutual_information_above(*self._conditional(z), z_new)
        apart = class_mmd(z, z_new, y)
        self._restyle(apart + self.settings.bound_weight * bound)
        scalars = {"loss": loss, "contrast": contrast, "likelihood": likely, "bound": bound, "apart": apart}
        return {name: value.detach() for name, value in scalars.items()}

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)

    def _conditional(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance, in [−1, 1], of q(z'|z); the mean is z and what the network adds."""
        change, log_var = self.guess(z).chunk(2, dim=1)
        return z + change, log_var.tanh()

    def _restyle(self, loss: Tensor) -> None:
        """One step of the styles; unlike `descend`, no gradient is computed for the networks between."""
        parameters = list(self.style.parameters())
        for parameter, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = grad
        self.opts["style"].step()


register(
    Method(
        name="l2d",
        family="DG",
        paper="Wang et al., Learning to Diversify for Single Domain Generalization, ICCV 2021",
        summary="a module learns to make images of styles that the network does not know yet",
        learner=L2d,
        settings=L2dSettings,
    )
)
