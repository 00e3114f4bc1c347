"""MixStyle (Zhou et al., ICLR 2021)."""

from __future__ import annotations

from pydantic import Field

from ...models.layers import StyleConfusor, attach_style
from ..api import MakeBackbone, Method, Settings, Sizes, register
from ..source_only import SourceOnly


class MixStyleSettings(Settings):
    """Settings of MixStyle; the defaults are its paper's."""

    alpha: float = Field(0.1, gt=0, description="parameter of the Beta distribution of the mixing coefficients")
    probability: float = Field(0.5, ge=0, le=1, description="probability that a batch is mixed, for each stage")
    # The floor of σ in the authors' sqrt(var + 1e-6). A map with one active pixel is scaled by 1/(σ + eps): with a
    # smaller value, networks without batch norm diverge.
    eps: float = Field(1e-3, gt=0, description="added to the standard deviation before division")
    stages: int = Field(
        3, ge=1, le=3, description="number of stages of the backbone, from the first, whose output is mixed"
    )


class MixStyle(SourceOnly):
    """One network whose early maps get statistics between their own and those of another image.

    `StyleConfusor` with detached statistics is MixStyle with random partners. Partners come from the whole batch, so
    with several domains they are mostly of another one. Images of all domains are forwarded in one batch, and batch
    norm normalizes them together. Labels may be soft: they are not mixed. The layers mix in training mode only, so
    everything else is `SourceOnly`.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: MixStyleSettings) -> None:
        super().__init__(make_backbone, sizes, settings)
        attach_style(
            self.network[0],
            lambda: StyleConfusor(settings.alpha, settings.probability, settings.eps, detach=True),
            num_stages=settings.stages,
        )


register(
    Method(
        name="mixstyle",
        family="DG",
        paper="Zhou et al., Domain Generalization with MixStyle, ICLR 2021",
        summary="mix the statistics of early feature maps between images of a batch",
        learner=MixStyle,
        settings=MixStyleSettings,
        # digits-cnn has no batch norm and diverges at 0.03; character-cnn has.
        presets={"quick none": {"lr": 0.01}, "best none": {"lr": 0.1}},
    )
)
