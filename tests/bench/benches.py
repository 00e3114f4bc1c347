"""Made-up benchmark folders: `suite.json` and the `result.json` of chosen cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Score = float | None
Row = Mapping[str, Any]  # name, family, paper, and settings under "config"


def write_bench(
    folder: Path,
    rows: Sequence[Row],
    tasks: Sequence[str],
    scores: Mapping[tuple[str, str, int], Score],
    *,
    table: str | None = None,
    audits: Mapping[tuple[str, str, int], list[dict[str, Any]]] | None = None,
    epochs_averaged: int = 5,
) -> Path:
    """A benchmark whose cells are the keys of `scores` (row, task, seed); a score of None is a cell not done.

    The last epoch is one point better than the mean of the last five.
    """
    cells = [
        {
            "id": f"{row}-{task}-{seed}".replace(">", "-"),
            "row": row,
            "task": task,
            "seed": seed,
            "config": {"method": row, "seed": seed, "target": task, **_row(rows, row).get("config", {})},
        }
        for row, task, seed in scores
    ]
    suite = {
        "format": 1,
        "name": "made-up",
        "table": table,
        "data": "/some/where/world",
        "preset": "quick",
        "rows": [{"name": r["name"], "family": r["family"], "paper": r.get("paper")} for r in rows],
        "tasks": list(tasks),
        "seeds": sorted({seed for _, _, seed in scores}),
        "cells": cells,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
    for cell, (key, score) in zip(cells, scores.items(), strict=True):
        if score is not None:
            labels = (audits or {}).get(key, [])
            write_result(folder / "cells" / str(cell["id"]), score, labels, epochs_averaged, cell["seed"])
    return folder


def write_result(folder: Path, score: float, labels: list[dict[str, Any]], epochs_averaged: int, seed: int) -> None:
    """A finished cell."""
    target = {
        "final": {"network_1": score + 1, "mean": score + 1},
        "last_five": {"network_1": score, "mean": score},
        "epochs_averaged": epochs_averaged,
    }
    folder.mkdir(parents=True, exist_ok=True)
    task = {"labeled": "photo", "unlabeled": ["art"], "target": "night", "classes": ["dog", "house"]}
    result = {"method": "eid", "seed": seed, "task": task, "target": target, "pseudo_labels": labels}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def _row(rows: Sequence[Row], name: str) -> Row:
    return next(row for row in rows if row["name"] == name)
