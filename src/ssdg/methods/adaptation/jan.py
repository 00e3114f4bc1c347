"""Joint Adaptation Network (Long et al., ICML 2017)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from ...losses.adversarial import ramp
from ...losses.discrepancy import joint_mmd
from ..api import Method, Progress, register
from .dan import Dan, DanSettings, Pair


class JanSettings(DanSettings):
    """JAN's own settings."""

    mmd_weight: float = Field(1.0, ge=0, description="weight of the joint discrepancy at the end of training")
    num_kernels: int = Field(5, ge=1, le=33, description="Gaussian kernels per layer, bandwidths doubling")


class Jan(Dan):
    """One network whose features and predictions together have alike distributions on all domains.

    It is DAN with another discrepancy, which compares the joint distribution of pooled features and class
    probabilities, and a weight that ramps up. Labels, several unlabeled domains and batch norm are as there.
    """

    def discrepancy(self, features: Pair, logits: Pair) -> Tensor:
        """Joint MMD of (features, probabilities)."""
        logits_l, logits_u = logits
        return joint_mmd([features, (logits_l.softmax(-1), logits_u.softmax(-1))], self.settings.num_kernels)

    def weight(self, at: Progress) -> float:
        """Of the discrepancy; it rises from zero."""
        return self.settings.mmd_weight * ramp(at.fraction)


register(
    Method(
        name="jan",
        family="DA",
        paper="Long et al., Deep Transfer Learning with Joint Adaptation Networks, ICML 2017",
        summary="the joint distribution of features and predictions gets alike on labeled and unlabeled images",
        learner=Jan,
        settings=JanSettings,
        needs=("unlabeled",),
    )
)
