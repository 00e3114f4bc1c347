"""The curves of a run as plain JSON for the page's script: accuracies, losses, pseudo-label quality."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..schema import Audit, Counts, Epoch
from .run_folder import Run

Figure = dict[str, Any]
DIGITS = 4  # of what is written into the page


def number(value: float | None) -> float | None:
    """Rounded for the page; what is not finite is not JSON and becomes a gap."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), DIGITS)


def line(
    title: str,
    names: Sequence[str],
    series: Mapping[str, Iterable[float | None]],
    *,
    x: str,
    y: str,
    note: str = "",
    marks: Sequence[int] = (),
    bounds: tuple[float, float] | None = None,
    least: float = 0.0,
) -> Figure:
    """Curves over the places `names`; `marks` are places before which a new cycle begins.

    The axis spans what is drawn, `least` or more, and does not go beyond `bounds`.
    """
    curves = [{"name": name, "values": [number(v) for v in values]} for name, values in series.items()]
    found = {"kind": "line", "title": title, "names": list(names), "series": curves, "x": x, "y": y}
    return {**found, "note": note, "marks": list(marks), "bounds": list(bounds) if bounds else None, "least": least}


def bars(
    title: str, names: Sequence[str], series: Mapping[str, Iterable[float]], *, x: str, y: str, note: str = ""
) -> Figure:
    """Groups of bars over the places `names`."""
    groups = [{"name": name, "values": [number(v) for v in values]} for name, values in series.items()]
    return {"kind": "bars", "title": title, "names": list(names), "series": groups, "x": x, "y": y, "note": note}


def matrix(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    counts: Sequence[Sequence[int]],
    *,
    x: str,
    y: str,
    note: str = "",
) -> Figure:
    """Counts by row and column, the diagonal set apart; only what is not zero is written."""
    cells = [[i, j, int(count)] for i, row in enumerate(counts) for j, count in enumerate(row) if count]
    found = {"kind": "matrix", "title": title, "rows": list(rows), "columns": list(columns), "cells": cells}
    return {**found, "x": x, "y": y, "note": note}


def sentence(text: str) -> Figure:
    """In the place of a figure that cannot be drawn: why not."""
    return {"kind": "sentence", "title": "", "note": text}


PERCENT = (0.0, 100.0)
KINDS = {"apl": "labelers", "eid": "two networks of DCG"}


def curves(run: Run) -> list[Figure]:
    """All curves; a sentence stands for what cannot be drawn."""
    return [*accuracy(run), *losses(run), *clean_rate(run), *label_curves(run)]


def accuracy(run: Run) -> list[Figure]:
    """Percent right on the target and on held-out labeled images after every epoch."""
    rows = run.product
    found = []
    for field, title in (
        ("target", f"Accuracy on {run.task.target}, unseen"),
        ("validation", "Held-out labeled images"),
    ):
        values = [getattr(row, field) for row in rows]
        if any(values):
            found.append(_epochs(title, rows, _networks(values), "percent right", PERCENT))
    if not any(row.target for row in rows):
        found.append(sentence("The target has no labels, or there is none: its accuracy is not known."))
    return found


def _least(bounds: tuple[float, float] | None) -> float:
    """A tenth of the whole: a change of less looks small."""
    return (bounds[1] - bounds[0]) / 10 if bounds else 0.0


def _networks(values: list[list[float]]) -> dict[str, list[float | None]]:
    width = max(map(len, values))
    names = [*(f"network {place}" for place in range(1, width)), "mean"] if width > 1 else ["network"]
    return {name: [row[i] if i < len(row) else None for row in values] for i, name in enumerate(names)}


def _epochs(
    title: str,
    rows: Sequence[Epoch],
    series: dict[str, list[float | None]],
    y: str,
    bounds: tuple[float, float] | None = None,
    note: str = "",
) -> Figure:
    """Curves over the epochs of all cycles, one after another."""
    names = [f"cycle {row.round}, epoch {row.epoch}" for row in rows]
    marks = [place for place, (a, b) in enumerate(pairwise(rows), start=1) if a.round != b.round]
    return line(
        title,
        names,
        series,
        x="epoch, cycle after cycle",
        y=y,
        marks=marks,
        bounds=bounds,
        least=_least(bounds),
        note=note,
    )


