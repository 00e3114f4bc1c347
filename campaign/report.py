"""What a campaign counted and what it found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
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
    """Cases by part ("kills: predict"), findings, and the largest memory and time of a case by part."""

    cases: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    memory: Counter[str] = field(default_factory=Counter)  # bytes above start-up
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what was not run, and why

    @classmethod
    def load(cls, path: Path) -> Tally:
        """Read the tally of an earlier campaign."""
        values = json.loads(path.read_text())
        findings = [Finding(**finding) for finding in values["findings"]]
        return cls(Counter(values["cases"]), findings, Counter(values["memory"]), values["seconds"], values["notes"])

    def count(self, part: str, memory: int = 0, seconds: float = 0.0) -> None:
        """Count a case, with its bytes above start-up and its seconds."""
        self.cases[part] += 1
        self.memory[part] = max(self.memory[part], memory)
        self.seconds[part] = max(self.seconds.get(part, 0.0), seconds)

    def add(self, finding: Finding) -> None:
        """Record a defect and print it."""
        self.findings.append(finding)
        print(f"  {finding.part}: {finding.case!r}: {finding.problem}", flush=True)

    def note(self, text: str) -> None:
        """Record something worth knowing that is no defect."""
        self.notes.append(text)

    def merge(self, other: Tally) -> None:
        """Add the tally of another campaign."""
        self.cases += other.cases
        self.findings += other.findings
        self.memory |= other.memory  # the larger one of each part
        self.seconds = {part: max(self.seconds.get(part, 0.0), other.seconds.get(part, 0.0)) for part in self.cases}
        self.notes += other.notes

    def table(self) -> str:
        """Return a Markdown table: a row for each part, and one for each group of parts."""
        lines = ["| Part | Cases | Findings | Peak memory (MB) | Slowest (s) |", "|---|---:|---|---:|---:|"]
        groups = sorted({part.partition(":")[0] for part in self.cases})
        for group in groups:
            parts = sorted(part for part in self.cases if part.partition(":")[0] == group)
            lines += [self._row(part, [part]) for part in parts]
            lines.append(self._row(f"**{group}, all**", parts))
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)])

    def _row(self, title: str, parts: Sequence[str]) -> str:
        problems = Counter(finding.problem for finding in self.findings if finding.part in parts)
        cell = ", ".join(f"{number} × {problem}" for problem, number in problems.most_common()) or "none"
        num_bytes, seconds = (max(values.get(part, 0) for part in parts) for values in (self.memory, self.seconds))
        peak, slowest = f"{num_bytes / 2**20:,.0f}" if num_bytes else "-", f"{seconds:.1f}" if seconds else "-"
        return f"| {title} | {sum(self.cases[part] for part in parts):,} | {cell} | {peak} | {slowest} |"

    def save(self, path: Path, seed: int, minutes: float) -> None:
        """Write everything as JSON."""
        values = {
            "seed": seed,
            "minutes": round(minutes, 1),
            "cases": dict(self.cases),
            "memory": dict(self.memory),
            "seconds": {part: round(seconds, 2) for part, seconds in self.seconds.items()},
            "notes": self.notes,
            "findings": [asdict(finding) for finding in self.findings],
        }
        write_text(path, json.dumps(values, indent=1))
