"""The curves of a run as plain JSON for the page's script: accuracy, losses, schedules, pseudo-label quality."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..schema import DomainAudit, Epoch, LabelKind
from .run_folder import Run

Figure = dict[str, Any]
Values = Sequence[float | None]
DIGITS = 4  # of numbers in the page
PERCENT = (0.0, 100.0)
EPOCHS = "epoch (all cycles)"


def rounded(value: float | None) -> float | None:
    """Round for the page; a value that is not finite is not JSON and becomes a gap."""
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
    """Return a figure of curves over the positions `names`; a new cycle begins before each position in `marks`.

    The axis spans the data, at least `least`, and stays within `bounds`.
    """
    curves = [{"name": name, "values": [rounded(v) for v in values]} for name, values in series.items()]
    figure = {"kind": "line", "title": title, "names": list(names), "series": curves, "x": x, "y": y}
    return {**figure, "note": note, "marks": list(marks), "bounds": list(bounds) if bounds else None, "least": least}


def bars(
    title: str, names: Sequence[str], series: Mapping[str, Iterable[float]], *, x: str, y: str, note: str = ""
) -> Figure:
    """Return a figure of grouped bars over the positions `names`."""
    groups = [{"name": name, "values": [rounded(v) for v in values]} for name, values in series.items()]
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
    """Return a figure of counts by row and column; only nonzero cells are written."""
    cells = [[i, j, int(count)] for i, row in enumerate(counts) for j, count in enumerate(row) if count]
    figure = {"kind": "matrix", "title": title, "rows": list(rows), "columns": list(columns), "cells": cells}
    return {**figure, "x": x, "y": y, "note": note}


def sentence(text: str) -> Figure:
    """Return a sentence in place of a figure: why it cannot be drawn."""
    return {"kind": "sentence", "title": "", "note": text}


def curves(run: Run) -> list[Figure]:
    """Return all curves, and sentences for those that cannot be drawn."""
    return [*accuracy(run), *losses(run), *schedules(run), *label_curves(run)]


def accuracy(run: Run) -> list[Figure]:
    """Return the accuracy on the target and on held-out labeled images after every epoch."""
    rows = run.product
    figures = []
    for title, values, reference in (
        (f"Test accuracy (%) on the {target_role(run)} domain {run.task.target}", [r.target for r in rows], "target"),
        ("Accuracy (%) on held-out labeled images", [row.validation for row in rows], "validation"),
    ):
        if any(values):
            series = _networks(values)
            if (level := getattr(run.probe, reference, None)) is not None:
                series["probe"] = [level] * len(rows)
            figures.append(over_epochs(title, rows, series, "accuracy (%)", PERCENT))
    if not any(row.target for row in rows):
        figures.append(sentence("No target accuracy: the target has no labels, or the run has no target."))
    return figures


def target_role(run: Run) -> str:
    """Return `unseen`, or `target` in domain adaptation, which trains on its images."""
    return "target" if run.config.get("setting") == "uda" else "unseen"


def by_network(values: list[float]) -> list[float]:
    """Return the accuracies of all networks and their mean; of one network, which is its own mean, once."""
    return values[:1] if len(values) == 2 else values


def network_names(width: int) -> list[str]:
    """Return the names of `width` accuracies by network."""
    return [*(f"network {number}" for number in range(1, width)), "mean"] if width > 1 else ["network"]


def _networks(values: list[list[float]]) -> dict[str, Values]:
    rows = [by_network(row) for row in values]
    names = network_names(max(map(len, rows)))
    return {name: [row[i] if i < len(row) else None for row in rows] for i, name in enumerate(names)}


def over_epochs(
    title: str, rows: Sequence[Epoch], series: Mapping[str, Values], y: str, bounds: tuple[float, float] | None = None
) -> Figure:
    """Return curves over the epochs of all cycles."""
    names = [f"cycle {row.round}, epoch {row.epoch}" for row in rows]
    marks = [position for position, (a, b) in enumerate(pairwise(rows), start=1) if a.round != b.round]
    return line(title, names, series, x=EPOCHS, y=y, marks=marks, bounds=bounds, least=_least(bounds))


def _least(bounds: tuple[float, float] | None) -> float:
    """A tenth of the range, so that a small change looks small."""
    return (bounds[1] - bounds[0]) / 10 if bounds else 0.0


def losses(run: Run) -> list[Figure]:
    """Return the losses of every stage with more than one epoch; stages of a group share a figure."""
    figures: dict[tuple[str, str], list[Epoch]] = {}
    for row in run.epochs:
        group = run.stage(row).group
        figures.setdefault((group, "" if group else row.key), []).append(row)
    drawn = [_losses(run, group, rows) for (group, _), rows in figures.items() if any(row.losses for row in rows)]
    return [figure for figure in drawn if any(_num_known(curve["values"]) > 1 for curve in figure["series"])]


def _num_known(values: Values) -> int:
    return sum(value is not None for value in values)


def _losses(run: Run, group: str, rows: Sequence[Epoch]) -> Figure:
    """Return the losses of a group's stages, with a position for each epoch that any of them has, or of one stage."""
    positions = {(row.round, row.epoch): row for row in rows}
    values = {(row.key, row.round, row.epoch): row.losses for row in rows}
    keys = {row.key: _curve_title(run, row) for row in rows}
    names = dict.fromkeys(name for row in rows for name in row.losses)
    series = {
        f"{curve}: {name}" if group else name: [values.get((key, *p), {}).get(name) for p in positions]
        for key, curve in keys.items()
        for name in names
    }
    title = f"Losses: {group or run.stage(rows[0]).title or rows[0].key}"
    return over_epochs(title, list(positions.values()), series, "loss")


