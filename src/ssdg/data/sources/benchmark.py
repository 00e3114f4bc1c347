"""Read benchmark roots and image folders as domains: images, their classes, split lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from .npz import WEB_LABELS
from .split_lists import SplitLists, match_split_lists, read_split_files
from .tree import Item, Reader, Tree, read_tree

OOD = "ood"  # in any case: folder name, and thus label, of images that belong to no class (out of distribution)
_SPLIT_FOLDERS = {
    "train": "train",
    "val": "crossval",
    "valid": "crossval",
    "validation": "crossval",
    "crossval": "crossval",
    "test": "test",
}


@dataclass(frozen=True)
class Domain:
    """Domain as read from disk: every image once, with the class that its folder names, or '' without one."""

    name: str
    items: tuple[Item, ...]
    labels: tuple[str, ...]
    classes: tuple[str, ...]  # in order; including class folders without images
    splits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # train, crossval, test -> items
    split_lines: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # listed in a split file, but missing on disk
    repeated: tuple[str, ...] = ()  # listed more than once in one split file
    web_labels: tuple[str, ...] = ()  # of a crawl: the keyword that found each image; `labels` are then the truth
    skipped: tuple[tuple[str, str], ...] = ()  # (path, reason) of links that lead in circles

    def counts(self) -> dict[str, int]:
        """Count images per class, in class order; '' stands for images without a class."""
        counts = Counter(self.labels)
        names = [*self.classes, *([""] if "" in counts else [])]
        return {name: counts[name] for name in names}


@dataclass(frozen=True)
class Benchmark:
    """Root with one or more domains."""

    root: Path
    layout: str  # description for reports
    domains: tuple[Domain, ...]
    skipped: tuple[
        tuple[str, str], ...
    ] = ()  # (path, reason) of links that lead in circles and of damaged .npz files

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the domains."""
        return tuple(domain.name for domain in self.domains)

    def __getitem__(self, name: str) -> Domain:
        return next(domain for domain in self.domains if domain.name == name)


def read_benchmark(root: Path, *, skip_damaged: bool = False) -> Benchmark:
    """Read the domains under a root: folders, archives and .npz files, with split files anywhere below it.

    With `skip_damaged`, an .npz file that cannot be read is listed in `skipped` if there is another domain. Without
    it, it is an error, because a run must not lose a domain silently.
    """
    tree = read_tree(root)
    base, folders = _domain_folders(tree)
    split_lists = read_split_files(tree.texts)
    domains = [_read_folder_domain(name, tree, _join(base, name), split_lists) for name in folders]
    arrays = [item for item in tree.arrays if _parent(item.path) == base]
    array_domains, damaged = _read_array_domains(arrays)
    domains += array_domains
    if damaged and not (skip_damaged and domains):
        raise damaged[0][1]
    names = [domain.name for domain in domains]
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise UserError(f"'{root}' has both a folder and an .npz file for '{duplicates.pop()}'; remove one of them")
    if not domains:
        raise UserError(
            f"no domain in '{root}'; it must contain <domain>/<class>/<image> folders or one .npz file per domain"
        )
    domains.sort(key=lambda domain: domain.name)
    skipped = (*tree.skipped, *((item.path, str(error)) for item, error in damaged))
    return Benchmark(root, _describe_layout(base, domains, arrays, tree), tuple(domains), skipped)


def read_class_folder(folder: Path, name: str) -> Domain:
    """Read a folder or archive whose subfolders are classes; images outside of them have the class ''."""
    tree = read_tree(folder)
    tops = {item.path.partition("/")[:2] for item in tree.images}
    is_wrapped = folder.is_file() and len(tops) == 1  # archives usually wrap everything in one folder
    wrapper, slash = tops.pop() if is_wrapped else ("", "")
    images, below = _select_below(tree.images, wrapper if slash else "")
    domain = _class_domain(name, images, below, tree.folders, wrapper if slash else "")
    return replace(domain, skipped=tree.skipped)


def list_images(path: Path) -> list[Item]:
    """List every image in a folder, a .zip archive or an .npz file of any layout; rows of .npz files are images."""
    if path.suffix.lower() == ".npz":
        images, arrays = [], [Item(path.name, str(path))]
        if not path.is_file():
            raise UserError(f"'{path}' does not exist; pass a folder of images, a .zip archive or an .npz file")
    else:
        tree = read_tree(path)
        images, arrays = list(tree.images), list(tree.arrays)
    with Reader() as reader:
        return images + [row for item in arrays for row in _read_array_domain(item, reader).items]


