"""`model.json`: all that is needed to use trained networks, and where they come from; one schema writes and reads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..methods import find_method
from .calibration import Calibration
from .rejection import Rejection

Text = Annotated[str, StringConstraints(max_length=10_000)]
ClassName = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Channels = tuple[FiniteFloat, FiniteFloat, FiniteFloat]
Percents = dict[Text, Annotated[FiniteFloat, Field(ge=0, le=100)]]  # of network_1, network_2, ..., mean


class Part(BaseModel):
    """Of the card: fields of a later version are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Preprocessing(Part):
    """From an image file to the networks' input. Steps that are done otherwise than here are refused."""

    size: int = Field(ge=8, le=1024)  # pixels a side
    colour: Literal["rgb"] = "rgb"  # orientation applied, transparency on white, 16 bits scaled to 8
    resize: Literal["squash-bilinear-antialias"] = "squash-bilinear-antialias"  # Pillow's, to size × size
    range: Literal["0..1"] = "0..1"  # uint8 / 255, (N, 3, size, size)
    mean: Channels | None = None  # (x - mean) / std is the networks' own first step and not to be done twice
    std: Channels | None = None


class Domain(Part):
    """A domain that had a part in a run."""

    name: Text
    images: int = Field(ge=0)


class Training(Part):
    """How the networks came to be, in short; `result.json` of the run has all of it."""

    method: Text
    preset: Text
    seed: int = Field(ge=0)
    setting: Text
    hash: Text  # of the configuration
    weights: Text  # that the networks began with: none, imagenet, or the name of a file
    labeled: Domain
    unlabeled: tuple[Domain, ...]
    target: Domain | None
    held_out: int = Field(ge=0)  # images of the labeled domain that nothing was trained on
    accuracy: dict[Literal["validation", "target"], Percents]  # of the last epoch


class ModelCard(Part):
    """`model.json`. Models of earlier versions lack what has a default here."""

    format: int = Field(ge=1, le=1)
    method: Text | None = None
    learner: Text  # the method whose networks these are
    backbone: Text
    num_domains: int = Field(1, ge=1, le=10_000)
    size: int = Field(ge=8, le=1024)
    classes: tuple[ClassName, ...] = Field(min_length=2, max_length=100_000)
    settings: Any
    preprocessing: Preprocessing | None = None
    reject: Rejection | None = None
    calibration: Calibration | None = None
    training: Training | None = None
    licence: tuple[Text, ...] = Field((), max_length=100)
    fingerprint: Text | None = None
    versions: dict[Text, Text] = {}

    @field_validator("classes")
    @classmethod
    def _once_each(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if len({*given}) < len(given):
            raise ValueError("a class stands there twice")
        return given

    @field_validator("settings")
    @classmethod
    def _fit_method(cls, given: Any, info: ValidationInfo) -> Any:
        return find_method(info.data["learner"]).settings.model_validate(given) if "learner" in info.data else given

    @model_validator(mode="after")
    def _one_size(self) -> ModelCard:
        if self.preprocessing is not None and self.preprocessing.size != self.size:
            raise ValueError("size and preprocessing.size differ")
        return self

    @property
    def temperature(self) -> float | None:
        """That of calibrated probabilities; None where none is known."""
        return self.calibration.temperature if self.calibration else None
