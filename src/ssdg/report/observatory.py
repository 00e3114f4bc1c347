"""The pseudo-label observatory: thumbnails, their pseudo-labels, and how these changed from cycle to cycle."""

from __future__ import annotations

import base64
import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..schema import Domain
from .curves import Figure, bars, matrix
from .run_folder import Labels, Run, damaged

NO_CLASS = -2  # in `truth`: an image of no class; -1 is one whose class is not known
BYTES = 5_500_000  # of sheets in one page; in base64 they take a third more
Sheets = dict[str, dict[str, Any]]


class Album:
    """The sheets of a page by their digest, as many as fit; runs on the same images share them."""

    def __init__(self, left: int = BYTES) -> None:
        self.left = left
        self.sheets: dict[str, str] = {}

    def add(self, path: Path) -> str | None:
        """The digest of a sheet that is in the page now; None if it does not fit any more."""
        content = path.read_bytes()
        if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
            raise damaged(path, "it is no WebP image")
        digest = hashlib.sha256(content).hexdigest()[:16]
        if digest not in self.sheets:
            if len(content) > self.left:
                return None
            self.left -= len(content)
            self.sheets[digest] = f"data:image/webp;base64,{base64.b64encode(content).decode()}"
        return digest


def sheets_of(run: Run, album: Album) -> tuple[Sheets, list[str]]:
    """The sheets of a run by domain, and the domains whose sheet does not fit any more."""
    sheets: Sheets = {}
    left_out = []
    for name, domain in run.samples.domains.items() if run.samples else ():
        path = check(run, domain)
        if not path.exists():
            continue
        digest = album.add(path)
        if digest is None:
            left_out.append(name)
        else:
            sheets[name] = {"sheet": digest, "count": len(domain.rows)}
    return sheets, left_out


def check(run: Run, domain: Domain) -> Path:
    """Where the sheet of a domain lies, after a look at what `index.json` says of it."""
    index, count = run.folder / "samples" / "index.json", len(domain.rows)
    lengths = {len(domain.paths), *(len(one) for one in (domain.truth, domain.web) if one is not None)}
    if lengths != {count} or any(row >= domain.images for row in domain.rows):
        raise damaged(index, "its lists are of unlike lengths")
    if Path(domain.sprite).name != domain.sprite:
        raise damaged(index, "it names a sheet outside of its folder")
    return run.folder / "samples" / domain.sprite


def told(run: Run, sheets: Sheets, left_out: list[str]) -> str:
    """What was sampled, in a sentence or two."""
    if run.samples is None:
        return "This run folder has no samples/: it was trained without thumbnails, so there are none to show."
    parts = [f"{len(d.rows):,} of {d.images:,} of {name}" for name, d in run.samples.domains.items()]
    text = f"Shown are images drawn at random: {', '.join(parts)}. Figures that count all images say so."
    if left_out:
        text += f" To keep the page small, thumbnails of {', '.join(left_out)} are left out."
    return text


TITLES = {"apl": "labeler (APL)", "eid": "clean set (EID)"}
MOST_IN_FLOW = 20  # classes; more are shown as a matrix
Counts = NDArray[np.int64]


def observatory(run: Run, sheets: Sheets, left_out: list[str]) -> dict[str, Any]:
    """Sampled images with the labels of every stage and cycle, and the figures of all images."""
    names = class_names(run)
    return {
        "sampled": told(run, sheets, left_out),
        "classes": names,
        "domains": [_domain(run, name) for name in run.task.unlabeled if _has_labels(run, name)],
        "figures": [*flows(run, names), *clean_sets(run, names), *confusions(run, names)],
    }


def class_names(run: Run) -> list[str]:
    """The classes; labels beyond them, which some methods give to what they do not know, are `unknown`."""
    most = max((int(labels.y.max()) + 1 for labels in run.labels.values() if len(labels.y)), default=0)
    known = run.task.classes or [str(place) for place in range(most)]
    return [*known, *["unknown"] * (most - len(known))]


def stage_title(kind: str) -> str:
    """What a kind of stage is called on the page."""
    return TITLES.get(kind, kind)


def _has_labels(run: Run, name: str) -> bool:
    return run.samples is not None and name in run.samples.domains and any(d == name for _, _, d in run.labels)


