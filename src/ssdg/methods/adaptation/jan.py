"""Joint Adaptation Network (Long et al., ICML 2017)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from ...losses.adversarial import ramp
from ...losses.discrepancy import joint_mmd
from ..api import Method, Progress, register
from .dan import Dan, DanSettings, Pair


class JanSettings(DanSettings):
    """Settings of JAN."""

    mmd_weight: float = Field(1.0, ge=0, description="weight of the joint discrepancy after its ramp-up")
    num_kernels: int = Field(
        5, ge=1, le=33, description="Gaussian kernels per layer, each with twice the bandwidth of the previous"
    )


class Jan(Dan):
    """One network trained to have similar joint distributions of features and predictions on all domains.

    It is DAN with another discrepancy, which compares the joint distribution of pooled features and class
    probabilities, and a weight that ramps up. Labels, unlabeled domains and batch norm are handled as in DAN.
    """

    def discrepancy(self, features: Pair, logits: Pair) -> Tensor:
        """Return the joint MMD of (features, probabilities)."""
        logits_l, logits_u = logits
        return joint_mmd([features, (logits_l.softmax(-1), logits_u.softmax(-1))], self.settings.num_kernels)

    def weight(self, at: Progress) -> float:
        """Return the weight of the discrepancy: it ramps up from zero."""
        return self.settings.mmd_weight * ramp(at.fraction)


register(
    Method(
        name="jan",
        family="DA",
        paper="Long et al., Deep Transfer Learning with Joint Adaptation Networks, ICML 2017",
        summary="match the joint distribution of features and predictions of labeled and unlabeled images",
        learner=Jan,
        settings=JanSettings,
        needs=("unlabeled",),
    )
)
