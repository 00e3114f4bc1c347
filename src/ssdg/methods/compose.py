"""A+B: a domain adaptation method labels every unlabeled domain, a domain generalization method learns from all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field, create_model

from ..data.sets import Task, concat_labeled, renumber_domains
from .api import Build, Learner, Method, Settings, Trainer, find_labeler, find_method
from .eid.labeling import Labeling


def compose(first: Method, second: Method) -> Method:
    """Return the method `first+second` with the settings of `second` and those of `first` in the group `labeler`.

    Each unlabeled domain gets its own labeler, trained as in the first cycle of `eid`. Then `second` receives the
    labeled and all pseudo-labeled images as one labeled set of several domains; nothing stays unlabeled.
    """

    def algorithm(task: Task, trainer: Trainer, build: Build, settings: Any) -> Learner:
        labeling = Labeling(first, settings.labeler)
        pseudo, _ = labeling.pseudo_label(task, trainer, labeling.build(task, build), task.labeled)
        joined = replace(task, labeled=renumber_domains(concat_labeled([task.labeled, pseudo])), unlabeled={})
        second_settings = second.settings.model_validate(settings.model_dump(exclude={"labeler"}))
        return second.fit(joined, trainer, build, second_settings)

    return Method(
        name=f"{first.name}+{second.name}",
        family="DA+DG",
        paper=f"{first.paper}; {second.paper}",
        summary=f"{first.name} labels each unlabeled domain, {second.name} trains on labels and pseudo-labels",
        learner=second.learner,
        settings=settings_of(first, second),
        needs=tuple(dict.fromkeys(("unlabeled", *second.needs))),
        presets=presets_of(first, second),
        algorithm=algorithm,
    )


def settings_of(first: Method, second: Method) -> type[Settings]:
    """Return the settings of `second` with a group `labeler` of those of `first`."""
    base: Any = second.settings

    class Pair(base):  # type: ignore[misc]
        @classmethod
        def nested_methods(cls, values: Mapping[str, Any]) -> dict[str, Method]:
            return {"labeler": first}

    labeler = Field(default_factory=first.settings, description=f"settings of {first.name}")
    name = f"{first.settings.__name__}And{second.settings.__name__}"
    return create_model(name, __base__=Pair, labeler=(first.settings, labeler))


def presets_of(first: Method, second: Method) -> Mapping[str, Mapping[str, Any]]:
    """Return what either method changes in a preset."""
    names = first.presets.keys() | second.presets.keys()
    return {
        name: {**second.presets.get(name, {}), "labeler": dict(first.presets.get(name, {}))} for name in sorted(names)
    }


def pair(name: str) -> Method:
    """Return the method `A+B` of this name, or raise an error that names the unknown part."""
    first, _, second = name.partition("+")
    return compose(find_labeler(first), find_method(second, family="DG"))
