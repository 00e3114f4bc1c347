"""What a figure of the page is made of: plain JSON that the page's own script draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
