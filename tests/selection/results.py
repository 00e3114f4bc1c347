"""Made-up run folders: a `result.json` each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_run(
    folder: Path,
    *,
    validation: float | None = None,
    target: float | None = None,
    unsupervised: dict[str, float | None] | None = None,
    epochs: list[dict[str, Any]] | None = None,
    **task: Any,
) -> Path:
    """A finished run with these scores."""
    about: dict[str, Any] = {
        "setting": "ssdg",
        "labeled": "photo",
        "unlabeled": ["sketch", "neon"],
        "target": "night",
        "classes": ["bar", "disc"],
        "images": {"photo": 40, "sketch": 20, "neon": 20, "validation": 10, "target": 30},
    }
    result: dict[str, Any] = {"method": "mcd", "seed": 0, "task": {**about, **task}, "epochs": epochs or []}
    for name, value in (("validation", validation), ("target", target)):
        if value is not None:
            result[name] = {
                "final": {"network_1": 0.0, "mean": value},
                "last_five": {"mean": 1.0},
                "epochs_averaged": 1,
            }
    if unsupervised is not None:
        result["unsupervised"] = unsupervised
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return folder


def write_suite(folder: Path, cells: list[tuple[str, int]]) -> Path:
    """A benchmark of one task; its cells (row, seed) have no result yet."""
    cell_records = [
        {"id": f"{row}{seed}", "row": row, "task": "t", "seed": seed, "config": {}} for row, seed in cells
    ]
    rows = [{"name": name, "family": "DA"} for name in dict.fromkeys(row for row, _ in cells)]
    head = {"format": 1, "name": "made-up", "data": "world", "preset": "quick", "tasks": ["t"], "seeds": [0]}
    folder.mkdir()
    (folder / "suite.json").write_text(json.dumps({**head, "rows": rows, "cells": cell_records}), encoding="utf-8")
    return folder
