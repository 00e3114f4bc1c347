"""`README.md` of a model's folder: a short card for people, written from what the run knows."""

from __future__ import annotations

import re

from .calibration import FEWEST
from .card import Domain, ModelCard, Training

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
