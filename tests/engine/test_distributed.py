"""Two processes under torchrun (gloo, CPU) train on the same batches as one and end with the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runs import environment, weights_of
from ssdg.cli import call
from waiting import PATIENCE


def words(world: Path, cache: Path, out: Path, method: str) -> list[str]:
    where = ["--data", world, "--labeled", "photo", "--target", "night", "--out", out, "--cache", cache]
    small = ["backbone=digits-cnn", "weights=none", "size=32", "augment=none", "batch=8", "epochs=2", "lr=0.01"]
    small.append("precision=fp32")  # on every machine: two processes round as one does
    inner = ["labeler.batch=8", "labeler.epochs=1", "cycles=2"] if method == "eid" else []
    return [
        str(w) for w in ("train", "--preset", "paper", *where, "--device", "cpu", "--method", method, *small, *inner)
    ]


def in_two_processes(*words: str) -> subprocess.CompletedProcess[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ssdg"]
    return subprocess.run(
        [*launch, *words], env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize("method", ["source-only", "mcd"])
def test_losses_that_are_means_over_samples_give_the_same_weights(
    method: str, world: Path, cache: Path, tmp_path: Path
) -> None:
    # A few updates only: a rounding that turns a max-pool or a sign of p - q the other way is a jump, not an error.
    short = ["epochs=1", "iterations=2"] if method == "source-only" else ["epochs=1", "iterations=1", "inner_steps=2"]
    assert call([*words(world, cache, tmp_path / "one", method), *short]) == 0
    done = in_two_processes(*words(world, cache, tmp_path / "two", method), *short)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "two" / "result.json").read_text())["machine"]["processes"] == 2
    one, two = weights_of(tmp_path / "one"), weights_of(tmp_path / "two")
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-5, atol=1e-7)


def test_the_cycle_runs_in_two_processes(world: Path, cache: Path, tmp_path: Path) -> None:
    """Small-loss choices and styles are taken within each process's part, so the weights are not those of one."""
    done = in_two_processes(*words(world, cache, tmp_path / "two", "eid"))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "two" / "result.json").read_text())["epochs"]
    assert done.stdout.count("accuracy (%) on unseen night") == 1  # one process speaks


def test_a_batch_that_cannot_be_shared_is_refused(world: Path, cache: Path, tmp_path: Path) -> None:
    done = in_two_processes(*words(world, cache, tmp_path / "two", "source-only"), "batch=7")
    assert done.returncode != 0
    assert "batch=7 cannot be shared by 2 processes" in done.stderr
