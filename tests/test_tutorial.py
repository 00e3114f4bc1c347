"""docs/getting-started.md runs as it stands, and so does the example, on embedded digits."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from release.tutorial import tutorial_commands
from runs import environment
from ssdg.engine.setup import default_cache

pytest.importorskip("onnxruntime", reason="needs the extra export")
pytest.importorskip("mlxtend", reason="needs the extra demo")

ROOT = Path(__file__).parent.parent


def test_every_command_of_the_tutorial(tmp_path: Path) -> None:
    """With shorter schedules, without the installation, and with images that may be in the cache already."""
    script = "".join(tutorial_commands())
    head = f'set -euo pipefail\nssdg() {{ "{sys.executable}" -m ssdg "$@"; }}\n'
    environ = environment({"SSDG_CACHE": str(default_cache())})
    done = subprocess.run(
        ["bash", "-c", head + script], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "dry run passed" in done.stdout
    for name in ("report.html", "digits.onnx", "runs/first/model/README.md"):
        assert (tmp_path / name).stat().st_size > 500
    with (tmp_path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 400
    assert not any(row["error"] for row in rows)


def test_the_example(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "folders_to_onnx.py"), "--short"]
    environ = environment({"SSDG_CACHE": str(default_cache()), "TMPDIR": str(tmp_path)})
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "same class for 100.00 % of images" in done.stdout
