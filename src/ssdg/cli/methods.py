"""The command `ssdg methods`."""

from __future__ import annotations

import json
from pathlib import Path


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

    from ..methods import METHODS
    from ..methods.plugins import load_plugin
    from ..terminal import Console

    if plugin is not None:
        load_plugin(plugin)
    rows = sorted(METHODS.values(), key=lambda m: (m.family, m.name))
    if json_:
        records = [
            {
                "name": m.name,
                "family": m.family,
                "paper": m.paper,
                "needs": list(m.needs),
                "summary": m.summary,
                "settings": m.settings.model_validate({}).model_dump(mode="json"),
            }
            for m in rows
        ]
        print(json.dumps(records, indent=2))
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("method", "family", "needs", "summary", "paper"):
        table.add_column(column, overflow="fold")
    for m in rows:
        table.add_row(m.name, m.family, ", ".join(m.needs) or "-", m.summary, m.paper)
    Console().print(table)
