"""The pseudo-label observatory: thumbnails, their pseudo-labels, and how these change from cycle to cycle."""

from __future__ import annotations

import base64
import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import read_bytes
from ..schema import damaged
from .curves import Figure, bars, matrix
from .run_folder import Labels, Run

NO_CLASS = -2  # in `truth`: an image of no known class; -1: the class is not known
MAX_BYTES = 5_500_000  # of sheets in one page; base64 adds a third
MAX_FLOW_CLASSES = 20  # more classes are drawn as a matrix
ALL_IMAGES = "Counts all images."
Sheets = dict[str, dict[str, Any]]
Counts = NDArray[np.int64]


class Album:
    """The sheets of a page by digest, up to a size limit; runs on the same images share them."""

    def __init__(self, bytes_left: int = MAX_BYTES) -> None:
        self.bytes_left = bytes_left
        self.sheets: dict[str, str] = {}

    def add(self, path: Path) -> str | None:
        """Add a sheet and return its digest; return None if it exceeds the limit."""
        content = read_bytes(path)
        if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
            raise damaged(path, "it is not a WebP image")
        digest = hashlib.sha256(content).hexdigest()[:16]
        if digest not in self.sheets:
            if len(content) > self.bytes_left:
                return None
            self.bytes_left -= len(content)
            self.sheets[digest] = f"data:image/webp;base64,{base64.b64encode(content).decode()}"
        return digest


def sheets_of(run: Run, album: Album) -> tuple[Sheets, list[str]]:
    """Return the sheets of a run by domain, and the domains whose sheet exceeds the limit."""
    sheets: Sheets = {}
    left_out = []
    for name, domain in run.samples.domains.items() if run.samples else ():
        path = run.folder / "samples" / domain.sprite
        if not path.exists():
            continue
        digest = album.add(path)
        if digest is None:
            left_out.append(name)
        else:
            sheets[name] = {"sheet": digest, "count": len(domain.rows)}
    return sheets, left_out


def describe_samples(run: Run, left_out: list[str]) -> str:
    """Return what was sampled, in a sentence or two."""
    if run.samples is None:
        return "No thumbnails: this run folder has no samples/."
    parts = [f"{len(d.rows):,} of {d.images:,} images of {name}" for name, d in run.samples.domains.items()]
    text = f"A random sample: {', '.join(parts)}. Figures that count all images say so."
    if left_out:
        text += f" Thumbnails of {', '.join(left_out)} are left out to keep the page small."
    return text


def observatory(run: Run, left_out: list[str]) -> dict[str, Any]:
    """Return sampled images with the labels of every labeling and cycle, and figures of all images."""
    names = class_names(run)
    # The page shows the first labeling in the last cycle: one that is not replaced by then.
    clean_sets_first = [*run.titles("clean-set"), *(labels.title for labels in run.last_labels()), *run.titles()]
    return {
        "sampled": describe_samples(run, left_out),
        "classes": names,
        "labelings": [title for title in dict.fromkeys(clean_sets_first) if _has_labels(run, title)],
        "domains": [_domain(run, name) for name in run.task.unlabeled if _is_sampled(run, name)],
        "figures": [*flows(run, names), *clean_sets(run, names), *confusions(run, names)],
    }


def class_names(run: Run) -> list[str]:
    """Return the classes; labels beyond them, by which open-set methods reject an image, are named `unknown`."""
    most = max((int(labels.y.max()) + 1 for labels in run.labels if len(labels.y)), default=0)
    known = run.task.classes or [str(number) for number in range(most)]
    return [*known, *["unknown"] * (most - len(known))]


def _has_labels(run: Run, title: str) -> bool:
    return any(labels.title == title for labels in run.labels)


def _is_sampled(run: Run, name: str) -> bool:
    return run.samples is not None and name in run.samples.domains and any(part.domain == name for part in run.labels)


def _domain(run: Run, name: str) -> dict[str, Any]:
    assert run.samples is not None
    domain = run.samples.domains[name]
    rows = np.array(domain.rows, np.int64)
    stages = [
        {"title": labels.title, "kind": labels.kind, "cycle": labels.round, **_sampled(labels, rows)}
        for labels in run.labels
        if labels.domain == name
    ]
    return {
        "name": name,
        "images": domain.images,
        "paths": domain.paths,
        "truth": domain.truth,
        "web": domain.web,
        "stages": stages,
    }


