"""Domains that a search found: what their folders or their manifest say of an image is a keyword, not the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .folders import OOD, Domain, is_ood, read_class_folder
from .manifest import NAME, read_manifest


def read_crawl(folder: Path, name: str) -> Domain:
    """The images by keyword: all that lie in class folders or, where there is a manifest, those that it keeps."""
    domain = as_crawl(read_class_folder(folder, name))
    if not (folder / NAME).is_file():
        return domain
    kept = {row.path: row.label for row in read_manifest(folder).kept}
    rows = [number for number, item in enumerate(domain.items) if item.path in kept]
    items = tuple(domain.items[number] for number in rows)
    labels = tuple(domain.labels[number] for number in rows)
    return replace(domain, items=items, labels=labels, web_labels=tuple(kept[item.path] for item in items))


def as_crawl(domain: Domain) -> Domain:
    """The class folders as keywords: what they say of an image is no truth, but that it lies in a folder `ood`."""
    if domain.web_labels:
        return domain
    keywords = tuple("" if is_ood(label) else label for label in domain.labels)
    truth = tuple(OOD if any(map(is_ood, item.parts[:-1])) else "" for item in domain.items)
    return replace(domain, labels=truth, web_labels=keywords)
