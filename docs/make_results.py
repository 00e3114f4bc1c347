"""Update the numbers of a results page from a benchmark folder.

    python docs/make_results.py DIR --commit HASH --machine "two cores of ..."
    python docs/make_results.py DIR --commit HASH --machine "..." --add

The suite's name is the page's: docs/results/NAME.md, between its two markers, and docs/results/NAME.json with the
accuracy of every seed and the commit it comes from. With `--add`, accuracies in that JSON file that the folder lacks
stay in the table, so that a long benchmark can be run in parts: use it only if the commits between do not change
numbers. The interpretation of the numbers is written by hand, outside the markers.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from ssdg.bench.folder import Grid, GridRow, Network, Number, Results, read_results
from ssdg.bench.tables.formats import pipes, render
from ssdg.bench.tables.results_table import AVERAGE, Table, make_table
from ssdg.schema import Audit, DomainAudit, LabelKind, Result

KINDS: dict[LabelKind, str] = {"pseudo-labels": "labeler", "clean-set": "clean set"}
SELF_LABELS = "self-labels (APL)"
PAGES = Path(__file__).with_name("results")
BEGIN, END = "<!-- numbers, by docs/make_results.py -->", "<!-- end of numbers -->"
Key = tuple[str, str, int]  # row, task, seed


@dataclass(frozen=True)
class Earlier:
    """An accuracy of a run that is not in the benchmark folder, its family, and the commit it was made with."""

    accuracy: float
    family: str
    commit: str


@dataclass(frozen=True)
class MergedResults(Results):
    """Results of a folder and accuracies of earlier runs; a cell of the folder replaces an earlier accuracy."""

    earlier: Mapping[Key, Earlier]

    def scores(self, row: str, number: Number, network: Network = "mean") -> dict[tuple[str, int], float]:
        """Return the known accuracies of a row by task and seed."""
        earlier = {(task, seed): e.accuracy for (name, task, seed), e in self.earlier.items() if name == row}
        return {**earlier, **super().scores(row, number, network)}

    def count_cells(self) -> tuple[int, int]:
        """Return the number of known accuracies, and that of all cells; a row and task without any count as one."""
        known = self.commits("").keys()
        expected = known | {(cell.row, cell.task, cell.seed) for cell in self.grid.cells}
        lacking = {(row.name, task) for row in self.grid.rows for task in self.grid.tasks} - {k[:2] for k in expected}
        return len(known), len(expected) + len(lacking)

    def commits(self, commit: str) -> dict[Key, str]:
        """Return the commit of every accuracy; those of the folder are of `commit`."""
        done = {(c.row, c.task, c.seed): commit for c in self.grid.cells if c.id in self.by_cell}
        return {**{key: e.commit for key, e in self.earlier.items()}, **done}


def read_earlier(path: Path) -> dict[Key, Earlier]:
    """Read the accuracies and commits of a JSON file that this script wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {
        (row["name"], task, int(seed)): Earlier(value, row["family"], content["commits"][row["name"]][task][seed])
        for row in content["rows"]
        for task, entry in row["cells"].items()
        if task != AVERAGE
        for seed, value in entry["seeds"].items()
    }


def read_tasks(path: Path) -> list[str]:
    """Read the tasks of a JSON file that this script wrote, in their order, including those without an accuracy."""
    return list(json.loads(path.read_text(encoding="utf-8"))["tasks"])


def with_rows_of(grid: Grid, earlier: Mapping[Key, Earlier], tasks: Iterable[str]) -> Grid:
    """Return the grid with the rows of earlier accuracies added, and its tasks after those of the earlier table."""
    families = {row.name: row.family for row in grid.rows}
    added = {row: e.family for (row, _, _), e in earlier.items() if row not in families}
    rows = [*grid.rows, *(GridRow(name, family) for name, family in added.items())]
    return replace(grid, rows=tuple(rows), tasks=tuple(dict.fromkeys([*tasks, *grid.tasks])))


def as_json(table: Table, commits: Mapping[Key, str]) -> str:
    """Return the table as JSON, with the commit of every accuracy."""
    nested: dict[str, Any] = {}
    for (row, task, seed), commit in sorted(commits.items()):
        nested.setdefault(row, {}).setdefault(task, {})[str(seed)] = commit
    content = {**json.loads(render(table, "json")), "commits": nested}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def numbers(results: MergedResults, table: Table, commit: str, machine: str) -> str:
    """Return everything between the markers."""
    parts = [render(table, "markdown").strip()]
    if labels := label_table(results):
        parts += ["Pseudo-labels by cycle, means over the runs and unlabeled domains of a row:", labels]
    if crawls := crawl_table(results):
        parts += ["The crawl by cycle, means over the runs of a row:", crawls]
    return "\n\n".join([*parts, provenance(results, commit, machine)])


