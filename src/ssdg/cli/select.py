"""`ssdg select`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..selection.candidates import Group
import math
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..selection.candidates import SCORES, Group, Score
from ..selection.ranking import FEWEST, chosen_by, is_scored, judge, ranks_of, too_few

USED = "The target was read to judge the scores only: no rank and no choice depends on it."
BLIND = "The target was not read."


def select(
    *folders: Path,
    by: Literal["validation", "agreement", "information", "density"] = "validation",
    epochs: Annotated[bool, Parameter(negative=())] = False,
    blind: Annotated[bool, Parameter(negative=())] = False,
    json_: bool = False,
) -> int:
    """Rank runs by scores that need no label of the target, and tell how well each score would have chosen.

    Runs are compared within a task: the same labeled, unlabeled and target domain. Nothing is ranked by the target.

    Parameters
    ----------
    folders
        Run folders, or folders that `ssdg bench` filled.
    by
        The score that orders the table and chooses.
    epochs
        Rank the epochs of each run instead of the runs.
    blind
        Do not read the target at all: no second table.
    json_
        Print JSON.
    """
    from ..selection.candidates import by_run, by_task, read_runs

    if not folders:
        raise UserError("no folder was given; name run folders, such as runs/*, or a benchmark folder")
    runs = read_runs(folders, blind=blind)
    groups = by_run(runs) if epochs else by_task(runs)
    if json_:
        print(json.dumps(as_json(groups, by, blind), indent=2, ensure_ascii=False, allow_nan=False))
        return 0
    show(groups, by, what="epoch" if epochs else "run", blind=blind)
    return 0


def as_json(groups: Sequence[Group], by: Any, blind: bool) -> dict[str, Any]:
    """All that the tables show; what is known of the target stands under `judged` alone."""
    from ..selection.candidates import SCORES
    from ..selection.ranking import chosen_by, is_scored, judge, judge_group

    told: dict[str, Any] = {"by": by, "groups": [], "judged": None, "note": BLIND if blind else USED}
    for group in groups:
        rows = ranked_rows(group)
        chosen = [candidate.label for candidate in chosen_by(group, by)]
        told["groups"].append({"task": group.title, "chosen": chosen, "candidates": rows})
    if is_scored(groups):
        each = [{s: asdict(j) if (j := judge_group(group, s)) else None for s in SCORES} for group in groups]
        targets = [{c.label: c.target for c in group.candidates} for group in groups]
        scores = {score: asdict(verdict) for score, verdict in judge(groups).items()}
        told["judged"] = {"scores": scores, "groups": each, "target": targets}
    return told


def ranked_rows(group: Group) -> list[dict[str, Any]]:
    """Every candidate of a group with its scores and its ranks."""
    from ..selection.candidates import SCORES
    from ..selection.ranking import ranks_of

    ranks = {score: ranks_of(group, score) for score in SCORES}
    return [
        {
            "name": candidate.label,
            "folder": str(candidate.folder),
            "scores": dict(candidate.scores),
            "ranks": {score: ranks[score][place] for score in SCORES},
        }
        for place, candidate in enumerate(group.candidates)
    ]


UNITS: dict[Score, str] = {"validation": "%", "agreement": "%", "information": "nats", "density": "nats"}
WIDE = 120  # characters of a line in a file or a pipe
DIGITS: dict[Score, int] = {"validation": 2, "agreement": 2, "information": 3, "density": 3}


def show(groups: Sequence[Group], by: Score, *, what: str, blind: bool) -> None:
    """The ranks, the choice, and how well each score would have chosen."""
    console = Console(highlight=False, width=None if Console().is_terminal else WIDE)
    for group in groups:
        console.print(Text(group.title, "bold"))
        console.print(rank_table(group, by, what))
        console.print(Text(f"{choice(group, by, what)}\n"))
    if blind or not is_scored(groups):
        console.print(BLIND if blind else f"No {what} has a scored target: how well a score chooses is not known.")
        return
    unit = "runs" if what == "epoch" else "tasks"
    told = f"How well each score would have chosen, percent right on the target, mean over {unit}"
    console.print(Text(told, "bold"))
    console.print(verdict_table(groups, unit))
    if few := too_few(groups):
        named = "; ".join(few[:3]) + (f"; {len(few) - 3} more" if len(few) > 3 else "")
        console.print(Text(f"Fewer than {FEWEST} {what}s with a scored target, so no correlation: {named}"))
    console.print(USED)


def rank_table(group: Group, by: Score, what: str) -> Table:
    """Every score with its rank in brackets, the best of `by` first."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    table.add_column(what, no_wrap=True)
    for score in SCORES:
        table.add_column(f"{score}\n{UNITS[score]}", justify="right", no_wrap=True)
    ranks = {score: ranks_of(group, score) for score in SCORES}
    places = sorted(range(len(group.candidates)), key=lambda place: ranks[by][place] or math.inf)
    for place in places:
        candidate = group.candidates[place]
        cells = [_cell(score, candidate.scores[score], ranks[score][place]) for score in SCORES]
        table.add_row(Text(candidate.label), *cells)
    return table


def choice(group: Group, by: Score, what: str) -> str:
    """Who is chosen, in words."""
    names = [candidate.label for candidate in chosen_by(group, by)]
    if not names:
        return f"no {what} has a score of {by}; choose with another --by"
    return f"best by {by}: {names[0]}" if len(names) == 1 else f"best by {by}, equal: {', '.join(names)}"


def verdict_table(groups: Sequence[Group], unit: str) -> Table:
    """The scores against the target; `scored`: candidates that have the score, of those with a scored target."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    table.add_column("score", no_wrap=True)
    for name in (f"Spearman\n({unit})", "choice", "best", "mean", "regret", unit, "scored"):
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
