"""Read run and benchmark folders into groups of candidates that may be compared, each with its scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..bench.folder import cell_folder, read_grid
from ..errors import UserError, truncate
from ..schema import Epoch, Result, Scores, Task, Unsupervised, read_json

Score = Literal["validation", "agreement", "information", "density"]
SCORES: tuple[Score, ...] = ("validation", "agreement", "information", "density")
ScoreValues = Mapping[Score, float | None]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    label: str
    result: Result

    @property
    def title(self) -> str:
        """The task; runs that discovered the domains of the same unlabeled images share it."""
        task = self.result.task
        pools = self.result.discovery.of if self.result.discovery else task.unlabeled
        unlabeled = ", ".join(sorted(pools)) or "no unlabeled domain"
        title = f"{task.labeled} (unlabeled: {unlabeled}) → {task.target or 'no target'}"
        return title if task.setting == "ssdg" else f"{title}, {task.setting}"


@dataclass(frozen=True)
class Candidate:
    """A run, or an epoch of a run, that may be selected. `target` evaluates the scores and never ranks."""

    label: str
    folder: Path
    scores: ScoreValues
    target: float | None = None


@dataclass(frozen=True)
class Group:
    """Candidates that were scored on the same images."""

    title: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Skipped:
    """A folder that cannot be compared, and why: it is not finished, damaged, or no run."""

    folder: Path
    reason: str


def read_runs(folders: Sequence[Path], *, blind: bool) -> tuple[list[Run], list[Skipped]]:
    """Read the runs in folders, each once; with `blind`, read no score on the target.

    Folders that are not finished or damaged are returned with the reason, and raise an error if there are no others.
    """
    by_path: dict[Path, Run] = {}
    skipped: list[Skipped] = []
    for folder in folders:
        try:
            runs = _runs_in(folder)
        except (UserError, OSError) as error:
            skipped.append(Skipped(folder, str(error)))
            continue
        for path, label in runs:
            try:
                by_path.setdefault(path.resolve(), Run(path, label, read_result(path / "result.json", blind)))
            except (UserError, OSError) as error:
                skipped.append(Skipped(path, str(error)))
    if not by_path and skipped:
        rest = f" ({len(skipped) - 1} more folders cannot be compared either)" if len(skipped) > 1 else ""
        raise UserError(f"{skipped[0].reason}{rest}")
    return list(by_path.values()), skipped


def _runs_in(folder: Path) -> list[tuple[Path, str]]:
    """Return the runs of a folder with their labels: the folder itself, or the finished cells of a benchmark."""
    if (folder / "result.json").is_file():
        return [(folder, folder.resolve().name)]
    if (folder / "suite.json").is_file():
        cells = read_grid(folder).cells
        finished = [cell for cell in cells if (cell_folder(folder, cell.id) / "result.json").is_file()]
        if not finished:
            raise UserError(f"no cell of the benchmark in '{folder}' is finished; run it first: ssdg bench")
        return [(cell_folder(folder, cell.id), f"{cell.row} · seed {cell.seed}") for cell in finished]
    if (folder / "run.json").is_file():
        raise UserError(f"the run in '{folder}' is not finished (it has no result.json); run ssdg resume {folder}")
    raise UserError(f"'{folder}' has no result.json; pass run folders, such as runs/*, or a benchmark folder")


def read_result(path: Path, blind: bool) -> Result:
    """Read a `result.json`; with `blind`, drop the scores on the target before anything is read."""
    prepare = without_target if blind else lambda values: values
    return read_json(path, Result, remedy="pass folders of finished runs", prepare=prepare)


def without_target(values: Any) -> Any:
    """Drop all scores on the target from the JSON of a result; its name stays."""
    if not isinstance(values, dict):
        return values
    rest = {key: value for key, value in values.items() if key != "target"}
    if isinstance(rest.get("probe"), dict):
        rest["probe"] = {key: value for key, value in rest["probe"].items() if key != "target"}
    epochs = values.get("epochs")
    if isinstance(epochs, list):
        rest["epochs"] = [
            {key: value for key, value in row.items() if key not in ("target", "others")}
            if isinstance(row, dict)
            else row
            for row in epochs
        ]
    return rest


def by_task(runs: Iterable[Run]) -> list[Group]:
    """Group runs by task: the same domains, classes and numbers of images that the scores are computed on."""
    tasks: dict[str, dict[object, list[Run]]] = {}  # by title, then by what else must be equal
    for run in runs:
        task = run.result.task
        data = (tuple(task.classes), *_image_counts(task).values())
        tasks.setdefault(run.title, {}).setdefault(data, []).append(run)
    return [
        Group(_title(members[0], is_only=len(groups) == 1), (*_candidates(members), *_probes(members)))
        for groups in tasks.values()
        for members in groups.values()
    ]


def by_run(runs: Sequence[Run]) -> list[Group]:
    """Group the epochs of each run."""
    return [
        Group(f"{candidate.label}: {run.title}", tuple(_epoch(run, row) for row in run.result.epochs))
        for run, candidate in zip(runs, _candidates(runs), strict=True)
    ]


def _title(run: Run, *, is_only: bool) -> str:
    """Return the title of a run's group, with classes and images if other groups have domains of the same names."""
    if is_only:
        return run.title
    task = run.result.task
    counts = ", ".join(f"{count:,} {name}" for name, count in _image_counts(task).items())
    return f"{run.title}, {len(task.classes)} classes ({truncate(', '.join(task.classes))}), {counts} images"


def _image_counts(task: Task) -> dict[str, int]:
    """Return the number of images behind the scores."""
    return {
        "held-out": task.images.get("validation", 0),
        "unlabeled": sum(count for name, count in task.images.items() if name in task.unlabeled),
    }


def _candidates(runs: Sequence[Run]) -> list[Candidate]:
    """Return the runs as candidates; folders distinguish runs with the same label."""
    labels = [run.label for run in runs]
    return [
        Candidate(
            run.label if labels.count(run.label) == 1 else str(run.folder),
            run.folder,
            _scores(_mean(run.result.validation), run.result.unsupervised),
            _mean(run.result.target),
        )
        for run in runs
    ]


def _probes(runs: Sequence[Run]) -> list[Candidate]:
    """Return the probes next to the runs as candidates, one for each backbone, weights and image size."""
    probes: dict[str, Candidate] = {}
    for run in runs:
        if (probe := run.result.probe) is not None:
            backbone, weights, size = (run.result.config.get(key) for key in ("backbone", "weights", "size"))
            label = f"(probe of {backbone}, {weights}, {size} px)"
            scores = _scores(probe.validation, probe.unsupervised)
            probes.setdefault(label, Candidate(label, run.folder, scores, probe.target))
    return list(probes.values())


def _epoch(run: Run, row: Epoch) -> Candidate:
    return Candidate(
        f"cycle {row.round} · epoch {row.epoch}",
        run.folder,
        _scores(row.validation[-1] if row.validation else None, row.unsupervised),
        row.target[-1] if row.target else None,
    )


def _scores(validation: float | None, unsupervised: Unsupervised | None) -> ScoreValues:
    scores = unsupervised or Unsupervised()
    return {name: validation if name == "validation" else getattr(scores, name) for name in SCORES}


def _mean(scores: Scores | None) -> float | None:
    return scores.final.get("mean") if scores else None
