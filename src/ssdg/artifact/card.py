"""The card of a model: the schema of `model.json`, the license notes in it, and the README rendered from it."""

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

from ..config import RunConfig
from ..data.catalog import identify_dataset
from ..data.hidden import Problem
from ..data.sources.decode import ResizeMode
from ..errors import printable
from ..files import file_name
from ..inference.rejection import Rejection
from ..methods import find_method
from ..models.backbones import weights_package
from .calibration import MIN_IMAGES, Calibration
from .package_license import describe_license

README = "README.md"
MAX_LISTED_CLASSES = 50  # in the README; model.json has all
CODE_NOTE = "The code of ssdg is licensed under Apache-2.0; that license does not cover these weights."
IMAGENET_NOTE = "the ImageNet images were released for non-commercial research and education"

Text = Annotated[str, StringConstraints(max_length=10_000)]
ClassName = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Channels = tuple[FiniteFloat, FiniteFloat, FiniteFloat]
Percents = dict[Text, Annotated[FiniteFloat, Field(ge=0, le=100)]]  # of network_1, network_2, ..., mean

_SPECIAL = re.compile(r"[\\`*_{}\[\]<>|&~#$!:@]|(?<=www)\.", re.IGNORECASE)  # a bare address would become a link
_LINE_START = re.compile(r"^\d+(?=[.)]( |$))|^(?=[-+=])")  # starts a list or a heading


class CardSection(BaseModel):
    """Base of the card's sections; ignores fields of later versions."""

    model_config = ConfigDict(extra="ignore", frozen=True)


CardResize = Literal["squash-bilinear-antialias", "crop-bilinear-antialias", "pad-bilinear-antialias"]
RESIZE_NAMES: dict[ResizeMode, CardResize] = {
    "squash": "squash-bilinear-antialias",
    "crop": "crop-bilinear-antialias",
    "pad": "pad-bilinear-antialias",
}
RESIZE_SENTENCES: dict[ResizeMode, str] = {
    "squash": "without keeping the aspect ratio",
    "crop": "from the central square",
    "pad": "with the aspect ratio kept and the rest in the mean color of the image",
}


class Preprocessing(CardSection):
    """Steps from an image file to the networks' input; other values than these are rejected."""

    size: int = Field(ge=8, le=1024)  # pixels per side
    colour: Literal["rgb"] = "rgb"  # orientation applied, transparency on white, 16 bits scaled to 8
    resize: CardResize = "squash-bilinear-antialias"  # Pillow's, to size × size; see docs/export.md
    range: Literal["0..1"] = "0..1"  # uint8 / 255, (N, 3, size, size)
    mean: Channels | None = None  # the networks compute (x - mean) / std themselves; do not apply it twice
    std: Channels | None = None


class Domain(CardSection):
    """Name and size of a domain of the run."""

    name: Text
    images: int = Field(ge=0)


class Training(CardSection):
    """Short record of the training run; its `result.json` has the full one."""

    method: Text
    preset: Text
    seed: int = Field(ge=0)
    setting: Text
    hash: Text  # of the configuration
    weights: Text  # initial weights: none, imagenet, or the name of a file
    labeled: Domain
    unlabeled: tuple[Domain, ...]
    target: Domain | None
    held_out: int = Field(ge=0)  # images of the labeled domain that are not trained on
    accuracy: dict[Literal["validation", "target"], Percents]  # of the last epoch


