"""Build, install and use a release: `python -m release [--extra NAME]`; `make package` runs it.

1. Build the sdist, and the wheel from it, into --out.
2. In a clean environment with the extras of docs/getting-started.md: run the commands of that page, shortened.
3. In another clean environment with one extra, a different one every day: train, predict and report.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from .artifacts import ROOT, build_artifacts
from .environments import Environment
from .extras import PREPARE, TRIALS, common_commands, next_extra, write_images
from .tutorial import TUTORIAL_EXTRAS, tutorial_commands


def main() -> None:
    """Run all steps; the first that fails ends it with what it printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", choices=TRIALS, default=next_extra(), help="default: that of the day")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--skip-tutorial", action="store_true", help="only what the extra needs")
    options = parser.parse_args()
    start = time.monotonic()
    shutil.rmtree(options.out, ignore_errors=True)
    wheel = build_artifacts(options.out).wheel
    print(f"{time.monotonic() - start:7.1f} s  built {wheel.name}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ssdg-release-") as folder:
        try_wheel(wheel, options.extra, Path(folder), options.skip_tutorial)
    print(f"{time.monotonic() - start:7.1f} s  in all")


def try_wheel(wheel: Path, extra: str, folder: Path, skip_tutorial: bool) -> None:
    """Use an installed wheel in two environments."""
    work = folder / "work"
    write_images(work / "images")
    print(f"extras {', '.join(TUTORIAL_EXTRAS)}: the tutorial")
    environment = Environment(folder / "tutorial", work)
    environment.install(wheel, TUTORIAL_EXTRAS, torch=True)
    for script in (*(() if skip_tutorial else tutorial_commands()), *PREPARE):
        environment.run(script)
    shutil.rmtree(folder / "tutorial")  # gigabytes
    trial = TRIALS[extra]
    print(f"extra {extra}")
    environment = Environment(folder / "extra", work)
    environment.install(wheel, (*({extra} - {"none"}), *trial.needed), torch=trial.trains)
    for script in (*common_commands(extra), *trial.commands):
        environment.run(script)


if __name__ == "__main__":
    main()
