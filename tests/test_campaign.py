"""A slice of `make campaign` with a fixed seed: kills, faults and hostile inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from campaign.cases import Case
from campaign.hostile import judge
from campaign.processes import Outcome
from campaign.report import Finding, Tally

ROOT = Path(__file__).parent.parent
MOST = 18  # cases of each part


def test_a_slice_of_the_campaign_finds_nothing(tmp_path: Path) -> None:
    out = tmp_path / "campaign.json"
    words = ["--most", MOST, "--minutes", 600, "--seed", 3, "--out", out]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "campaign", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    results = json.loads(out.read_text()) if out.exists() else {}
    assert done.returncode == 0, (results.get("findings"), done.stderr)
    assert sum(results["cases"].values()) == 3 * MOST
    assert not list(tmp_path.glob("ssdg*")), "nothing is left"


def test_tallies_of_two_campaigns_are_added(tmp_path: Path) -> None:
    first, second = Tally(), Tally()
    first.count("kills: predict", memory=5, seconds=1.0)
    second.count("kills: predict", memory=3, seconds=2.0)
    second.count("inputs: names")
    second.add(Finding("inputs: names", "a case", "hang"))
    second.save(tmp_path / "second.json", seed=2, minutes=1.0)
    first.merge(Tally.load(tmp_path / "second.json"))
    assert first.cases == {"kills: predict": 2, "inputs: names": 1}
    assert (first.memory["kills: predict"], first.seconds["kills: predict"]) == (5, 2.0)
    assert [finding.problem for finding in first.findings] == ["hang"]
    assert "| inputs: names | 1 | 1 × hang |" in first.table()


def test_a_defect_is_found(tmp_path: Path) -> None:
    """A traceback, a file outside, a formula and an escape sequence are findings; a clean case is none."""
    tally, case = Tally(), Case("case", ("predict",))
    inside = tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    judge("inputs: x", case, Outcome(2, "error: no\n", 0.1, 0), tmp_path, tally)
    assert not tally.findings
    (inside / "p.csv").write_text("path\n=cmd\n")
    (tmp_path / "escaped.png").touch()
    judge("inputs: x", case, Outcome(0, "\x1b[2J Traceback (most recent call last)", 21.0, 2**31), tmp_path, tally)
    problems = {finding.problem for finding in tally.findings}
    assert problems == {"traceback", "hang", "memory", "outside", "terminal escape", "formula in a table"}
