"""Domains that a search found: what their folders or their manifest say of an image is a keyword, not the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .folders import OOD, Domain, is_ood, read_class_folder
from .manifest import NAME, read_manifest


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
