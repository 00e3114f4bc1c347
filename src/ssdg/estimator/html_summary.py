"""HTML summary of an estimator for notebooks; every value in it is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from ..artifact.card import Training
from ..errors import one_line, truncate

if TYPE_CHECKING:
    from .estimator import SSDG

MAX_CLASSES = 8  # that are listed
MAX_LABEL = 20  # characters of a class
MAX_TEXT = 200
# Inline, because notebooks keep <style> for the whole page; without colors, because their themes are light or dark.
BOX = "display:inline-block;border:1px solid;border-color:color-mix(in srgb,currentColor 30%,transparent);"
BOX += "border-radius:4px;padding:6px 10px;font-size:13px;line-height:1.4;max-width:100%"
CELL = "color:inherit;text-align:left;vertical-align:top;padding:1px 14px 1px 0;border:0;background:none;"
CELL += "overflow-wrap:anywhere"
TABLE = "border:0;margin:2px 0 0;border-collapse:collapse;color:inherit;font-size:inherit"


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
    return f'<div style="{BOX}">{title}<table style="{TABLE}">{cells}</table></div>'


def parameter_rows(estimator: SSDG) -> list[tuple[str, Any]]:
    """Return the method and the preset, and the other settings of the next fit."""
    rows: list[tuple[str, Any]] = [("Method", estimator.method), ("Preset", estimator.preset)]
    if estimator.settings:
        rows.append(("Settings", estimator.settings))
    if estimator.out is not None:
        rows.append(("Run", estimator.out))
    return rows


def fitted_rows(estimator: SSDG) -> list[tuple[str, Any]]:
    """Return what was trained, its accuracy and its folder."""
    training = estimator._training
    temporary = getattr(estimator, "_temporary", None)
    is_temporary = temporary is not None and estimator.run_.is_relative_to(temporary.absolute())
    return [
        ("Method", training.method if training else estimator.method),
        ("Preset", training.preset if training else estimator.preset),
        ("Classes", list_classes(estimator.classes_.tolist())),
        *(accuracy_rows(training) if training else ()),
        ("Run (temporary)" if is_temporary else "Run", estimator.run_),
    ]


def accuracy_rows(training: Training) -> Iterator[tuple[str, str]]:
    """Yield the accuracy on held-out images and on a labeled target, if the run had these."""
    accuracy = training.accuracy
    if "mean" in accuracy.get("validation", {}):
        yield "Held-out accuracy", f"{accuracy['validation']['mean']:.1f} % on {training.held_out:,} labeled images"
    if "mean" in accuracy.get("target", {}):
        yield "Target accuracy", f"{accuracy['target']['mean']:.1f} %"


def list_classes(labels: Iterable[Any]) -> str:
    """Return the number of classes and the first labels."""
    names = [truncate(str(label), MAX_LABEL) for label in labels]
    more = ", …" if len(names) > MAX_CLASSES else ""
    return f"{len(names):,} ({', '.join(names[:MAX_CLASSES])}{more})"


def _text(value: object) -> str:
    return escape(one_line(str(value), MAX_TEXT))
