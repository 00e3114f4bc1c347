"""Settings of the cycle; the defaults are the paper's text."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from ...data.sets import Mix
from ...losses.selection import Choice
from ..api import Settings, find_method


class DcgSettings(Settings):
    """What decides a training of the dual networks, but for its data."""

    epochs: int = Field(15, ge=1, description="DCG epochs per cycle")
    iterations: int | None = Field(None, ge=1, description="N_max; empty: the larger of the sets is seen once")
    dual: bool = Field(True, description="exchange small-loss choices; off: both learn all pseudo-labels")
    style: bool = Field(True, description="style confusion")
    diversity: bool = Field(True, description="label diversity regularization")
    delta: float = Field(0.5, ge=0, lt=1, description="the clean rate of DCG falls from 1 to 1 − delta")
    ramp: float = Field(0.6, gt=0, description="T_k as a share of the epochs")
    style_alpha: float = Field(0.5, gt=0, description="lambda ~ Beta(style_alpha, style_alpha)")
    style_probability: float = Field(1.0, ge=0, le=1, description="chance that a pass is confused")
    # The paper's eps is "negligible". A map with one active pixel is scaled by 1/(sigma + eps): 1e-3 is the floor
    # that the release's sqrt(var + 1e-6) has, and keeps networks without batch norm finite.
    style_eps: float = Field(1e-3, gt=0, description="added to sigma before dividing")
    style_detach: bool = Field(False, description="take style statistics as constants of the gradient")


class EidSettings(DcgSettings):
    """`epochs`, `batch`, `lr` and what follows are DCG's; `labeler` holds the settings of the method in `apl`."""

    cycles: int = Field(3, ge=1, description="C: cycles of APL, DCG and EID")
    reinit: bool = Field(False, description="start every cycle from fresh networks instead of carrying on")
    # APL
    apl: str = Field("mcd", description="the DA method that labels each unlabeled domain")
    apl_backbone: str | None = Field(None, description="may be deeper than DCG's; empty: the run's backbone")
    apl_weights: str | None = Field(None, description="initial weights of apl_backbone; empty: the run's")
    labeler: Any = Field(default_factory=dict, validate_default=True, description="settings of the method in apl")
    # What DCG learns from
    union: bool = Field(False, description="one shuffled stream of labeled and pseudo-labeled images")
    # EID
    clean_rate: float = Field(0.4, gt=0, le=1, description="R: share of the agreed images kept as clean")
    clean_choice: Choice = Field("whole", description="of all agreed images, per class, or as many of every class")
    first_only: bool = Field(False, description="rank by the loss of network 1 instead of the sum of both")
    mix: Mix = Field("mixup", description="how the intermediate domain is made")
    mix_alpha: float = Field(1.0, gt=0, description="alpha ~ Beta(mix_alpha, mix_alpha)")
    any_pair: bool = Field(False, description="mix any two of the union, one coefficient per batch")

    @property
    def dcg(self) -> DcgSettings:
        """Those of DCG alone: cycles that differ in nothing else are one and the same."""
        return DcgSettings.model_validate({name: getattr(self, name) for name in DcgSettings.model_fields})

    @field_validator("apl")
    @classmethod
    def _is_adaptation(cls, name: str) -> str:
        return find_method(name, family="DA").name

    @field_validator("labeler", mode="before")
    @classmethod
    def _fits_apl(cls, given: Any, info: ValidationInfo) -> Any:
        if "apl" not in info.data or not isinstance(given, dict):
            return given
        return find_method(info.data["apl"]).settings.model_validate(given)


# Two cycles of four epochs are 8 where the paper has 45; labelers have presets of their own.
FAST: dict[str, Any] = {"cycles": 2, "epochs": 4, "clean_choice": "balanced"}
# Two cores. Digits start from random weights: the labeled domain gives the first ones.
QUICK: dict[str, Any] = {"epochs": 2, "labeler": {"epochs": 2}}
QUICK_DIGITS: dict[str, Any] = {
    "warm_epochs": 10,
    "warm_lr": 0.03,
    "lr": 0.01,
    "epochs": 4,
    "iterations": 27,
    "labeler": {"epochs": 3},
}
RELEASE: dict[str, Any] = {
    # The choices of the authors' release where it differs from the paper; its label leak is not among them.
    "union": True,
    "any_pair": True,
    "clean_choice": "per-class",
    "first_only": True,
    "style_alpha": 0.1,
    "style_probability": 0.5,
    "style_detach": True,
}