def _domain(run: Run, name: str) -> dict[str, Any]:
    assert run.samples is not None
    domain = run.samples.domains[name]
    rows = np.array(domain.rows, np.int64)
    stages = [
        {"kind": kind, "title": stage_title(kind), "cycle": cycle, **_taken(labels, rows)}
        for (kind, cycle, owner), labels in run.labels.items()
        if owner == name
    ]
    return {
        "name": name,
        "images": domain.images,
        "paths": domain.paths,
        "truth": domain.truth,
        "web": domain.web,
        "stages": stages,
    }


def _taken(labels: Labels, rows: NDArray[np.int64]) -> dict[str, Any]:
    return {
        "y": labels.y[rows].tolist(),
        "keep": labels.keep[rows].astype(int).tolist(),
        "confidence": np.round(100 * np.nan_to_num(labels.confidence[rows]), 1).tolist(),
        "votes": labels.votes[:, rows].tolist(),
    }


def placed(figure: Figure, kind: str, domain: str, cycle: int | None = None) -> Figure:
    """A figure that the filters of the observatory show or hide."""
    return {**figure, "of": {"kind": kind, "domain": domain, "cycle": cycle}}


def flows(run: Run, names: list[str]) -> list[Figure]:
    """Which class became which between two cycles, over all images."""
    found = []
    for kind, domain in dict.fromkeys((kind, domain) for kind, _, domain in run.labels):
        cycles = sorted(cycle for k, cycle, d in run.labels if (k, d) == (kind, domain))
        steps = [
            _moved(run.labels[kind, a, domain], run.labels[kind, b, domain], len(names)) for a, b in pairwise(cycles)
        ]
        title = f"How labels of {domain} moved: {stage_title(kind)}"
        if steps and len(names) <= MOST_IN_FLOW:
            found.append(placed(flow(title, cycles, names, steps), kind, domain))
        elif steps:
            found += [
                placed(_step(f"{title}, cycle {a} to {b}", names, step), kind, domain, b)
                for (a, b), step in zip(pairwise(cycles), steps, strict=True)
            ]
    return found


def _moved(before: Labels, after: Labels, count: int) -> Counts:
    return np.bincount(before.y * count + after.y, minlength=count * count).reshape(count, count)


def _step(title: str, names: list[str], step: Counts) -> Figure:
    return matrix(title, names, names, step.tolist(), x="class after", y="class before", note="All images.")


def flow(title: str, cycles: list[int], names: list[str], steps: list[Counts]) -> Figure:
    """Bands between the classes of one cycle and of the next."""
    moved = [int(step.sum() - np.trace(step)) for step in steps]
    parts = [f"cycle {a} to {b}: {n:,}" for (a, b), n in zip(pairwise(cycles), moved, strict=True)]
    return {
        "kind": "flow",
        "title": title,
        "names": [f"cycle {cycle}" for cycle in cycles],
        "classes": names,
        "steps": [step.tolist() for step in steps],
        "note": f"Labels that changed, of {int(steps[0].sum()):,} images: {', '.join(parts)}.",
    }


def clean_sets(run: Run, names: list[str]) -> list[Figure]:
    """Kept images by class, a bar for each cycle."""
    found = []
    for domain in run.task.unlabeled:
        kept = {
            cycle: labels for (kind, cycle, owner), labels in run.labels.items() if (kind, owner) == ("eid", domain)
        }
        series = {
            f"cycle {cycle}": np.bincount(labels.y[labels.keep], minlength=len(names)).tolist()
            for cycle, labels in sorted(kept.items())
        }
        if series:
            made = bars(f"Clean set of {domain} by class", names, series, x="class", y="images", note="All images.")
            found.append(placed(made, "eid", domain))
    return found


def confusions(run: Run, names: list[str]) -> list[Figure]:
    """True class against label, of the sampled images whose class is known."""
    found = []
    for (kind, cycle, domain), labels in run.labels.items():
        sampled = run.samples.domains.get(domain) if run.samples else None
        if sampled is None or sampled.truth is None:
            continue
        true, y = np.array(sampled.truth), labels.y[np.array(sampled.rows, np.int64)]
        known = true >= 0
        if not known.any():
            continue
        counts = np.bincount(true[known] * len(names) + y[known], minlength=len(names) ** 2)
        title = f"Confusion of {domain}, cycle {cycle}: {stage_title(kind)}"
        note = f"{int(known.sum()):,} sampled images; {100 * float((true == y)[known].mean()):.1f} % on the diagonal."
        square = counts.reshape(len(names), len(names)).tolist()
        made = matrix(title, names, names, square, x="label", y="true class", note=note)
        found.append(placed(made, kind, domain, cycle))
    return found
