"""Pictures of features: drawn side by side, by one thread each."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

DRAW = """
import torch, sys
import numpy as np
from types import SimpleNamespace
from ssdg.report import domain_pictures as pictures
clouds = [np.random.default_rng(k).normal(size=(600, 256)).astype("f4") for k in range(3)]
pictures.stages = lambda run: [0, 1, 2]
pictures.draw_stage = lambda run, stage: {"method": pictures.embed(clouds[stage])[1]}
assert len(pictures.pictures(SimpleNamespace())["panels"]) == 3
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core starts no team of threads")
def test_threads_that_draw_start_no_teams_of_their_own() -> None:
    pytest.importorskip("sklearn")
    # OpenBLAS warns on stderr when a team of OpenMP threads calls it, which torch's OpenMP brings about.
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
