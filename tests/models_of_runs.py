"""Models of finished runs, and changes to their cards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[Path], object]


def card_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "model.json").read_text()))


def edit(**more: Any) -> Change:
    """Return a function that changes values in model.json; `a__b` is the key b inside a."""

    def change(folder: Path) -> None:
        card = card_of(folder)
        for name, value in more.items():
            outer, _, inner = name.partition("__")
            card[outer] = {**card[outer], inner: value} if inner else value
        (folder / "model.json").write_text(json.dumps(card))

    return change
