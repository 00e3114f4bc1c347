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

    from ..selection.runs import Group

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
    from ..selection.runs import by_run, by_task, read_runs

    if not folders:
        raise UserError("no folder was given; name run folders, such as runs/*, or a benchmark folder")
    runs = read_runs(folders, blind=blind)
    groups = by_run(runs) if epochs else by_task(runs)
    if json_:
        print(json.dumps(as_json(groups, by, blind), indent=2, ensure_ascii=False, allow_nan=False))
        return 0
    from .select_display import show

    show(groups, by, what="epoch" if epochs else "run", blind=blind)
    return 0


def as_json(groups: Sequence[Group], by: Any, blind: bool) -> dict[str, Any]:
    """All that the tables show; what is known of the target stands under `judged` alone."""
    from ..selection.judge import chosen_by, is_scored, judge, judge_group
    from ..selection.runs import SCORES

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
    from ..selection.judge import ranks_of
    from ..selection.runs import SCORES

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
