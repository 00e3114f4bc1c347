"""Run the campaign: `python -m campaign --minutes 60 --out campaign.json`; exit code 1 if it found a defect."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import torch

from .faults import run_faults
from .hostile import run_hostile
from .kills import run_kills
from .processes import preload
from .report import Tally
from .seeds import make_seeds

PARTS = {"kills": run_kills, "faults": run_faults, "hostile": run_hostile}
SHARES = {"kills": 0.42, "faults": 0.08, "hostile": 0.5}  # of the time


def main() -> int:
    """Run the parts one after another, each for its share of the minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--most", type=int, help="cases of each part at most")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="files of other campaigns to add")
    parser.add_argument("--out", type=Path, default=Path("campaign.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # forks inherit no threads
    started, tally = time.monotonic(), Tally()
    preload()
    with tempfile.TemporaryDirectory(prefix="ssdg-campaign-") as folder:
        work = Path(folder).resolve()
        with make_seeds(work / "seeds") as seeds:
            total = sum(SHARES[part] for part in options.parts)
            for part in options.parts:
                print(f"{part} ...", flush=True)
                until = time.monotonic() + 60 * options.minutes * SHARES[part] / total
                PARTS[part](seeds, work, random.Random(f"{options.seed}/{part}"), until, tally, options.most)
    for path in options.add:
        tally.merge(Tally.load(path))
    tally.save(options.out, options.seed, (time.monotonic() - started) / 60)
    print(tally.table())
    return int(bool(tally.findings))


if __name__ == "__main__":
    raise SystemExit(main())