def _sampled(labels: Labels, rows: NDArray[np.int64]) -> dict[str, Any]:
    return {
        "y": labels.y[rows].tolist(),
        "keep": labels.keep[rows].astype(int).tolist(),
        "confidence": np.round(100 * np.nan_to_num(labels.confidence[rows]), 1).tolist(),
        "votes": labels.votes[:, rows].tolist(),
    }


def filtered(figure: Figure, title: str, domain: str, cycle: int | None = None) -> Figure:
    """Return a figure that the filters of the observatory show or hide."""
    return {**figure, "of": {"title": title, "domain": domain, "cycle": cycle}}


def flows(run: Run, names: list[str]) -> list[Figure]:
    """Return which class became which between two cycles, over all images."""
    figures = []
    for title, domain in dict.fromkeys((labels.title, labels.domain) for labels in run.labels):
        by_cycle = run.labels_of(title, domain)
        cycles = [labels.round for labels in by_cycle]
        steps = [_changes(a, b, len(names)) for a, b in pairwise(by_cycle)]
        caption = f"Label changes of {domain}: {title}"
        if steps and len(names) <= MAX_FLOW_CLASSES:
            figures.append(filtered(flow(caption, cycles, names, steps), title, domain))
        elif steps:
            figures += [
                filtered(_step(f"{caption}, cycle {a} to {b}", names, step), title, domain, b)
                for (a, b), step in zip(pairwise(cycles), steps, strict=True)
            ]
    return figures


def _changes(before: Labels, after: Labels, count: int) -> Counts:
    return np.bincount(before.y * count + after.y, minlength=count * count).reshape(count, count)


def _step(title: str, names: list[str], step: Counts) -> Figure:
    return matrix(title, names, names, step.tolist(), x="class after", y="class before", note=ALL_IMAGES)


def flow(title: str, cycles: list[int], names: list[str], steps: list[Counts]) -> Figure:
    """Return bands between the classes of one cycle and the next."""
    changed = [int(step.sum() - np.trace(step)) for step in steps]
    parts = [f"cycle {a} to {b}: {n:,}" for (a, b), n in zip(pairwise(cycles), changed, strict=True)]
    return {
        "kind": "flow",
        "title": title,
        "names": [f"cycle {cycle}" for cycle in cycles],
        "classes": names,
        "steps": [step.tolist() for step in steps],
        "note": f"Changed labels, of {int(steps[0].sum()):,} images: {', '.join(parts)}.",
    }


def clean_sets(run: Run, names: list[str]) -> list[Figure]:
    """Return the selected images by class, one series per cycle."""
    figures = []
    several = len(run.titles("clean-set")) > 1
    for last in run.last_labels("clean-set"):
        series = {
            f"cycle {labels.round}": np.bincount(labels.y[labels.keep], minlength=len(names)).tolist()
            for labels in run.labels_of(last.title, last.domain)
        }
        caption = f"Clean set of {last.domain} by class{f': {last.title}' if several else ''}"
        figure = bars(caption, names, series, x="class", y="images", note=ALL_IMAGES)
        figures.append(filtered(figure, last.title, last.domain))
    return figures


def confusions(run: Run, names: list[str]) -> list[Figure]:
    """Return the true class against the label, for sampled images whose class is known."""
    figures = []
    for labels in run.labels:
        domain = run.samples.domains.get(labels.domain) if run.samples else None
        if domain is None or domain.truth is None:
            continue
        true, y = np.array(domain.truth), labels.y[np.array(domain.rows, np.int64)]
        known = true >= 0
        if not known.any():
            continue
        counts = np.bincount(true[known] * len(names) + y[known], minlength=len(names) ** 2)
        square = counts.reshape(len(names), len(names)).tolist()
        caption = f"Confusion matrix of {labels.domain}, cycle {labels.round}: {labels.title}"
        note = f"{int(known.sum()):,} sampled images; accuracy {100 * float((true == y)[known].mean()):.1f} %."
        figure = matrix(caption, names, names, square, x="label", y="true class", note=note)
        figures.append(filtered(figure, labels.title, labels.domain, labels.round))
    return figures
