"""The command `ssdg methods`, and the index of the built-in methods that needs no torch.

`python -m ssdg.cli.methods` writes the index again after a method or a setting has changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import unknown

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 80  # columns
RECOMMENDED = {
    "eid": "the default: with --preset best (the default, too), randomized views, self-labels, pretrained features",
    "self-training": "fast, trains no network: a classifier of pretrained features that adds its most confident "
    "pseudo-labels",
    "source-only": "the baseline to compare with: cross-entropy on the labeled domain only",
}
FAMILIES = {  # in the order of the list
    "ours": "Evolving intermediate domains",
    "source": "Labeled domain only",
    "frozen": "Frozen pretrained backbone",
    "DA": "Domain adaptation (DA): labeled and unlabeled images",
    "DG": "Domain generalization (DG): labeled images only",
    "DA+DG": "Pairs A+B: A labels the unlabeled domains, B trains on the result",
    "SSL": "Semi-supervised learning: labeled and unlabeled images",
}
FOOTER = "Any DA method A and any DG method B compose to A+B.\nPapers and settings: ssdg methods --json"
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
    index = read_index()
    if plugin is not None:
        from ..methods.plugins import load_plugin

        load_plugin(plugin)
        index = make_index()
    if json_:
        print(json.dumps(index.methods, indent=2))
        return
    show(index.methods)


def show(records: list[dict[str, Any]]) -> None:
    """Print the recommended methods, then all others by family, in at most 80 columns."""
    from rich.text import Text

    from ..terminal import Console

    console = Console(highlight=False)
    console.width = min(WIDTH, console.width)
    width = max(len(record["name"]) for record in records)
    console.print(Text("Recommended", "bold"))
    console.print(method_table(list(RECOMMENDED.items()), width))
    others = {record["family"]: record["family"] for record in records}  # a plugin's own
    for family, title in {**others, **FAMILIES}.items():
        rows = [(r["name"], r["summary"]) for r in records if r["family"] == family and r["name"] not in RECOMMENDED]
        if rows:
            console.print(Text(f"\n{title}", "bold"))
            console.print(method_table(rows, width))
    console.print(Text(f"\n{FOOTER}"))


def method_table(rows: list[tuple[str, str]], width: int) -> Table:
    """Build a table of names and summaries without borders."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
    table.add_column(width=width, no_wrap=True)
    table.add_column()
    for name, summary in rows:
        table.add_row(Text(name), Text(summary))
    return table


if __name__ == "__main__":
    INDEX.write_text(json.dumps(vars(make_index()), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
