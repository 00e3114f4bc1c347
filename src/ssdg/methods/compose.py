"""A+B: a domain adaptation method labels every unlabeled domain, a domain generalization method learns all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field, create_model

from ..data.sets import Task, concat_labeled
from .api import Build, Learner, Method, Settings, Trainer, find_method
from .eid.labeling import Labeling


def compose(first: Method, second: Method) -> Method:
    """The method `first+second`: settings are those of `second`, those of `first` stand in the group `labeler`.

    Each unlabeled domain gets a labeler of its own, trained as in the first cycle of `eid`. Then `second` sees the
    labeled and all pseudo-labeled images as a labeled set of several domains; nothing is left unlabeled.
    """

    def algorithm(task: Task, trainer: Trainer, build: Build, settings: Any) -> Learner:
        labeling = Labeling(first, settings.labeler)
        pseudo = labeling.pseudo_label(task, trainer, labeling.build(task, build), task.labeled)
        joined = replace(task, labeled=concat_labeled([task.labeled, pseudo]), unlabeled={})
        own = second.settings.model_validate(settings.model_dump(exclude={"labeler"}))
        return second.fit(joined, trainer, build, own)

    return Method(
        name=f"{first.name}+{second.name}",
        family="DA+DG",
        paper=f"{first.paper}; {second.paper}",
        summary=f"{first.name} labels each unlabeled domain, {second.name} learns labeled and pseudo-labeled images",
        learner=second.learner,
        settings=settings_of(first, second),
        needs=("unlabeled",),
        presets=presets_of(first, second),
        algorithm=algorithm,
    )


def settings_of(first: Method, second: Method) -> type[Settings]:
    """The settings of `second` with a group `labeler` of those of `first`."""
    labeler = Field(default_factory=first.settings, description=f"settings of {first.name}")
    name = f"{first.settings.__name__}And{second.settings.__name__}"
    return create_model(name, __base__=second.settings, labeler=(first.settings, labeler))


def presets_of(first: Method, second: Method) -> Mapping[str, Mapping[str, Any]]:
    """What either changes in a preset."""
    names = first.presets.keys() | second.presets.keys()
    return {
        name: {**second.presets.get(name, {}), "labeler": dict(first.presets.get(name, {}))} for name in sorted(names)
    }


def pair(name: str) -> Method:
    """`A+B` by its name, or an error that says which part is not known."""
    first, _, second = name.partition("+")
    return compose(find_method(first, family="DA"), find_method(second, family="DG"))
