"""The first Ctrl-C or SIGTERM stops after the step, the second at once; a plain line says how to resume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runs import environment
from ssdg.artifact.tensors import read_meta
from ssdg.cli import call
from ssdg.engine.run import stop_on_signal
from ssdg.methods.source_only import SourceOnly
from waiting import PATIENCE

SMALL = ["backbone=digits-cnn", "weights=none", "size=32", "batch=4", "method=source-only", "epochs=2"]


@pytest.fixture
def stop_in_step_3(monkeypatch: pytest.MonkeyPatch) -> None:
    step = SourceOnly.step

    def interrupted(self, batch, at):  # type: ignore[no-untyped-def]
        if at.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, batch, at)

    monkeypatch.setattr(SourceOnly, "step", interrupted)


def where(world: Path, cache: Path, out: Path) -> list[str]:
    words = [
        "train",
        "--preset",
        "paper",
        "--data",
        world,
        "--labeled",
        "photo",
        "--target",
        "night",
        "--out",
        out,
        "--cache",
        cache,
    ]
    return [str(w) for w in (*words, "--device", "cpu", *SMALL)]


@pytest.mark.usefixtures("stop_in_step_3")
def test_a_stop_saves_that_step_and_says_how_to_resume(
    world: Path, cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(where(world, cache, tmp_path / "my run")) == 130
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "stopping after this step ..."
    again = f"stopped; to resume, run the same command again, or: ssdg resume '{tmp_path / 'my run'}'"
    assert lines[1:] == [again]
    meta = read_meta(tmp_path / "my run" / "stages" / "1-main.safetensors")
    assert meta is not None
    assert meta["step"] == 3


@pytest.mark.usefixtures("stop_in_step_3")
def test_a_dry_run_that_is_stopped_names_no_run(
    world: Path, cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssdg.engine.plan.NUM_BATCHES", 4)
    assert call([*where(world, cache, tmp_path / "run"), "--dry-run"]) == 130
    assert "resume" not in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_second_signal_of_a_kind_interrupts_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signal() as flag:
        signal.raise_signal(signal.SIGINT)
        assert flag.is_set()
        signal.raise_signal(signal.SIGTERM)  # torchrun passes Ctrl-C on in this way
        for number in (signal.SIGTERM, signal.SIGINT):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
    assert signal.getsignal(signal.SIGTERM) is before


def test_two_processes_stop_after_the_same_step(world: Path, cache: Path, tmp_path: Path) -> None:
    """Only one of them hears the wish; the other must not wait for gradients that never come."""
    code = """
import os, signal, sys
import ssdg.methods.source_only as it
from ssdg.cli import main
step = it.SourceOnly.step
def interrupted(self, batch, at):
    if at.step == 2 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGTERM)
    return step(self, batch, at)
it.SourceOnly.step = interrupted
main(sys.argv[1:])
"""
    (tmp_path / "main.py").write_text(code)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, str(tmp_path / "main.py"), *where(world, cache, tmp_path / "run"), "epochs=100"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    assert done.stderr.count("stopped; to resume") == 1
    assert "RuntimeError" not in done.stderr
    meta = read_meta(tmp_path / "run" / "stages" / "1-main.safetensors")
    assert meta is not None
    assert meta["step"] == 8
