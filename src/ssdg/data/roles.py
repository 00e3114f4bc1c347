"""The role of each domain (labeled, unlabeled, crawl, target), and the checks on data before training starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import real_path
from .catalog import find_domain, identify_dataset
from .sets import Setting
from .sources.benchmark import OOD, Benchmark, Domain, is_ood, read_class_folder
from .sources.manifest import MANIFEST_NAME, read_manifest


def check_roles(labeled: str, unlabeled: Sequence[str], target: str | None) -> None:
    """Reject a domain with two roles."""
    if labeled == target:
        raise UserError(f"'{labeled}' is both the labeled and the target domain; choose two different domains")
    for name in unlabeled:
        if name in (labeled, target):
            role = "labeled" if name == labeled else "target"
            raise UserError(f"'{name}' is both the {role} domain and an unlabeled one; remove it from one of the two")
    if duplicates := [name for name in unlabeled if list(unlabeled).count(name) > 1]:
        raise UserError(f"the unlabeled domain '{duplicates[0]}' is listed twice; list it once")


def check_web_role(*trusted: Domain) -> None:
    """Reject a crawl as labeled or target domain: keywords are no ground truth, and its truth is hidden."""
    for domain in trusted:
        if domain.web_labels:
            raise UserError(
                f"'{domain.name}' is a crawl (found by keywords) and can only be an unlabeled domain; choose another"
            )


def check_setting(setting: str, unlabeled: Sequence[str], target: str | None) -> None:
    """Check that domain adaptation has a target, which is its only unlabeled domain."""
    if setting == "uda" and target is None:
        raise UserError("--setting uda adapts to the target, but there is none; add --target")
    if setting == "uda" and unlabeled:
        raise UserError(
            f"--setting uda has the target as its only unlabeled domain, but '{unlabeled[0]}' is listed as another; "
            "remove --unlabeled, or use --setting ssdg"
        )


def check_disjoint(labeled: Path, unlabeled: Sequence[Path], target: Path | None) -> None:
    """Check that folders exist and do not overlap: an image must not be both trained and tested on."""
    folders = [("labeled", labeled), *(("unlabeled", path) for path in unlabeled)]
    if target:
        folders.append(("target", target))
    for role, path in folders:
        if not path.exists():
            raise UserError(f"the {role} folder '{path}' does not exist; check the path")
    for index, (role, path) in enumerate(folders):
        for other_role, other in folders[index + 1 :]:
            if _is_inside(real_path(path), real_path(other)) or _is_inside(real_path(other), real_path(path)):
                raise UserError(
                    f"the {role} folder '{path}' and the {other_role} folder '{other}' are the same, or one "
                    "is inside the other; use separate folders, so that no image has two roles"
                )


def _is_inside(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def check_classes(labeled: Domain) -> None:
    """Check that the labeled domain has at least two classes, each in a separate folder (or with its own number)."""
    classes = labeled.classes
    if not classes:
        raise UserError(
            f"'{labeled.name}' has no class subfolders; sort its images into one folder per class, or "
            "use it as unlabeled"
        )
    if len(classes) < 2:
        raise UserError(f"'{labeled.name}' has the single class '{classes[0]}'; at least two are required")
    if len(labeled.items) < 2:
        raise UserError(f"'{labeled.name}' has fewer than two images; each class needs at least one")


def check_same_classes(labeled: Domain, target: Domain) -> None:
    """Check that the target has the classes of the labeled domain, if its images have classes at all."""
    actual, expected = set(target.labels) - {""}, set(labeled.classes)
    if not actual or actual == expected:
        return
    parts = []
    if extra := actual - expected:
        parts.append(f"'{target.name}' has {_join_names(extra)}, which '{labeled.name}' lacks")
    if missing := expected - actual:
        parts.append(f"'{labeled.name}' has {_join_names(missing)}, which '{target.name}' lacks")
    raise UserError(
        f"the classes of the labeled and the target domain differ: {'; '.join(parts)}; rename or remove "
        "these folders, or put the images to predict into one flat folder"
    )


def _join_names(names: set[str]) -> str:
    ordered = sorted(names)
    rest = f" and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    return ", ".join(f"'{name}'" for name in ordered[:8]) + rest


def check_images(name: str, num_images: int, unreadable: Sequence[tuple[str, str]]) -> None:
    """Check that a domain has at least one readable image."""
    if num_images == 0:
        example = f"; for example '{unreadable[0][0]}': {unreadable[0][1]}" if unreadable else ""
        raise UserError(f"no image of '{name}' can be read{example}")


def check_labeled(name: str, y: NDArray[np.int64], classes: Sequence[str]) -> None:
    """Check that every class of the labeled domain has a training image."""
    counts = np.bincount(y, minlength=len(classes))
    empty = {label for label, count in zip(classes, counts, strict=True) if count == 0}
    if empty:
        raise UserError(
            f"'{name}' has no readable training image of {_join_names(empty)}; add images or remove the class folder"
        )


def read_crawl(folder: Path, name: str) -> Domain:
    """Read images with keywords: all images in class folders, or those that the manifest keeps if there is one."""
    return apply_manifest(as_crawl(read_class_folder(folder, name)), folder)


def read_unlabeled(folder: Path, name: str) -> Domain:
    """Read images without their keywords: all images, or those that the manifest keeps if there is one."""
    return apply_manifest(read_class_folder(folder, name), folder)


def apply_manifest(domain: Domain, folder: Path) -> Domain:
    """Select the images that the folder's manifest keeps, with its web-labels; all images if there is none."""
    if not (folder / MANIFEST_NAME).is_file():
        return domain
    labels = {row.path: row.label for row in read_manifest(folder).kept}
    paths = [item.file.removeprefix(f"{folder}/") for item in domain.items]
    rows = [row for row, path in enumerate(paths) if path in labels]
    return replace(
        domain,
        items=tuple(domain.items[row] for row in rows),
        labels=tuple(domain.labels[row] for row in rows),
        web_labels=tuple(labels[paths[row]] for row in rows) if domain.web_labels else (),
    )


