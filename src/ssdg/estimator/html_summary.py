"""HTML summary of an estimator for notebooks; every value in it is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import one_line, truncate

if TYPE_CHECKING:
    from .estimator import SSDG

MAX_CLASSES = 8  # that are listed
MAX_LABEL = 30  # characters of a class
MAX_TEXT = 200
# Inline, because notebooks keep <style> for the whole page; without colors, because their themes are light or dark.
BOX = "display:inline-block;border:1px solid;border-color:color-mix(in srgb,currentColor 30%,transparent);"
BOX += "border-radius:4px;padding:6px 10px;font-size:13px;line-height:1.4;max-width:100%"
CELL = "text-align:left;vertical-align:top;padding:1px 14px 1px 0;border:0;background:none;overflow-wrap:anywhere"


def format_summary(estimator: SSDG) -> str:
    """Return what an estimator is and, if fitted, how accurate it is and where its run is."""
    is_fitted = estimator.__sklearn_is_fitted__()
    status = "fitted" if is_fitted else "not fitted"
    rows = fitted_rows(estimator) if is_fitted else parameter_rows(estimator)
    cells = "".join(
        f'<tr style="background:none"><th style="{CELL};font-weight:normal;opacity:.7">{_text(name)}</th>'
        f'<td style="{CELL}">{_text(value)}</td></tr>'
        for name, value in rows
    )
    title = f"<strong>{_text(type(estimator).__name__)}</strong> <em>({status})</em>"
    return f'<div style="{BOX}">{title}<table style="border:0;margin:2px 0 0">{cells}</table></div>'


def parameter_rows(estimator: SSDG) -> list[tuple[str, Any]]:
    """Return the method and the preset, and the other settings of the next fit."""
    rows = [("Method", estimator.method), ("Preset", estimator.preset)]
    if estimator.settings:
        rows.append(("Settings", estimator.settings))
    if estimator.out is not None:
        rows.append(("Run", estimator.out))
    return rows


def fitted_rows(estimator: SSDG) -> list[tuple[str, Any]]:
    """Return what was trained, its accuracy and its folder; a model of an early version has no record of training."""
    training = estimator._training
    rows = [
        ("Method", training.method if training else estimator.method),
        ("Preset", training.preset if training else estimator.preset),
        ("Classes", list_classes(estimator.classes_.tolist())),
    ]
    if training is None:
        return [*rows, ("Run", estimator.run_)]
    accuracy = {
        kind: f"{percents['mean']:.1f} %" for kind, percents in training.accuracy.items() if "mean" in percents
    }
    if "validation" in accuracy:
        rows.append(("Held-out accuracy", f"{accuracy['validation']} of {training.held_out:,} labeled images"))
    if "target" in accuracy:
        rows.append(("Target accuracy", accuracy["target"]))
    return [*rows, ("Run", estimator.run_)]


def list_classes(labels: Iterable[Any]) -> str:
    """Return the number of classes and the first labels."""
    names = [truncate(str(label), MAX_LABEL) for label in labels]
    more = ", …" if len(names) > MAX_CLASSES else ""
    return f"{len(names):,} ({', '.join(names[:MAX_CLASSES])}{more})"


def _text(value: object) -> str:
    return escape(one_line(str(value), MAX_TEXT))
