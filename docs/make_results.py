"""Update the numbers of a results page from a benchmark folder.

    python docs/make_results.py DIR --commit HASH --machine "two cores of ..."

The page is named after the suite: docs/results/NAME.md, between its two markers, and docs/results/NAME.json with the
value of every seed. The interpretation is written by hand, outside the markers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from statistics import mean

from ssdg.bench.folder import Results, read_results
from ssdg.bench.tables.formats import pipes, render
from ssdg.bench.tables.results_table import make_table
from ssdg.schema import Audit, DomainAudit, LabelKind, Result

KINDS: dict[LabelKind, str] = {"pseudo-labels": "labeler", "clean-set": "clean set"}
SELF_LABELS = "self-labels (APL)"
PAGES = Path(__file__).with_name("results")
BEGIN, END = "<!-- numbers, by docs/make_results.py -->", "<!-- end of numbers -->"


def numbers(results: Results, commit: str, machine: str) -> str:
    """Return the text between the markers."""
    parts = [render(make_table(results, "last-five"), "markdown").strip()]
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


def provenance(results: Results, commit: str, machine: str) -> str:
    """Return the provenance of the numbers, as a collapsed block."""
    runs = list(results.by_cell.values())
    hours = sum(run.seconds for run in runs) / 3600
    rows = [
        ["Commit", f"`{commit}`"],
        ["Cells", f"{len(runs)} of {len({cell.id for cell in results.grid.cells})}"],
        ["Training", f"{hours:.1f} core hours; shared stages are counted in every cell that uses them"],
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
    arguments = parser.parse_args()
    results = read_results(arguments.folder)
    page = PAGES / f"{results.grid.name}.md"
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{page} lacks the line '{BEGIN}' or '{END}'")
    content = numbers(results, arguments.commit, arguments.machine)
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{content}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    page.with_suffix(".json").write_text(render(make_table(results, "last-five"), "json"), encoding="utf-8")


if __name__ == "__main__":
    main()