def losses(run: Run) -> list[Figure]:
    """Losses per stage; the labelers of the domains share a figure."""
    stages: dict[str, list[Epoch]] = {}
    for row in run.epochs:
        stages.setdefault(row.key.split("/")[0], []).append(row)
    titles = {"warm": "Loss of the warm start", "apl": "Losses of the labelers", "dcg": "Losses of the two networks"}
    found = []
    for stage, rows in stages.items():
        made = _of_labelers(rows) if stage == "apl" else _of_stage(rows)
        if made[1]:
            found.append(_epochs(titles.get(stage, f"Losses of stage {stage}"), *made, "loss"))
    return found


def _of_stage(rows: list[Epoch]) -> tuple[list[Epoch], dict[str, list[float | None]]]:
    names = dict.fromkeys(name for row in rows for name in row.losses)
    return rows, {name: [row.losses.get(name) for row in rows] for name in names}


def _of_labelers(rows: list[Epoch]) -> tuple[list[Epoch], dict[str, list[float | None]]]:
    """`sketch: loss`, ...: a place for each epoch that any labeler has."""
    places = {(row.round, row.epoch): row for row in rows}
    by_key = {(row.key, row.round, row.epoch): row.losses for row in rows}
    keys = dict.fromkeys(row.key for row in rows)
    names = dict.fromkeys(name for row in rows for name in row.losses)
    series = {
        f"{key.partition('/')[2]}: {name}": [by_key.get((key, *place), {}).get(name) for place in places]
        for key in keys
        for name in names
    }
    return list(places.values()), series


def clean_rate(run: Run) -> list[Figure]:
    """r(t) = 1 − min(t/T_k · δ, δ) of Algorithm 1, from the settings."""
    config = run.config
    rows = [row for row in run.epochs if row.key == "dcg"]
    if not rows or "delta" not in config or not config.get("dual"):
        return []
    delta, ramp = float(config["delta"]), float(config["ramp"])
    rates = [1 - min((row.epoch - 1) / (ramp * max(row.epochs, row.epoch)) * delta, delta) for row in rows]
    note = f"From the settings: δ = {delta:g} (delta), T_k = {ramp:g} of the epochs (ramp)."
    return [_epochs("Clean rate r(t) of DCG", rows, {"r(t)": list(rates)}, "share of a batch", (0.0, 1.0), note)]


def label_curves(run: Run) -> list[Figure]:
    """Per cycle and unlabeled domain: pseudo-label accuracy, agreement, size and accuracy of the clean set."""
    if not run.audits:
        return [sentence("This method gives no pseudo-labels, or has given none yet.")]
    found = [
        _cycles(run, "Pseudo-labels that are right", "apl", lambda row: row.get("accuracy"), "percent right"),
        _cycles(run, "Clean set: share of the domain", "eid", _kept_share, "percent of the images"),
        _cycles(
            run, "Clean set: labels that are right", "eid", lambda row: row.get("kept_accuracy"), "percent right"
        ),
        _agreement(run),
    ]
    missing = (
        []
        if any(map(_truth_is_known, run.audits))
        else [
            sentence(
                "The true classes of the unlabeled domains are not known: how many labels are right is left out."
            )
        ]
    )
    return [figure for figure in found if figure["series"]] + missing


def _truth_is_known(audit: Audit) -> bool:
    return any(row.get("accuracy") is not None for row in audit.domains.values())


def _kept_share(row: Counts) -> float | None:
    images = row.get("images")
    return 100 * (row.get("kept") or 0) / images if images else None


def _cycles(run: Run, title: str, kind: str, value: Callable[[Counts], float | None], y: str) -> Figure:
    """A curve per domain over the cycles; domains of which nothing is known are left out."""
    known = {
        (name, audit.round): value(row)
        for audit in run.audits
        if audit.kind == kind
        for name, row in audit.domains.items()
    }
    return _by_domain(run, title, known, y)


def _by_domain(run: Run, title: str, known: dict[tuple[str, int], float | None], y: str) -> Figure:
    rounds = sorted({cycle for (_, cycle), value in known.items() if value is not None})
    names = dict.fromkeys(name for (name, _), value in known.items() if value is not None)
    series = {name: [known.get((name, cycle)) for cycle in rounds] for name in names}
    return line(
        title, [f"cycle {cycle}" for cycle in rounds], series, x="cycle", y=y, bounds=PERCENT, least=_least(PERCENT)
    )


def _agreement(run: Run) -> Figure:
    known: dict[tuple[str, int], float | None] = {}
    for (kind, cycle, name), labels in run.labels.items():
        if len(labels.votes) > 1 and len(labels.y):
            known[f"{name}: {KINDS.get(kind, kind)}", cycle] = 100 * float(labels.agreed.mean())
    return _by_domain(run, "Networks that agree on the class", known, "percent of the images")
