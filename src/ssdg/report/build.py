"""From folders to the data of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .compare import compare_benchmark, compare_runs
from .curves import curves
from .findings import findings
from .observatory import observatory
from .openset import open_set
from .pictures import pictures
from .run import Run, read_run
from .samples import Album, sheets_of
from .summary import summarize

View = dict[str, Any]


def build(folders: Sequence[Path]) -> View:
    """All that the page of these folders shows."""
    benches = [folder for folder in folders if (folder / "suite.json").exists()]
    runs = named([read_run(folder) for folder in folders if folder not in benches])
    compared = [compare_benchmark(folder) for folder in benches] + ([compare_runs(runs)] if len(runs) > 1 else [])
    album = Album()
    views = [view_of(run, album) for run in runs]
    title = title_of(benches, views)
    return {"title": title, "live": False, "runs": views, "compared": compared, "sheets": album.sheets}


def title_of(benches: Sequence[Path], views: Sequence[View]) -> str:
    """For the window and the top of the page."""
    if len(views) == 1 and not benches:
        return f"Report of run {views[0]['name']}"
    parts = [f"benchmark {folder.resolve().name}" for folder in benches] + ([f"{len(views)} runs"] if views else [])
    return f"Report of {', '.join(parts)}"


def named(runs: list[Run]) -> list[Run]:
    """Runs by their folder's name, or by its path where two would have the same."""
    names = [run.folder.resolve().name for run in runs]
    unique = len(set(names)) == len(names)
    return [replace(run, name=name if unique else str(run.folder)) for run, name in zip(runs, names, strict=True)]


def view_of(run: Run, album: Album) -> View:
    """One run."""
    sheets, left_out = sheets_of(run, album)
    index = run.samples
    return {
        "name": run.name,
        "summary": summarize(run),
        "findings": findings(run),
        "curves": curves(run),
        "tile": index.tile if index else 0,
        "columns": index.columns if index else 0,
        "sheets": sheets,
        "labels": observatory(run, sheets, left_out),
        "pictures": pictures(run),
        "open": open_set(run),
    }