class ModelCard(CardSection):
    """Content of `model.json`; fields with a default may be missing in models of earlier versions."""

    format: int = Field(ge=1, le=1)
    method: Text | None = None
    learner: Text  # the method that builds these networks
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
    def _check_unique(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        if len({*classes}) < len(classes):
            raise ValueError("class names must be unique")
        return classes

    @field_validator("settings")
    @classmethod
    def _check_settings(cls, settings: Any, info: ValidationInfo) -> Any:
        if "learner" not in info.data:
            return settings
        return find_method(info.data["learner"]).settings.model_validate(settings)

    @model_validator(mode="after")
    def _check_size(self) -> ModelCard:
        if self.preprocessing is not None and self.preprocessing.size != self.size:
            raise ValueError("size and preprocessing.size differ")
        return self

    @property
    def resize(self) -> ResizeMode:
        """How images are brought to `size`; models of earlier versions have no such field and squash them."""
        name = self.preprocessing.resize if self.preprocessing is not None else RESIZE_NAMES["squash"]
        return next(mode for mode, value in RESIZE_NAMES.items() if value == name)

    @property
    def temperature(self) -> float | None:
        """Calibration temperature; None if there is none."""
        return self.calibration.temperature if self.calibration else None


def license_notes(config: RunConfig, problem: Problem, backbone: str) -> tuple[str, ...]:
    """Return notes on the code, on the training images, and on the weights that training started from."""
    notes = [CODE_NOTE, images_note(problem), weights_note(backbone, config.weights)]
    values = {name: getattr(config.settings, name) for name in config.settings.path_fields}
    others = config.settings.extra_backbones() or {
        name: (config.backbone, weights) for name, weights in values.items() if weights
    }
    for name, (other, weights) in others.items():
        notes.append(f"Other networks used in training ({name}): {weights_note(other, weights or config.weights)}")
    return tuple(notes)


def images_note(problem: Problem) -> str:
    """Return what is known about the license of the training images, which may extend to the weights."""
    text = (
        "The weights were trained on images of the domains listed under training; the license terms of these images "
        "may extend to the weights."
    )
    target = (problem.target.name,) if problem.target else ()
    dataset = identify_dataset((*problem.domains, *target))
    if dataset is None or {*dataset.classes} != {*problem.task.classes}:
        return f"{text} These terms are unknown to ssdg."
    return f"{text} The domain names match {dataset.name}, whose terms are: {dataset.licence}."


def weights_note(backbone: str, weights: str) -> str:
    """Return what is known about the license of the initial weights."""
    if weights == "none":
        return "The networks started from random weights, so no license terms of another model apply."
    if weights != "imagenet":
        return f"The networks started from the weights in '{file_name(weights)}', whose license is unknown to ssdg."
    if package := weights_package(backbone):
        source = f"the package {package}, {describe_license(package)}"
    elif backbone.startswith("resnet"):
        source = "torchvision, which is licensed under BSD-3-Clause"
    else:
        return f"The networks started from the weights published as '{backbone}'; see there for their license."
    return f"The networks started from the ImageNet weights of {source}; {IMAGENET_NOTE}."


def readme(card: ModelCard) -> str:
    """Return the README of the model folder, in Markdown."""
    sections = [
        f"# {escape_markdown(card.learner)} on {escape_markdown(card.backbone)}",
        describe_model(card),
        "## Use",
        describe_use(card),
        "## Classes",
        list_classes(card),
        "## Training",
        *([describe_training(card.training)] if card.training else []),
        "## Metrics",
        describe_metrics(card),
        "## Limitations",
        describe_limitations(card),
        "## License",
        "\n".join(f"- {escape_markdown(note)}" for note in card.licence),
    ]
    return "\n\n".join(sections) + "\n"


def describe_model(card: ModelCard) -> str:
    """Return the opening sentence."""
    version = card.versions.get("ssdg", "")
    return (
        f"An image classifier with {len(card.classes):,} classes for images of {card.size} × {card.size} px, trained "
        f"by ssdg {escape_markdown(version)} to generalize to unseen domains."
    )


def describe_use(card: ModelCard) -> str:
    """Return shell and Python examples, and the preprocessing."""
    reject = " --reject" if card.reject else ""
    return (
        "```sh\n"
        "pip install 'ssdg[train]'\n"
        f"ssdg predict . images/ -o predictions.csv{reject}\n"
        "ssdg export . --format onnx    # pip install 'ssdg[export]'\n"
        "```\n\n"
        "```python\n"
        "from ssdg import SSDG\n\n"
        'model = SSDG.load(".")\n'
        'model.predict_proba("images/")\n'
        "```\n\n"
        "Preprocessing applies the orientation stored in the file, resizes to "
        f"{card.size} × {card.size} RGB pixels {RESIZE_SENTENCES[card.resize]}, and divides by 255. The networks "
        "normalize their input themselves. See `model.json` for all details."
    )


def list_classes(card: ModelCard) -> str:
    """Return the names of the first `MAX_LISTED_CLASSES` classes."""
    names = ", ".join(escape_markdown(name) for name in card.classes[:MAX_LISTED_CLASSES])
    num_more = len(card.classes) - MAX_LISTED_CLASSES
    return f"{names} and {num_more:,} more: see `model.json`." if num_more > 0 else f"{names}."


def describe_training(training: Training) -> str:
    """Return a table of the method, the data, and what is needed to repeat the run."""
    unlabeled = ", ".join(map(describe_domain, training.unlabeled)) or "none"
    rows = {
        "method": f"{escape_markdown(training.method)}, preset {escape_markdown(training.preset)}, "
        f"seed {training.seed}",
        "labeled": f"{describe_domain(training.labeled)}; {training.held_out:,} more held out",
        "unlabeled": unlabeled,
        "target": describe_domain(training.target) if training.target else "none",
        "initial weights": escape_markdown(training.weights),
        "configuration": escape_markdown(training.hash),
    }
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def describe_domain(domain: Domain) -> str:
    """Return a domain's name and size."""
    return f"{escape_markdown(domain.name)} ({domain.images:,} images)"


def describe_metrics(card: ModelCard) -> str:
    """Return accuracy, calibration, and the basis of the rejection thresholds."""
    lines = []
    accuracy = card.training.accuracy if card.training else {}
    images = {
        "target": "all images of the target domain, whose labels were not used in training",
        "validation": "held-out images of the labeled domain, which are easier than those of an unseen domain",
    }
    for name, description in images.items():
        if name in accuracy:
            values = ", ".join(
                f"{escape_markdown(network.replace('_', ' '))} {value:.2f}"
                for network, value in accuracy[name].items()
            )
            lines.append(f"- Accuracy (%) after the last epoch on {description}: {values}.")
    if card.calibration:
        lines.append(describe_calibration(card.calibration))
    if card.reject:
        lines.append(
            f"- The thresholds for rejecting images as 'unknown' come from {card.reject.images:,} held-out labeled "
            "images."
        )
    return "\n".join(lines) or "None: there were no held-out images and no labeled target."


def describe_calibration(calibration: Calibration) -> str:
    """Return the temperature and its effect, or why there is none."""
    if calibration.temperature is None:
        too_few = f"{calibration.images} held-out images are too few"
        all_correct = f"all {calibration.images:,} held-out images are classified correctly, which leaves no errors"
        reason = too_few if calibration.images < MIN_IMAGES else all_correct
        return f"- Confidence is not calibrated: {reason} to choose a temperature from."
    return (
        f"- Confidence is softmax(log p / T) of the averaged probabilities p with T = {calibration.temperature:g}, "
        f"chosen on {calibration.images:,} held-out labeled images. On the same images it changes the negative log "
        f"likelihood from {calibration.nll.before:.3f} to {calibration.nll.after:.3f} and the expected calibration "
        f"error from {100 * calibration.ece.before:.1f} to {100 * calibration.ece.after:.1f} %."
    )


def describe_limitations(card: ModelCard) -> str:
    """Return what the model cannot do and what was not measured."""
    unknown = (
        "`--reject` lets it answer 'unknown', which helps but is not a safeguard"
        if card.reject
        else "it cannot answer 'unknown'"
    )
    return (
        f"- Every image is assigned one of the classes, even if it shows none of them; {unknown}.\n"
        "- On domains that differ more from the domains above than these differ from each other, accuracy may be "
        "lower than reported and confidence too high: no image of such a domain was used.\n"
        "- Fairness, safety and misuse were not evaluated. Measure the model on your own images before you rely on "
        "it: `ssdg evaluate . --data DIR`."
    )


def escape_markdown(text: str) -> str:
    """Return Markdown that renders `text` literally, on one line.

    >>> escape_markdown("1. a|b <i>\\n# c_d")
    '1\\\\. a\\\\|b \\\\<i\\\\> \\\\# c\\\\_d'
    """
    return _LINE_START.sub(r"\g<0>\\", _SPECIAL.sub(r"\\\g<0>", printable(text)))
