"""A slice of `make campaign` with a fixed seed: kills, faults and hostile inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SLICE = {"kills": 10, "faults": 14, "hostile": 44}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", SLICE)
def test_a_slice_of_the_campaign_finds_nothing(part: str, tmp_path: Path) -> None:
    out = tmp_path / "campaign.json"
    words = ["--parts", part, "--most", SLICE[part], "--minutes", 15, "--seed", 3, "--out", out]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "campaign", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    results = json.loads(out.read_text()) if out.exists() else {}
    assert done.returncode == 0, (results.get("findings"), done.stderr)
    assert sum(results["cases"].values()) == SLICE[part]
