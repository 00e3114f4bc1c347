"""Runs of which one thing is changed by hand, and what the report finds in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssdg.report.findings import findings
from ssdg.report.run_folder import Labels, Run
from ssdg.schema import Audit, Epoch, LabelKind


def numbers(run: Run) -> dict[str, str]:
    """Return the numbers of all findings by their text."""
    return {finding["text"]: finding["number"] for finding in findings(run)}


def advice_of(run: Run) -> str:
    """Return the advice of the only finding."""
    (finding,) = findings(run)
    return finding["advice"]


def audit(kind: LabelKind, cycle: int, domain: str, **counts: float) -> Audit:
    values = {"key": "any", "round": cycle, "kind": kind, "title": "any"}
    return Audit.model_validate({**values, "domains": {domain: {"images": 100, "kept": 50, **counts}}})


def labels(
    kind: LabelKind,
    cycle: int,
    domain: str,
    y: list[int],
    votes: list[list[int]] | None = None,
    keep: list[bool] | None = None,
) -> tuple[Labels]:
    arrays = (
        np.array(y),
        np.array(keep or [True] * len(y)),
        np.full(len(y), 0.9, np.float32),
        np.array(votes or [y, y]),
    )
    return (Labels(kind, "any", "any", cycle, domain, *arrays),)


def epochs(*losses: float, **more: Any) -> tuple[Epoch, ...]:
    return tuple(Epoch(key="dcg", round=1, epoch=n, **{"loss": loss, **more}) for n, loss in enumerate(losses, 1))
