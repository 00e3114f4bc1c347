"""Mistakes in the data, each told in one sentence before any training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .folders import Domain


def check_roles(labeled: str, unlabeled: Sequence[str], target: str | None) -> None:
    """No domain may play two parts."""
    if labeled == target:
        raise UserError(f"'{labeled}' is both the labeled and the target domain; choose two different domains")
    for name in unlabeled:
        if name in (labeled, target):
            role = "labeled" if name == labeled else "target"
            raise UserError(f"'{name}' is both the {role} domain and an unlabeled one; take it out of one of them")
    if twice := [name for name in unlabeled if list(unlabeled).count(name) > 1]:
        raise UserError(f"'{twice[0]}' is given twice as an unlabeled domain; give it once")


def check_web_role(*trusted: Domain) -> None:
    """What a search found can only be unlabeled: its keywords are no truth, and its truth is nobody's to train on."""
    for domain in trusted:
        if domain.web_labels:
            raise UserError(
                f"'{domain.name}' was found by keywords and can only be an unlabeled domain; choose another"
            )


def check_setting(setting: str, unlabeled: Sequence[str], target: str | None) -> None:
    """Domain adaptation has one unlabeled domain: its target."""
    if setting == "uda" and target is None:
        raise UserError("--setting uda adapts to the target and none was given; add --target")
    if setting == "uda" and unlabeled:
        raise UserError(
            f"--setting uda has the target as its only unlabeled domain, and '{unlabeled[0]}' was given as one; "
            "leave --unlabeled out, or use --setting ssdg"
        )


def check_apart(labeled: Path, unlabeled: Sequence[Path], target: Path | None) -> None:
    """Folders must exist, and none may lie in another: an image would be learned from and tested on."""
    given = [("labeled", labeled), *(("unlabeled", path) for path in unlabeled)]
    if target:
        given.append(("target", target))
    for role, path in given:
        if not path.exists():
            raise UserError(f"the {role} folder '{path}' does not exist; check the path")
    for number, (role, path) in enumerate(given):
        for other_role, other in given[number + 1 :]:
            if _inside(path.resolve(), other.resolve()) or _inside(other.resolve(), path.resolve()):
                raise UserError(
                    f"the {role} folder '{path}' and the {other_role} folder '{other}' are the same or one "
                    "lies in the other; keep them apart, or the same images would play two parts"
                )


def _inside(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def check_classes(labeled: Domain) -> None:
    """The labeled domain needs two classes or more, each in a folder (or number) of its own."""
    classes = labeled.classes
    if not classes:
        raise UserError(
            f"'{labeled.name}' has no class sub-folders; sort its images into one folder per class, or "
            "give it as unlabeled"
        )
    if len(classes) < 2:
        raise UserError(f"'{labeled.name}' has the single class '{classes[0]}'; at least two are needed")
    if len(labeled.items) < 2:
        raise UserError(f"'{labeled.name}' has fewer than two images; each class needs at least one")


def check_same_classes(labeled: Domain, target: Domain) -> None:
    """The target must have the labeled domain's classes, where its images have classes at all."""
    have, want = set(target.labels) - {""}, set(labeled.classes)
    if not have or have == want:
        return
    parts = []
    if more := have - want:
        parts.append(f"'{target.name}' has {_names(more)}, which '{labeled.name}' has not")
    if less := want - have:
        parts.append(f"'{labeled.name}' has {_names(less)}, which '{target.name}' has not")
    raise UserError(
        f"the classes of the labeled and the target domain differ: {'; '.join(parts)}; rename or remove "
        "these folders, or put images to be predicted into one flat folder"
    )


def _names(names: set[str]) -> str:
    listed = sorted(names)
    rest = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    return ", ".join(f"'{name}'" for name in listed[:8]) + rest


def check_images(name: str, num_images: int, unreadable: Sequence[tuple[str, str]]) -> None:
    """A domain needs at least one image that can be read."""
    if num_images == 0:
        why = f"; for example '{unreadable[0][0]}': {unreadable[0][1]}" if unreadable else ""
        raise UserError(f"no image of '{name}' can be read{why}")


def check_labeled(name: str, y: NDArray[np.int64], classes: Sequence[str]) -> None:
    """Every class of the labeled domain needs a training image."""
    counts = np.bincount(y, minlength=len(classes))
    empty = {label for label, count in zip(classes, counts, strict=True) if count == 0}
    if empty:
        raise UserError(
            f"'{name}' has no readable training image of {_names(empty)}; add images or remove the class folder"
        )
