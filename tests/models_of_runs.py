"""Models of finished runs, and changes of what they tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[Path], object]


def card_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "model.json").read_text()))


def edit(**more: Any) -> Change:
    """Other values in model.json; of `a__b` the inner one."""

    def change(folder: Path) -> None:
        told = card_of(folder)
        for name, value in more.items():
            outer, _, inner = name.partition("__")
            told[outer] = {**told[outer], inner: value} if inner else value
        (folder / "model.json").write_text(json.dumps(told))

    return change
