"""The head of a run's report: task, scores, facts, and the command to reproduce the run."""

from __future__ import annotations

from typing import Any

from ..files import is_locked
from ..schema import ProbeScores, Scores
from .curves import by_network, network_names, target_role
from .run_folder import Run

NO_RESULT = "This run is not finished; the numbers are from its latest epoch."


def summarize(run: Run) -> dict[str, Any]:
    """Return title, facts and scores of a run."""
    task = run.task
    names = " and ".join(task.unlabeled) or "nothing"
    title = f"{run.config.get('method')}: labeled {task.labeled}, unlabeled {names}"
    goal = f", unseen {task.target}" if task.target else ""
    if run.config.get("setting") == "uda":
        goal = f", adapted to {task.target}"
    return {
        "title": title + goal,
        "state": state_of(run),
        "headline": headline(run),
        "facts": facts(run),
        "details": details(run),
        "scores": scores(run),
        "leak": run.result.hidden_labels if run.result else "",
        "command": run.file.command,
    }


def state_of(run: Run) -> str:
    """Return `done`, `running` or `stopped`."""
    if run.result:
        return "done"
    return "running" if is_locked(run.folder / ".lock") else "stopped"


def headline(run: Run) -> list[list[str]]:
    """Return the numbers to see first as pairs of a name and a value."""
    values = (
        (f"Test accuracy (%), {target_role(run)} {run.task.target}", run.accuracy("target")),
        ("Accuracy (%), held-out labeled", run.accuracy("validation")),
        ("Test accuracy (%), linear probe", run.probe.target if run.probe else None),
    )
    rows = [[name, f"{value:.2f}"] for name, value in values if value is not None]
    return rows + ([["Training time", duration(run.result.seconds)]] if run.result else [])


def facts(run: Run) -> list[list[str]]:
    """Return the facts next to the scores as pairs of a name and a value."""
    config, result = run.config, run.result
    rows = [
        ["method", f"{config.get('method')}, preset {config.get('preset')}, seed {config.get('seed')}"],
        ["network", f"{config.get('backbone')}, weights {config.get('weights')}, {config.get('size')} px"],
        ["classes", f"{len(run.task.classes)}" if run.task.classes else "-"],
    ]
    counts = run.task.images.items()
    rows += [["images", ", ".join(f"{name} {count:,}" for name, count in counts)]] if counts else []
    if result:
        rate = result.images_seen / result.seconds if result.seconds else 0.0
        rows.append(["training", f"{duration(result.seconds)}, {result.images_seen:,} images, {rate:,.0f} images/s"])
        if result.profile and result.profile.total:
            shares = sorted(result.profile.seconds.items(), key=lambda pair: -pair[1])
            text = ", ".join(f"{name} {100 * value / result.profile.total:.1f} %" for name, value in shares)
            rows.append(["time by phase", text])
    return rows


def details(run: Run) -> list[list[str]]:
    """Return where the run was computed and what identifies it, as pairs of a name and a value."""
    rows = [["hashes", f"settings {run.file.hash}, images {run.file.fingerprint}"]]
    if run.result is None:
        return rows
    machine = ", ".join(f"{name} {value}" for name, value in run.result.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in run.result.versions.items())
    return [["machine", machine], ["versions", versions], *rows]


def scores(run: Run) -> dict[str, Any]:
    """Return the accuracy (%) of every network and of their mean, by evaluation set and epochs."""
    result, rows = run.result, []
    target, held_out = f"{target_role(run)} {run.task.target}", "held-out labeled"
    if result:
        rows += _rows(target, result.target) + _rows(held_out, result.validation)
    elif run.product:
        last = run.product[-1]
        for title, values in ((target, last.target), (held_out, last.validation)):
            rows += [[f"{title}, latest epoch", *by_network(values)]] if values else []
    width = max((len(row) - 1 for row in rows), default=1)
    rows += _probe_rows(run.probe, target, held_out, width) if rows else []
    return {"columns": network_names(width), "rows": rows, "note": "" if result else NO_RESULT}


def _probe_rows(probe: ProbeScores | None, target: str, held_out: str, width: int) -> list[list[Any]]:
    """Return the accuracies of the probe in the last column, next to empty cells for the networks."""
    accuracies = ((target, probe.target), (held_out, probe.validation)) if probe else ()
    empty = [None] * (width - 1)
    return [[f"{title}, linear probe", *empty, value] for title, value in accuracies if value is not None]


def _rows(title: str, scores: Scores | None) -> list[list[Any]]:
    if scores is None:
        return []
    final, last_five = by_network([*scores.final.values()]), by_network([*scores.last_five.values()])
    rows = [[f"{title}, last epoch", *final]]
    averaged = [f"{title}, mean of the last {scores.epochs_averaged} epochs", *last_five]
    return [*rows, averaged] if scores.epochs_averaged > 1 else rows


def duration(seconds: float) -> str:
    """Format seconds as `1 h 05 min`, `12 min 30 s` or `8 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