def is_ood(label: str) -> bool:
    """Return whether a folder name or label marks images that belong to no class."""
    return label.casefold() == OOD


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return sorted class names; by value if all are numbers, so that 10 comes after 9."""
    unique = set(names) - {""}
    by_value = all(name.isdecimal() for name in unique)
    return tuple(sorted(unique, key=lambda name: (int(name) if by_value else 0, name)))


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _below(paths: Iterable[str], folder: str) -> list[list[str]]:
    """Return the parts below `folder` of the paths in it."""
    start = f"{folder}/" if folder else ""
    return [path[len(start) :].split("/") for path in paths if path.startswith(start)]


def _select_below(items: Iterable[Item], folder: str) -> tuple[list[Item], list[list[str]]]:
    """Return the items in a folder, and their parts below it."""
    start = f"{folder}/" if folder else ""
    selected = [item for item in items if item.path.startswith(start)]
    return selected, [item.path[len(start) :].split("/") for item in selected]


def _domain_folders(tree: Tree) -> tuple[str, list[str]]:
    """Return the folder that contains the domains, skipping wrappers around a single folder, and their names."""
    base = ""
    while True:
        images = _below((item.path for item in tree.images), base)
        arrays = _below((item.path for item in tree.arrays), base)
        tops = {parts[0] for parts in images + arrays}
        if len(tops) != 1 or any(len(parts) == 1 for parts in images + arrays):
            break
        # below a wrapper, domain/class/image must remain; domain/train/class/image is not a wrapper
        inner = {parts[1] for parts in images + arrays}
        if any(len(parts) < 4 for parts in images) or (images and inner <= _SPLIT_FOLDERS.keys()):
            break
        base = _join(base, *tops)
    return base, sorted({parts[0] for parts in images if len(parts) > 1})


def _read_folder_domain(name: str, tree: Tree, folder: str, split_lists: Mapping[str, SplitLists]) -> Domain:
    domain = _read_classes_and_splits(name, tree, folder, split_lists)
    return replace(domain, skipped=tuple(entry for entry in tree.skipped if entry[0].startswith(f"{folder}/")))


def _read_classes_and_splits(name: str, tree: Tree, folder: str, split_lists: Mapping[str, SplitLists]) -> Domain:
    images, below = _select_below(tree.images, folder)
    tops = {parts[0] for parts in below}
    if "train" in tops and len(tops) > 1 and tops <= _SPLIT_FOLDERS.keys() and min(map(len, below)) >= 3:
        return _split_folder_domain(name, images, below)
    domain = _class_domain(name, images, below, tree.folders, folder)
    lists = split_lists.get(name.casefold())
    return _with_splits(domain, below, lists) if lists else domain


def _with_splits(domain: Domain, below: Sequence[Sequence[str]], lists: SplitLists) -> Domain:
    matched = match_split_lists(lists, below, domain.labels, domain.name)
    numbered = [matched.numbers[number] for number in sorted(matched.numbers)]
    return replace(
        domain,
        classes=tuple(dict.fromkeys([*numbered, *domain.classes])),
        splits=matched.rows,
        split_lines={split: len(lines) for split, lines in lists.items()},
        missing=tuple(matched.missing),
        repeated=tuple(matched.repeated),
    )


def _class_domain(
    name: str, images: Sequence[Item], below: Sequence[Sequence[str]], folders: Iterable[str], folder: str
) -> Domain:
    """Build a domain from folder/class/**/image, including class folders without images."""
    labels = tuple(parts[0] if len(parts) > 1 else "" for parts in below)
    empty = {parts[0] for parts in _below(folders, folder) if len(parts) == 1}
    return Domain(name, tuple(images), labels, class_order({*labels, *empty}))


def _split_folder_domain(name: str, images: Sequence[Item], below: Sequence[Sequence[str]]) -> Domain:
    """Build a domain from folder/{train,val,test}/class/**/image."""
    labels = tuple(parts[1] for parts in below)
    splits: dict[str, list[int]] = {}
    for index, parts in enumerate(below):
        splits.setdefault(_SPLIT_FOLDERS[parts[0]], []).append(index)
    frozen = {split: tuple(rows) for split, rows in splits.items()}
    return Domain(name, tuple(images), labels, class_order(labels), frozen)


def _read_array_domains(items: Iterable[Item]) -> tuple[list[Domain], list[tuple[Item, UserError]]]:
    """Read .npz files; return the domains, and the files that cannot be read."""
    domains, damaged = [], []
    with Reader() as reader:
        for item in items:
            try:
                domains.append(_read_array_domain(item, reader))
            except UserError as error:
                damaged.append((item, error))
    return domains, damaged


def _read_array_domain(item: Item, reader: Reader) -> Domain:
    """Read an .npz file: uint8 images (N, H, W, 3), N integer labels, and N integer web-labels if it is a crawl.

    In a crawl the label -1 marks an image that belongs to no class.
    """
    arrays, num_images = reader.npz_labels(item)
    for name, labels in arrays.items():
        _check_labels(name, labels, num_images, item.file)
    rows = range(num_images)
    items = tuple(Item(f"{item.path}#{row}", item.file, item.entry, row, item.stamp) for row in rows)
    names = tuple(str(label) for label in arrays["labels"].tolist())
    web_labels = tuple(str(label) for label in arrays[WEB_LABELS].tolist()) if WEB_LABELS in arrays else ()
    if web_labels:
        names = tuple(OOD if name == "-1" else name for name in names)
    classes = (*class_order({*names} - {OOD}), *({*names} & {OOD}))
    return Domain(item.parts[-1].rpartition(".")[0], items, names, classes, web_labels=web_labels)


def _check_labels(name: str, labels: NDArray[np.int64], num_images: int, file: str) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError(f"'{name}' in '{file}' must be a 1-D array of integers, not {labels.dtype}")
    if len(labels) != num_images:
        raise UserError(f"'{file}' has {num_images} images but {len(labels)} {name}; each image needs one")


def _describe_layout(base: str, domains: Sequence[Domain], arrays: Sequence[Item], tree: Tree) -> str:
    forms = []
    if len(arrays) < len(domains):
        forms.append(_join(base, "<domain>/<class>/<image>"))
    if arrays:
        forms.append(_join(base, "<domain>.npz"))
    if any(item.entry for item in (*tree.images, *arrays)):
        forms[-1] += " in .zip archives"
    if any(domain.splits for domain in domains):
        forms.append("train and validation lists")
    return ", ".join(forms)