def domain_folder(domain: Domain, root: Path) -> Path:
    """Return the folder of a benchmark's domain or of its archive; the root may have folders around domains."""
    parents = Path(domain.items[0].file).parents if domain.items else ()
    return next((folder for folder in parents if folder.name == domain.name), root)


def as_crawl(domain: Domain) -> Domain:
    """Treat class folders as keywords, which are no ground truth; only a folder `ood` is."""
    if domain.web_labels:
        return domain
    keywords = tuple("" if is_ood(label) else label for label in domain.labels)
    truth = tuple(OOD if any(map(is_ood, item.parts[:-1])) else "" for item in domain.items)
    return replace(domain, labels=truth, web_labels=keywords)


@dataclass(frozen=True)
class Roles:
    """Domain names by role."""

    sources: tuple[str, ...]  # the labeled domain first
    target: str | None
    crawls: tuple[str, ...] = ()  # domains of the root, or folders


def find_roles(
    benchmark: Benchmark,
    *,
    labeled: str,
    target: str | None,
    unlabeled: Sequence[str] | None,
    web: Sequence[str] | None,
    setting: Setting,
) -> Roles:
    """Resolve names, short names or folders to domains; reject missing and overlapping ones."""
    names, dataset = benchmark.names, identify_dataset(benchmark.names)
    labeled_name = find_domain(labeled, names, dataset)
    target_name = find_domain(target, names, dataset) if target else None
    check_web_role(*(benchmark[name] for name in (labeled_name, target_name) if name))
    check_setting(setting, [*(unlabeled or ()), *(web or ())], target_name)
    if target_name and setting == "uda":
        check_roles(labeled_name, (), target_name)
        return Roles((labeled_name, target_name), target_name)
    known_crawls = [find_domain(dataset.web, names, dataset)] if dataset and dataset.web else []
    listed = [name if is_folder(name, names) else find_domain(name, names, dataset) for name in web or ()]
    rest = [find_domain(name, names, dataset) for name in unlabeled or ()]
    if unlabeled is None and web is None:
        rest = [name for name in known_crawls or names if name not in (labeled_name, target_name)]
    crawls = [*listed, *(name for name in rest if name in known_crawls or benchmark[name].web_labels)]
    check_roles(labeled_name, [*rest, *listed], target_name)
    return Roles((labeled_name, *(name for name in rest if name not in crawls)), target_name, tuple(crawls))


def is_folder(name: str, domains: Sequence[str]) -> bool:
    """Return whether `name` is an existing folder or archive rather than one of `domains`."""
    return name not in domains and Path(name).exists()


def read_crawls(benchmark: Benchmark, roles: Roles) -> list[Domain]:
    """Read the crawls: domains of the root, or other folders."""
    taken, crawls = [*roles.sources, *([roles.target] if roles.target else [])], []
    for name in roles.crawls:
        if name in benchmark.names:
            crawl = apply_manifest(as_crawl(benchmark[name]), domain_folder(benchmark[name], benchmark.root))
        else:
            crawl = read_crawl(Path(name), unique_name(Path(name), taken))
        taken.append(crawl.name)
        crawls.append(crawl)
    return crawls


def unique_name(path: Path, taken: Sequence[str]) -> str:
    """Return the folder's name, with a number appended if it is taken."""
    name, number = path.resolve().name.removesuffix(".zip") or "root", 2
    while (name if number == 2 else f"{name}-{number - 1}") in taken:
        number += 1
    return name if number == 2 else f"{name}-{number - 1}"
