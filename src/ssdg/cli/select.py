"""`ssdg select`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..errors import UserError, one_line
from ..selection.candidates import SCORES, Group, Score, Skipped, by_run, by_task, read_runs
from ..selection.ranking import FEWEST, chosen_by, is_scored, judge, judge_group, ranks_of, too_few
from ..terminal import Console

TARGET_USED = "The target was used only to evaluate the scores; no rank and no selection depends on it."
TARGET_NOT_READ = "The target was not read."
UNITS: dict[Score, str] = {"validation": "%", "agreement": "%", "information": "nats", "density": "nats"}
DIGITS: dict[Score, int] = {"validation": 2, "agreement": 2, "information": 3, "density": 3}
MAX_REASON = 500  # characters
WIDTH = 120  # characters of a line in a file or a pipe


def select(
    *folders: Path,
    by: Literal["validation", "agreement", "information", "density"] = "validation",
    epochs: Annotated[bool, Parameter(negative=())] = False,
    blind: Annotated[bool, Parameter(negative=())] = False,
    json_: bool = False,
) -> int:
    """Rank runs by scores that need no target labels, and show how well each score would have selected.

    Runs are compared within a task: the same labeled, unlabeled and target domains, and the same classes. Folders
    that are not finished or damaged are listed with the reason. No rank depends on the target.

    Parameters
    ----------
    folders
        Run folders or benchmark folders.
    by
        The score to rank and select by.
    epochs
        Rank the epochs of each run instead of the runs.
    blind
        Do not read the target; omit the evaluation of the scores.
    json_
        Print JSON.
    """
    if not folders:
        raise UserError("no folder given; pass run folders, such as runs/*, or a benchmark folder")
    runs, skipped = read_runs(folders, blind=blind)
    groups = by_run(runs) if epochs else by_task(runs)
    if json_:
        print(json.dumps(as_json(groups, skipped, by, blind), indent=2, ensure_ascii=False, allow_nan=False))
        return 0
    show(groups, by, candidate="epoch" if epochs else "run", blind=blind)
    for folder in skipped:
        print(f"skipped: {one_line(folder.reason, MAX_REASON)}")
    return 0


def as_json(groups: Sequence[Group], skipped: Sequence[Skipped], by: Score, blind: bool) -> dict[str, Any]:
    """Return the contents of the tables; everything that depends on the target is under `judged`."""
    content: dict[str, Any] = {
        "by": by,
        "groups": [
            {
                "task": group.title,
                "chosen": [candidate.label for candidate in chosen_by(group, by)],
                "candidates": ranked_rows(group),
            }
            for group in groups
        ],
        "skipped": [{"folder": str(folder.folder), "reason": folder.reason} for folder in skipped],
        "judged": None,
        "note": TARGET_NOT_READ if blind else TARGET_USED,
    }
    if is_scored(groups):
        content["judged"] = {
            "scores": {score: asdict(verdict) for score, verdict in judge(groups).items()},
            "groups": [{s: asdict(j) if (j := judge_group(group, s)) else None for s in SCORES} for group in groups],
            "target": [{c.label: c.target for c in group.candidates} for group in groups],
        }
    return content


def ranked_rows(group: Group) -> list[dict[str, Any]]:
    """Return every candidate of a group with its scores and ranks."""
    ranks = {score: ranks_of(group, score) for score in SCORES}
    return [
        {
            "name": candidate.label,
            "folder": str(candidate.folder),
            "scores": dict(candidate.scores),
            "ranks": {score: ranks[score][index] for score in SCORES},
        }
        for index, candidate in enumerate(group.candidates)
    ]


def show(groups: Sequence[Group], by: Score, *, candidate: str, blind: bool) -> None:
    """Print ranks and selections, and how well each score would have selected; candidates are runs or epochs."""
    console = Console(highlight=False, width=None if Console().is_terminal else WIDTH)
    for group in groups:
        console.print(Text(group.title, "bold"))
        console.print(rank_table(group, by, candidate))
        console.print(Text(f"{describe_selection(group, by, candidate)}\n"))
    if blind:
        console.print(TARGET_NOT_READ)
        return
    if not is_scored(groups):
        console.print(f"No {candidate} has a scored target, so the scores cannot be evaluated.")
        return
    unit = "runs" if candidate == "epoch" else "tasks"
    console.print(Text(f"Target accuracy (%) of the {candidate} that each score selects, mean over {unit}", "bold"))
    console.print(verdict_table(groups, unit))
    if few := too_few(groups):
        titles = "; ".join(few[:3]) + (f"; {len(few) - 3} more" if len(few) > 3 else "")
        console.print(Text(f"No correlation (fewer than {FEWEST} {candidate}s with a scored target): {titles}"))
    console.print(TARGET_USED)


def rank_table(group: Group, by: Score, candidate: str) -> Table:
    """Build a table of the scores with ranks in parentheses, sorted by the score `by`."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    table.add_column(candidate, no_wrap=True)
    for score in SCORES:
        table.add_column(f"{score}\n{UNITS[score]}", justify="right", no_wrap=True)
    ranks = {score: ranks_of(group, score) for score in SCORES}
    for index in sorted(range(len(group.candidates)), key=lambda index: ranks[by][index] or math.inf):
        row = group.candidates[index]
        table.add_row(Text(row.label), *(_cell(score, row.scores[score], ranks[score][index]) for score in SCORES))
    return table


def describe_selection(group: Group, by: Score, candidate: str) -> str:
    """Return which candidates have the highest score, as a sentence."""
    names = [row.label for row in chosen_by(group, by)]
    if not names:
        return f"no {candidate} has the score {by}; use another --by"
    return f"best by {by}: {names[0]}" if len(names) == 1 else f"best by {by}, tied: {', '.join(names)}"


def verdict_table(groups: Sequence[Group], unit: str) -> Table:
    """Build the table that evaluates the scores; `scored` is the share of candidates that have the score."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    table.add_column("score", no_wrap=True)
    for name in (f"Spearman\n({unit})", "selected", "best", "mean", "regret", unit, "scored"):
        table.add_column(name, justify="right", no_wrap=True)
    for score, verdict in judge(groups).items():
        correlation = f"{verdict.correlation:.2f} ({verdict.correlated})" if verdict.correlation is not None else "-"
        numbers = [_fixed(value) for value in (verdict.picked, verdict.best, verdict.mean, verdict.regret)]
        table.add_row(score, correlation, *numbers, str(verdict.groups), f"{verdict.scored}/{verdict.of}")
    return table


def _cell(score: Score, value: float | None, rank: float | None) -> Text:
    if value is None or rank is None:
        return Text("-")
    text = f"{value:.{DIGITS[score]}f} ({rank:g})"
    return Text(text, "bold" if rank == 1 else "")


def _fixed(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
