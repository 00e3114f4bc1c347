"""Virtual environments that hold an installed wheel and nothing of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

from .artifacts import ROOT

CONSTRAINTS = ROOT / "constraints.txt"
OUTSIDE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
PIP = "python -m pip --disable-pip-version-check --quiet"


class Environment:
    """A clean environment with the wheel and some of its extras; commands run in `work`."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.work = work
        self.programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
        venv.create(folder, with_pip=True)

    def install(self, wheel: Path, extras: tuple[str, ...], *, torch: bool) -> None:
        """Install the wheel; first the pinned torch, because a looser request brings gigabytes of CUDA packages."""
        pins = f"--no-compile -c '{CONSTRAINTS}'"  # most modules of large packages are never imported
        if torch:
            (pin,) = (line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
            self.run(f"{PIP} install {pins} {pin}")
        names = f"[{','.join(extras)}]" if extras else ""
        self.run(f"{PIP} install {pins} '{wheel.resolve()}{names}'")
        self.run(f"{PIP} check")

    def run(self, script: str) -> str:
        """Run a shell script and return its output; raise an error with its output if it fails."""
        environ = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
        environ |= {"PATH": f"{self.programs}{os.pathsep}{environ['PATH']}", "SSDG_CACHE": str(self.work / "cache")}
        environ.setdefault("OMP_NUM_THREADS", "1")  # the networks are tiny, and threads wait on a busy machine
        start = time.monotonic()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.work,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode} of:\n{script}\n\n{done.stdout}")
        first, *more = script.strip().splitlines()
        print(f"{time.monotonic() - start:7.1f} s  {first}{' ...' if more else ''}", flush=True)
        return done.stdout
