"""The command `ssdg methods`, and the index of the built-in methods that needs no torch.

`python -m ssdg.cli.methods` writes the index again after a method or a setting has changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import unknown

INDEX = Path(__file__).with_name("method_index.json")


@dataclass(frozen=True)
class MethodIndex:
    """Names that a run may use, and a record for every built-in method, as `ssdg methods --json` prints it."""

    presets: list[str]
    run_settings: list[str]
    labelers: list[str]  # the methods that may come first in a pair A+B
    methods: list[dict[str, Any]]

    def settings_of(self, name: str) -> set[str]:
        """Return the names of a method's settings, or raise an error if it is unknown; `A+B` has those of B."""
        by_name = {record["name"]: record for record in self.methods}
        if name in by_name:
            return {*by_name[name]["settings"]}
        first, plus, second = name.partition("+")
        if not plus:
            raise unknown("method", name, sorted(by_name))
        if first not in self.labelers:
            raise unknown("labeling method", first, self.labelers)
        generalizing = sorted(other for other, record in by_name.items() if record["family"] == "DG")
        if second not in generalizing:
            raise unknown("DG method", second, generalizing)
        return {*by_name[second]["settings"], "labeler"}


@cache
def read_index() -> MethodIndex:
    """Read the index that ships with the package."""
    return MethodIndex(**json.loads(INDEX.read_text(encoding="utf-8")))


def make_index() -> MethodIndex:
    """Build the index from the registry; this imports torch."""
    from ..config import PRESETS, RUN_KEYS
    from ..methods import METHODS

    methods = sorted(METHODS.values(), key=lambda method: (method.family, method.name))
    labelers = sorted(m.name for m in methods if m.family == "DA" or m.joint_labeler is not None)
    records = [
        {
            "name": method.name,
            "family": method.family,
            "paper": method.paper,
            "needs": list(method.needs),
            "summary": method.summary,
            "settings": method.settings.model_validate({}).model_dump(mode="json"),
        }
        for method in methods
    ]
    return MethodIndex(list(PRESETS), list(RUN_KEYS), labelers, records)


def methods(*, plugin: Path | None = None, json_: bool = False) -> None:
    """List the available methods. Any DA method A and any DG method B compose to `A+B`.

    Parameters
    ----------
    plugin
        A Python file that registers custom methods.
    json_
        Print JSON: name, family, paper, needs, summary and settings of each method.
    """
    from rich.table import Table

    from ..terminal import Console

    index = read_index()
    if plugin is not None:
        from ..methods.plugins import load_plugin

        load_plugin(plugin)
        index = make_index()
    if json_:
        print(json.dumps(index.methods, indent=2))
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("method", "family", "needs", "summary", "paper"):
        table.add_column(column, overflow="fold")
    for m in index.methods:
        table.add_row(m["name"], m["family"], ", ".join(m["needs"]) or "-", m["summary"], m["paper"])
    Console().print(table)


if __name__ == "__main__":
    INDEX.write_text(json.dumps(vars(make_index()), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
