"""What a campaign counted and what it found."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ssdg.files import write_text


@dataclass(frozen=True)
class Finding:
    """A defect: in which part, in which case, what went wrong."""

    part: str
    case: str
    problem: str
    detail: str = ""


@dataclass
class Tally:
    """Cases by part, findings, and the largest memory and time of a case."""

    cases: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    memory: int = 0  # bytes above start-up
    seconds: float = 0.0  # of the slowest hostile input

    def count(self, part: str) -> None:
        """Count a case."""
        self.cases[part] += 1

    def add(self, finding: Finding) -> None:
        """Record a defect and print it."""
        self.findings.append(finding)
        print(f"  {finding.part}: {finding.case}: {finding.problem}", flush=True)

    def table(self) -> str:
        """Return a Markdown table: a row for each part."""
        lines = ["| Part | Cases | Findings |", "|---|---:|---|"]
        for part, count in sorted(self.cases.items()):
            problems = Counter(finding.problem for finding in self.findings if finding.part == part)
            cell = ", ".join(f"{number} × {problem}" for problem, number in problems.most_common()) or "none"
            lines.append(f"| {part} | {count:,} | {cell} |")
        memory = f"{self.memory / 2**20:,.0f} MB"
        lines += ["", f"Peak memory of an input above start-up: {memory}; slowest input: {self.seconds:.1f} s."]
        return "\n".join(lines)

    def save(self, path: Path, seed: int) -> None:
        """Write everything as JSON."""
        values = {
            "seed": seed,
            "cases": dict(self.cases),
            "memory": self.memory,
            "seconds": self.seconds,
            "findings": [asdict(finding) for finding in self.findings],
        }
        write_text(path, json.dumps(values, indent=1))
