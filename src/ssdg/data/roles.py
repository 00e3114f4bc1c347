"""The role of each domain (labeled, unlabeled, crawl, target), and the checks on data before training starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .catalog import dataset_of, find_domain
from .sets import Setting
from .sources.benchmark import OOD, Benchmark, Domain, is_ood, read_class_folder
from .sources.manifest import NAME, read_manifest


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


def read_crawl(folder: Path, name: str) -> Domain:
    """The images by keyword: all that lie in class folders or, where there is a manifest, those that it keeps."""
    return only_kept(as_crawl(read_class_folder(folder, name)), folder)


def read_pile(folder: Path, name: str) -> Domain:
    """The images of a folder whose keywords are not asked for; of a crawl those that its manifest keeps."""
    return only_kept(read_class_folder(folder, name), folder)


def only_kept(domain: Domain, folder: Path) -> Domain:
    """Where a domain's folder has a manifest: the images that it keeps, with the web-labels that it says."""
    if not (folder / NAME).is_file():
        return domain
    kept = {row.path: row.label for row in read_manifest(folder).kept}
    paths = [item.file.removeprefix(f"{folder}/") for item in domain.items]
    rows = [number for number, path in enumerate(paths) if path in kept]
    return replace(
        domain,
        items=tuple(domain.items[number] for number in rows),
        labels=tuple(domain.labels[number] for number in rows),
        web_labels=tuple(kept[paths[number]] for number in rows) if domain.web_labels else (),
    )


def folder_of(domain: Domain, root: Path) -> Path:
    """The folder of a benchmark's domain, or of its archive; the root may have folders around the domains."""
    above = Path(domain.items[0].file).parents if domain.items else ()
    return next((folder for folder in above if folder.name == domain.name), root)


def as_crawl(domain: Domain) -> Domain:
    """The class folders as keywords: what they say of an image is no truth, but that it lies in a folder `ood`."""
    if domain.web_labels:
        return domain
    keywords = tuple("" if is_ood(label) else label for label in domain.labels)
    truth = tuple(OOD if any(map(is_ood, item.parts[:-1])) else "" for item in domain.items)
    return replace(domain, labels=truth, web_labels=keywords)


@dataclass(frozen=True)
class Roles:
    """Which domain plays which part."""

    sources: tuple[str, ...]  # the labeled domain first
    target: str | None
    crawls: tuple[str, ...] = ()  # domains of the root or folders


def find_roles(
    benchmark: Benchmark,
    *,
    labeled: str,
    target: str | None,
    unlabeled: Sequence[str] | None,
    web: Sequence[str] | None,
    setting: Setting,
) -> Roles:
    """The domains that are meant, by names, short names or folders; refused if they are not there or overlap."""
    names, dataset = benchmark.names, dataset_of(benchmark.names)
    first = find_domain(labeled, names, dataset)
    last = find_domain(target, names, dataset) if target else None
    check_web_role(*(benchmark[name] for name in (first, last) if name))
    check_setting(setting, [*(unlabeled or ()), *(web or ())], last)
    if last and setting == "uda":
        check_roles(first, (), last)
        return Roles((first, last), last)
    found = [find_domain(dataset.web, names, dataset)] if dataset and dataset.web else []
    own = [name if is_folder(name, names) else find_domain(name, names, dataset) for name in web or ()]
    rest = [find_domain(name, names, dataset) for name in unlabeled or ()]
    if unlabeled is None and web is None:
        rest = [name for name in found or names if name not in (first, last)]
    crawls = [*own, *(name for name in rest if name in found or benchmark[name].web_labels)]
    check_roles(first, [*rest, *own], last)
    return Roles((first, *(name for name in rest if name not in crawls)), last, tuple(crawls))


def is_folder(name: str, domains: Sequence[str]) -> bool:
    """Whether a folder or an archive is meant, and not a domain of that name."""
    return name not in domains and Path(name).exists()


def crawls_of(benchmark: Benchmark, roles: Roles) -> list[Domain]:
    """The domains of the root, or folders beside it, that are crawls."""
    taken, found = [*roles.sources, *([roles.target] if roles.target else [])], []
    for given in roles.crawls:
        if given in benchmark.names:
            crawl = only_kept(as_crawl(benchmark[given]), folder_of(benchmark[given], benchmark.root))
        else:
            crawl = read_crawl(Path(given), free_name(Path(given), taken))
        taken.append(crawl.name)
        found.append(crawl)
    return found


def free_name(path: Path, taken: Sequence[str]) -> str:
    """The folder's name, with a number if it is taken."""
    name, number = path.resolve().name.removesuffix(".zip") or "root", 2
    while (name if number == 2 else f"{name}-{number - 1}") in taken:
        number += 1
    return name if number == 2 else f"{name}-{number - 1}"