def _curve_title(run: Run, row: Epoch) -> str:
    """Return the domain that a stage's key ends with, or the stage's title."""
    domain = row.key.partition("/")[2]
    stage = run.stage(row)
    return domain if domain in run.task.unlabeled else stage.title or stage.key


def schedules(run: Run) -> list[Figure]:
    """Return the quantities that follow from the settings, for every stage that has some."""
    stages: dict[str, list[Epoch]] = {}
    for row in run.epochs:
        if run.stage(row).schedules:
            stages.setdefault(row.key, []).append(row)
    figures = []
    for rows in stages.values():
        names = dict.fromkeys(name for row in rows for name in run.stage(row).schedules)
        series = {name: [_at(run.stage(row).schedules.get(name, []), row.epoch) for row in rows] for name in names}
        figures.append(over_epochs(f"Schedule: {run.stage(rows[0]).title or rows[0].key}", rows, series, "value"))
    return figures


def _at(schedule: Sequence[float], epoch: int) -> float | None:
    return schedule[epoch - 1] if 0 < epoch <= len(schedule) else None


def label_curves(run: Run) -> list[Figure]:
    """Return pseudo-label accuracy, agreement, and size and accuracy of clean sets, per cycle and domain."""
    if not run.audits:
        return [sentence("No pseudo-labels: the method does not use them, or has not assigned any yet.")]
    figures = [
        _audited(run, "Pseudo-label accuracy", "pseudo-labels", lambda row: row.accuracy, "accuracy (%)"),
        _audited(run, "Clean set: selected images", "clean-set", _kept_share, "selected (%)"),
        _audited(run, "Clean set: label accuracy", "clean-set", lambda row: row.kept_accuracy, "accuracy (%)"),
        _agreement(run),
    ]
    figures = [figure for figure in figures if figure["series"]]
    if not any(row.accuracy is not None for audit in run.audits for row in audit.domains.values()):
        text = "Label accuracy is not shown: the true classes of the unlabeled domains are not known."
        figures.append(sentence(text))
    return figures


def _kept_share(row: DomainAudit) -> float | None:
    return 100 * row.kept / row.images if row.images else None


def _audited(run: Run, title: str, kind: LabelKind, value: Callable[[DomainAudit], float | None], y: str) -> Figure:
    """Return a curve per domain over the labelings of a kind."""
    rows = run.audit_rows(kind, "images")
    keys = [run.lineage(kind, row.title, row.domain) for row in rows]
    names = _lineage_names(zip(keys, (row.title for row in rows), strict=True))
    points = [Point(names[key], row.round, row.title, value(row.counts)) for key, row in zip(keys, rows, strict=True)]
    return _over_labelings(title, points, y)


def _agreement(run: Run) -> Figure:
    keys = [(labels.kind, *run.lineage(labels.kind, labels.title, labels.domain)) for labels in run.labels]
    names = _lineage_names(zip(keys, (labels.title for labels in run.labels), strict=True))
    points = [
        Point(names[key], labels.round, labels.title, labels.agreement)
        for key, labels in zip(keys, run.labels, strict=True)
    ]
    return _over_labelings("Agreement of networks and views", points, "agreement (%)")


class Point(NamedTuple):
    """One labeling on a curve."""

    curve: str
    cycle: int
    title: str
    value: float | None


def _lineage_names(titled: Iterable[tuple[tuple[str, ...], str]]) -> dict[tuple[str, ...], str]:
    """Return the name of every lineage: its domain, with its last title if the domain has several."""
    titles = dict(titled)
    counts = Counter(domain for *_, domain in titles)
    return {key: f"{key[-1]}: {title}" if counts[key[-1]] > 1 else key[-1] for key, title in titles.items()}


def _over_labelings(title: str, points: Iterable[Point], y: str) -> Figure:
    """Return a curve per name over the cycles, or over their labelings if a cycle has several in a row."""
    known: dict[tuple[int, int], dict[str, Point]] = {}  # by cycle and number in it
    numbers: Counter[tuple[str, int]] = Counter()
    for point in points:
        if point.value is not None:
            numbers[point.curve, point.cycle] += 1
            known.setdefault((point.cycle, numbers[point.curve, point.cycle]), {})[point.curve] = point
    positions = sorted(known)
    curves = dict.fromkeys(curve for at in known.values() for curve in at)
    series = {curve: [at[curve].value if curve in (at := known[p]) else None for p in positions] for curve in curves}
    is_split = any(number > 1 for _, number in positions)
    ticks = [f"cycle {p[0]}{_titles_at(known[p].values()) if is_split else ''}" for p in positions]
    x = "labeling (all cycles)" if is_split else "cycle"
    return line(title, ticks, series, x=x, y=y, bounds=PERCENT, least=_least(PERCENT))


def _titles_at(points: Iterable[Point]) -> str:
    return ", " + " / ".join(dict.fromkeys(point.title for point in points))
