"""What a finding is, and the settings that may remove its cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .run_folder import Run

WARM_EPOCHS = 10  # of preset quick


@dataclass(frozen=True)
class Finding:
    """One sentence, the numbers behind it, and what to try."""

    level: Literal["warning", "hint"]
    text: str
    number: str
    advice: str


@dataclass(frozen=True)
class Remedy:
    """A change of one setting, such as `labeler.epochs`; `change` returns None where there is nothing to change."""

    setting: str
    text: str
    change: Callable[[Any], Any]
    applies: Callable[[Run], bool] = lambda run: True  # whether the run uses the setting


def doubled(value: Any) -> Any:
    """Return twice a number; None for anything else."""
    return 2 * value if _is_number(value) and value > 0 else None


def halved(value: Any) -> Any:
    """Return half of a number; None for anything else."""
    return value / 2 if _is_number(value) and value > 0 else None


def one_less(value: Any) -> Any:
    """Return a count less one, or None if that is zero."""
    return value - 1 if _is_number(value) and value > 1 else None


def fixed(choice: str) -> Callable[[Any], Any]:
    """Return a function that replaces every other value by a choice."""
    return lambda value: choice if value != choice else None


def _longer_start(value: Any) -> Any:
    return max(WARM_EPOCHS, 2 * value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_clean_sets(run: Run) -> bool:
    return bool(run.titles("clean-set"))


def _has_no_clean_sets(run: Run) -> bool:
    return not _has_clean_sets(run)


def _labelers_take_steps(run: Run) -> bool:
    """Whether more epochs change the labelers: a regression is solved to its optimum in one."""
    labeler = run.config.get("labeler")
    return not (isinstance(labeler, Mapping) and "max_iter" in labeler)


def _starts_from_scratch(run: Run) -> bool:
    return bool(run.config.get("weights", "none") == "none")


SELECT_FEWER = (
    Remedy("clean_rate", "select fewer images", halved, _has_clean_sets),
    Remedy("last_share", "select fewer images", halved, _has_no_clean_sets),
)
SELECT_EVENLY = Remedy("clean_choice", "select the same number of every class", fixed("balanced"), _has_clean_sets)
LONGER_LABELERS = Remedy("labeler.epochs", "train the labelers longer", doubled, _labelers_take_steps)
LONGER_START = Remedy("warm_epochs", "train longer before the first cycle", _longer_start, _starts_from_scratch)
FEWER_CYCLES = Remedy("cycles", "use fewer cycles", one_less)
MORE_EPOCHS = Remedy("epochs", "train longer", doubled)
MORE_ITERATIONS = Remedy("iterations", "use longer epochs", doubled)
LOWER_RATE = Remedy("lr", "lower the learning rate", halved)
PROBE_HEAD = Remedy("head", "start from the probe", fixed("probe"))
OPEN_LABELER = Remedy("apl", "use a labeler that rejects them", fixed("osbp"))


def suggest(run: Run, *remedies: Remedy) -> str:
    """Join the remedies whose setting the run has and can change, each with its new value."""
    changes = [(remedy, _changed(run.config, remedy)) for remedy in remedies if remedy.applies(run)]
    known = [f"{remedy.text} ({remedy.setting}={_text(value)})" for remedy, value in changes if value is not None]
    if not known:
        return ""
    text = known[0] if len(known) == 1 else f"{', '.join(known[:-1])}, or {known[-1]}"
    return f"{text[0].upper()}{text[1:]}."


def _changed(config: Mapping[str, Any], remedy: Remedy) -> Any:
    """Return the new value, or None if the run lacks the setting; `labeler.epochs` is in the group `labeler`."""
    *groups, name = remedy.setting.split(".")
    for group in groups:
        inner = config.get(group)
        config = inner if isinstance(inner, Mapping) else {}
    return remedy.change(config[name]) if name in config else None


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def listed(names: list[str], last: str, most: int = 5) -> str:
    """Join names as `a, b and c`; more than `most` are counted."""
    parts = names if len(names) <= most else [*names[:most], f"{len(names) - most} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def pretrained_advice(run: Run) -> str:
    """Return the advice to start from pretrained weights; empty if the run does, or if its backbone has none."""
    has_weights = not str(run.config.get("backbone")).endswith("-cnn")  # digits-cnn and character-cnn have none
    return (
        "Start from pretrained weights (weights=imagenet)."
        if run.config.get("weights") == "none" and has_weights
        else ""
    )