def label_table(results: Results) -> str:
    """Return pseudo-label accuracy, the share of images selected as clean, and the accuracy of these."""
    head = ["Row", "Cycle", "runs", "label accuracy, %", "selected, %", "accuracy of selected, %"]
    body = []
    for row in results.grid.rows:
        runs = [results.by_cell[c.id] for c in results.grid.of(row.name) if c.id in results.by_cell]
        audits = [audit for run in runs for audit in run.pseudo_labels]
        self_labels = [audit for audit in audits if audit.title == SELF_LABELS]
        for cycle in sorted({audit.round for audit in audits if audit.kind == "clean-set" or self_labels}):
            labeled, chosen = domains_of(audits, cycle, "pseudo-labels"), domains_of(audits, cycle, "clean-set")
            if self_labels:  # a self-labeling network trains on its most confident labels
                labeled = chosen = domains_of(self_labels, cycle, "pseudo-labels")
            if not chosen:
                continue
            share = mean(100 * d.kept / d.images for d in chosen)
            clean = mean_known(d.kept_accuracy for d in chosen)
            accuracy = mean_known(d.accuracy for d in labeled)
            body.append([f"`{row.name}`", str(cycle), str(len(runs)), accuracy, f"{share:.1f}", clean])
    return pipes(head, body) if body else ""


def crawl_table(results: Results) -> str:
    """Return how labelers and clean sets treat OOD images and keywords, if the ground truth is known."""
    head = [
        "Row",
        "Cycle",
        "by",
        "selected, %",
        "OOD among selected, %",
        "AUROC, %",
        "wrong keywords",
        "repaired",
        "broken",
    ]
    body = []
    for row in results.grid.rows:
        runs = [results.by_cell[c.id] for c in results.grid.of(row.name) if c.id in results.by_cell]
        audits = [audit for run in runs for audit in run.pseudo_labels]
        for cycle in sorted({audit.round for audit in audits}):
            for kind, who in KINDS.items():
                crawls = [d for d in domains_of(audits, cycle, kind) if d.ood_auroc is not None]
                if crawls:
                    body.append([f"`{row.name}`", str(cycle), who, *crawl_cells(crawls)])
    return pipes(head, body) if body else ""


def crawl_cells(crawls: list[DomainAudit]) -> list[str]:
    """Format percentages with one decimal and counts with none."""
    percents = [
        mean(100 * d.kept / d.images for d in crawls),
        mean(100 * (d.ood_kept or 0) / max(d.kept, 1) for d in crawls),
        mean(d.ood_auroc or 0 for d in crawls),
    ]
    counts = [mean(d.web_wrong or 0 for d in crawls), mean(d.repaired or 0 for d in crawls)]
    counts.append(mean(d.broken or 0 for d in crawls))
    return [*(f"{value:.1f}" for value in percents), *(f"{value:.0f}" for value in counts)]


def domains_of(audits: list[Audit], cycle: int, kind: LabelKind) -> list[DomainAudit]:
    """Return the audits of all domains for one kind of labels in a cycle."""
    return [d for audit in audits if (audit.round, audit.kind) == (cycle, kind) for d in audit.domains.values()]


def mean_known(values: Iterable[float | None]) -> str:
    """Return the mean of the known values."""
    known = [value for value in values if value is not None]
    return f"{mean(known):.1f}" if known else "-"


def provenance(results: MergedResults, commit: str, machine: str) -> str:
    """Return the commits, machine, software and training time behind the numbers."""
    runs = list(results.by_cell.values())
    hours = sum(run.seconds for run in runs) / 3600
    counts = Counter(results.commits(commit).values())
    rows = [
        ["Accuracies by commit", ", ".join(f"`{name}`: {count}" for name, count in counts.most_common())],
        ["Training", f"{hours:.1f} core-hours for those of `{commit}`; stages that cells share are counted in each"],
        ["Machine", machine],
        ["Software", "; ".join(sorted({software(run) for run in runs}))],
        ["Hidden labels", runs[0].hidden_labels],
    ]
    return f"<details>\n<summary>Provenance</summary>\n\n{pipes(['', ''], rows)}\n\n</details>"


def software(run: Result) -> str:
    """Return the versions and precision of a run."""
    versions, machine = run.versions, run.machine
    return f"Python {versions['python']}, torch {versions['torch']}, {machine['device']}, {machine['precision']}"


def main() -> None:
    """Read the folder and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--add", action="store_true", help="keep accuracies of earlier runs that DIR lacks")
    arguments = parser.parse_args()
    folder = read_results(arguments.folder)
    page = PAGES / f"{folder.grid.name}.md"
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{page} lacks the line '{BEGIN}' or '{END}'")
    stored = page.with_suffix(".json")
    earlier, tasks = (read_earlier(stored), read_tasks(stored)) if arguments.add else ({}, [])
    results = MergedResults(with_rows_of(folder.grid, earlier, tasks), folder.by_cell, earlier)
    table = make_table(results, "last-five")
    content = numbers(results, table, arguments.commit, arguments.machine)
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{content}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    page.with_suffix(".json").write_text(as_json(table, results.commits(arguments.commit)), encoding="utf-8")


if __name__ == "__main__":
    main()
