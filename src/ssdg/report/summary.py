"""The head of a run's report: what was trained on what, what came out, how to repeat it."""

from __future__ import annotations

from typing import Any

from ..files import is_locked
from ..schema import Scores
from .run_folder import Run

NO_RESULT = "This run has not ended: numbers are those of its last epoch so far."


def summarize(run: Run) -> dict[str, Any]:
    """Title, facts and scores of a run."""
    task = run.task
    names = " and ".join(task.unlabeled) or "nothing"
    told = f"{run.config.get('method')}: labeled {task.labeled}, unlabeled {names}"
    goal = f", unseen {task.target}" if task.target else ""
    if run.config.get("setting") == "uda":
        goal = f", adapted to {task.target}"
    return {
        "title": told + goal,
        "state": state_of(run),
        "facts": facts(run),
        "scores": scores(run),
        "leak": run.result.hidden_labels if run.result else "",
        "command": run.start.command,
    }


def state_of(run: Run) -> str:
    """`done`, `running` or `stopped`."""
    if run.result:
        return "done"
    return "running" if is_locked(run.folder / ".lock") else "stopped"


def facts(run: Run) -> list[list[str]]:
    """What stands beside the scores, as pairs of a name and a value."""
    config, result = run.config, run.result
    found = [
        ["method", f"{config.get('method')}, preset {config.get('preset')}, seed {config.get('seed')}"],
        ["network", f"{config.get('backbone')}, weights {config.get('weights')}, {config.get('size')} px"],
        ["classes", f"{len(run.task.classes)}" if run.task.classes else "-"],
    ]
    counts = run.task.images.items()
    found += [["images", ", ".join(f"{name} {count:,}" for name, count in counts)]] if counts else []
    if result:
        rate = result.images_seen / result.seconds if result.seconds else 0.0
        found.append(["training", f"{duration(result.seconds)}, {result.images_seen:,} images, {rate:,.0f} images/s"])
        if result.profile and result.profile.total:
            shares = sorted(result.profile.seconds.items(), key=lambda pair: -pair[1])
            told = ", ".join(f"{name} {100 * value / result.profile.total:.1f} %" for name, value in shares)
            found.append(["time went to", told])
        found.append(["machine", ", ".join(f"{name} {value}" for name, value in result.machine.items())])
        found.append(["versions", ", ".join(f"{name} {value}" for name, value in result.versions.items())])
    found.append(["settings, images", f"{run.start.hash}, {run.start.fingerprint}"])
    return found


def scores(run: Run) -> dict[str, Any]:
    """Percent right of every network and of their mean: a row for each set and way of counting."""
    result, rows = run.result, []
    for title, one in (
        (f"unseen {run.task.target}", result and result.target),
        ("held-out labeled", result and result.validation),
    ):
        rows += _rows(title, one) if one else []
    if not result and run.product:
        last = run.product[-1]
        for title, values in ((f"unseen {run.task.target}", last.target), ("held-out labeled", last.validation)):
            rows += [[f"{title}, so far", *values]] if values else []
    width = max((len(row) - 2 for row in rows), default=0)
    columns = [*(f"network {place}" for place in range(1, width + 1)), "mean"]
    return {"columns": columns, "rows": rows, "note": "" if result else NO_RESULT}


def _rows(title: str, one: Scores) -> list[list[Any]]:
    averaged = f"mean of the last {one.epochs_averaged} epochs"
    return [[f"{title}, last epoch", *one.final.values()], [f"{title}, {averaged}", *one.last_five.values()]]


def duration(seconds: float) -> str:
    """`1 h 05 min`, `12 min 30 s`, `8 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
