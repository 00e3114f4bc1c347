"""Rewrite the numbers of a page of results from a benchmark folder.

    python docs/make_results.py DIR --commit HASH --machine "two cores of ..."

The suite's name is the page's: docs/results/NAME.md, between its two markers, and docs/results/NAME.json with the
value of every seed. What is said about the numbers is written by hand, outside the markers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from ssdg.bench.folder import Result, Results, read_results
from ssdg.bench.tables.formats import pipes, render
from ssdg.bench.tables.results_table import make_table

PAGES = Path(__file__).with_name("results")
BEGIN, END = "<!-- numbers, by docs/make_results.py -->", "<!-- end of numbers -->"


def numbers(results: Results, commit: str, machine: str) -> str:
    """All that stands between the markers."""
    parts = [render(make_table(results, "last-five"), "markdown").strip()]
    if labels := label_table(results):
        parts += ["Of `eid`, by cycle, means over its runs and unlabeled domains:", labels]
    if crawls := crawl_table(results):
        parts += ["Of the crawl, by cycle, means over the runs of a row:", crawls]
    return "\n\n".join([*parts, provenance(results, commit, machine)])


def label_table(results: Results) -> str:
    """How many pseudo-labels are right, how many images are chosen as clean, and how many of these are right."""
    head = ["Row", "Cycle", "runs", "pseudo-labels right, %", "chosen as clean, %", "of these right, %"]
    body = []
    for row in results.grid.rows:
        runs = [results.found[c.id] for c in results.grid.of(row.name) if c.id in results.found]
        audits = [audit for run in runs for audit in run["pseudo_labels"]]
        for cycle in sorted({a["round"] for a in audits if a["key"] == "eid"}):
            labeled, chosen = (domains_of(audits, cycle, maker) for maker in ("apl", "eid"))
            share = mean(100 * d["kept"] / d["images"] for d in chosen)
            clean = mean_known(d.get("kept_accuracy") for d in chosen)
            right = mean_known(d.get("accuracy") for d in labeled)
            body.append([f"`{row.name}`", str(cycle), str(len(runs)), right, f"{share:.1f}", clean])
    return pipes(head, body) if body else ""


def crawl_table(results: Results) -> str:
    """What labelers and clean sets do with images of no class and with keywords, where the truth is known."""
    head = [
        "Row",
        "Cycle",
        "by",
        "kept, %",
        "no class among them, %",
        "AUROC, %",
        "wrong keywords",
        "repaired",
        "broken",
    ]
    body = []
    for row in results.grid.rows:
        runs = [results.found[c.id] for c in results.grid.of(row.name) if c.id in results.found]
        audits = [audit for run in runs for audit in run["pseudo_labels"]]
        for cycle in sorted({a["round"] for a in audits}):
            for maker, who in (("apl", "labeler"), ("eid", "clean set")):
                seen = [d for d in domains_of(audits, cycle, maker) if "ood_auroc" in d]
                if seen:
                    body.append([f"`{row.name}`", str(cycle), who, *crawl_cells(seen)])
    return pipes(head, body) if body else ""


def crawl_cells(seen: list[dict[str, Any]]) -> list[str]:
    """Percentages with one decimal, counts without."""
    percents = [
        mean(100 * d["kept"] / d["images"] for d in seen),
        mean(100 * d["ood_kept"] / max(d["kept"], 1) for d in seen),
        mean(d["ood_auroc"] for d in seen),
    ]
    counts = [mean(d.get(key, 0) for d in seen) for key in ("web_wrong", "repaired", "broken")]
    return [*(f"{value:.1f}" for value in percents), *(f"{value:.0f}" for value in counts)]


def domains_of(audits: list[dict[str, Any]], cycle: int, maker: str) -> list[dict[str, Any]]:
    """What is known of the labels that labelers (apl) or the dual networks (eid) gave in a cycle, by domain."""
    mine = [a for a in audits if a["round"] == cycle and a["key"].partition("/")[0] == maker]
    return [domain for audit in mine for domain in audit["domains"].values()]


def mean_known(values: Iterable[float | None]) -> str:
    """The mean of what is known."""
    known = [value for value in values if value is not None]
    return f"{mean(known):.1f}" if known else "-"


def provenance(results: Results, commit: str, machine: str) -> str:
    """Where the numbers come from."""
    found = list(results.found.values())
    hours = sum(float(run["seconds"]) for run in found) / 3600
    rows = [
        ["Commit", f"`{commit}`"],
        ["Cells", f"{len(found)} of {len({cell.id for cell in results.grid.cells})}"],
        ["Training", f"{hours:.1f} hours of one core; stages that cells share are counted in each"],
        ["Machine", machine],
        ["Software", "; ".join(sorted({software(run) for run in found}))],
        ["Hidden labels", found[0]["hidden_labels"]],
    ]
    return pipes(["Provenance", ""], rows)


def software(run: Result) -> str:
    """Versions and precision of a run."""
    told = run["versions"]
    return (
        f"Python {told['python']}, torch {told['torch']}, {run['machine']['device']}, {run['machine']['precision']}"
    )


def main() -> None:
    """Read the folder, write the page."""
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
    made = numbers(results, arguments.commit, arguments.machine)
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    page.with_suffix(".json").write_text(render(make_table(results, "last-five"), "json"), encoding="utf-8")


if __name__ == "__main__":
    main()
