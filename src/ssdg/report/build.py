"""From folders to the data of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .curves import curves
from .run import Run, read_run
from .summary import summarize

View = dict[str, Any]


def build(folders: Sequence[Path]) -> View:
    """All that the page of these folders shows."""
    runs = [read_run(folder) for folder in folders]
    views = [view_of(run) for run in runs]
    title = views[0]["summary"]["title"] if len(views) == 1 else f"{len(views)} runs"
    heading = "Report of a run" if len(views) == 1 else "Report of " + title
    return {"title": title, "heading": heading, "live": False, "runs": views, "compare": None}


def view_of(run: Run) -> View:
    """One run."""
    return {"name": str(run.name), "summary": summarize(run), "curves": curves(run)}
