"""`ssdg bench` with real workers on the tiny world, and what it refuses."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runs import environment
from ssdg.bench.folder import cell_folder, lock_of, read_grid
from ssdg.cli import call
from ssdg.engine.run import run
from ssdg.engine.setup import open_run
from ssdg.files import is_locked, locked
from ssdg.machine import start_machine
from waiting import PATIENCE, wait_until

FILE = """
methods: [source-only, mcd]
tasks: [P>night, S>night]
settings: {backbone: digits-cnn, weights: none, size: 32, batch: 4, epochs: 2, lr: 0.01}
"""


@pytest.fixture
def words(world: Path, cache: Path, tmp_path: Path) -> list[str]:
    """The command for a grid of 2 × 2 in `tmp_path / "bench"`."""
    (tmp_path / "mine.yaml").write_text(FILE)
    where = ["--data", world, "--out", tmp_path / "bench", "--cache", cache, "--device", "cpu"]
    return [str(word) for word in ("bench", tmp_path / "mine.yaml", *where, "--save-seconds", 0, "--jobs", 2)]


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """Without what the clock decides."""
    for phase in result["phases"].values():
        phase.pop("seconds"), phase.pop("images_per_second")
    return {key: value for key, value in result.items() if key != "seconds"}


def test_a_grid_whose_launcher_is_killed_ends_as_single_runs_do(
    words: list[str], cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bench"
    command = [sys.executable, "-m", "ssdg", *words]
    launcher = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: list(folder.glob("cells/*/stages/[!.]*.safetensors")))
    launcher.send_signal(signal.SIGKILL)
    assert launcher.wait() == -signal.SIGKILL
    wait_until(lambda: not any(is_locked(lock) for lock in folder.glob("cells/*/.cell.lock")))  # workers see it

    assert call(words) == 0
    assert "4 done, 0 running, 0 failed, 0 missing" in capsys.readouterr().out
    for cell in read_grid(folder).cells:
        config, problem = open_run(cell.config, cache, device="cpu")
        alone = run(config, problem, tmp_path / "alone" / cell.id, start_machine("cpu", config.precision))
        together = json.loads((cell_folder(folder, cell.id) / "result.json").read_text())
        assert comparable(together) == comparable(alone)
        assert together["hash"] == cell.id
    assert call(words) == 0, "there is nothing left to do"

    undisturbed = [str(tmp_path / "undisturbed") if word == str(folder) else word for word in words]
    assert call(undisturbed) == 0
    for form in ("text", "json"):
        assert table(tmp_path / "undisturbed", form, capsys) == table(folder, form, capsys), "byte for byte"


def table(folder: Path, form: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `ssdg table` prints."""
    capsys.readouterr()
    assert call(["table", str(folder), "--format", form]) == 0
    return capsys.readouterr().out


def test_a_failing_cell_is_reported_and_retried(
    words: list[str], world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(world, tmp_path / world.name))
    (other / "night" / "ring").rename(other / "night" / "star")
    words = [str(other) if word == str(world) else word for word in words]
    words += ["--methods", "source-only", "--tasks", "P:night", "P:neon", "epochs=1"]
    assert call(words) == 1
    output = capsys.readouterr().out
    assert (
        "failed   source-only · P>night · seed 0: the classes of the labeled and the target domain differ" in output
    )
    assert "done     source-only · P>neon · seed 0: " in output
    assert "1 done, 0 running, 1 failed, 0 missing" in output

    assert call(["bench", "status", str(tmp_path / "bench"), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["done"], status["failed"], status["missing"]) == (1, 1, 0)
    states = {cell["task"]: (cell["state"], cell["error"]) for cell in status["cells"]}
    assert states["P>neon"] == ("done", None)
    assert states["P>night"][0] == "failed"
    assert "'star'" in states["P>night"][1]
    assert call(["bench", "status", str(tmp_path / "bench")]) == 0
    assert "failed   source-only · P>night · seed 0: the classes" in capsys.readouterr().out

    (other / "night" / "star").rename(other / "night" / "ring")
    assert call(words) == 0
    assert not list((tmp_path / "bench").glob("cells/*/error.txt"))


def test_grids_may_have_one_shelf_together(words: list[str], tmp_path: Path) -> None:
    """What the first grid has trained the second finds, in its own folder and under its own name."""
    (tmp_path / "mine.yaml").write_text(FILE.replace("[source-only, mcd]", "[mcd]").replace(", S>night", ""))
    is_reused = []
    for number in (1, 2):
        out = tmp_path / str(number)
        words[words.index("--out") + 1] = str(out)
        assert call([*words, "--shelf", str(tmp_path / "shelf")]) == 0
        events = [json.loads(line) for path in out.glob("cells/*/events.jsonl") for line in path.open()]
        is_reused += [event["found"] for event in events if event["event"] == "trained"]
        assert not (out / "shelf").exists()
    assert is_reused == [False, True]


def test_a_second_launcher_is_refused(words: list[str], tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    with locked(tmp_path / "bench" / f".launcher-{socket.gethostname()}.lock"):
        assert "in use by another ssdg bench on this machine" in complaint(*words)
    assert not (tmp_path / "bench" / "suite.json").exists()


def test_a_worker_leaves_a_cell_that_is_taken(tmp_path: Path) -> None:
    with locked(lock_of(tmp_path, "c")):
        command = [sys.executable, "-m", "ssdg.bench.worker", str(tmp_path), "c", '{"cache": ""}']
        with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE) as worker:
            assert worker.wait(PATIENCE) == 75


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["epohcs=3"], "did you mean 'epochs'?"),
        (["cycles=2"], "unknown setting 'cycles'"),
        (["seed=3"], "as they differ in it; use --seeds"),
        (["labeled=photo"], "as they differ in it; use --tasks"),
        (["epochs=0"], "greater than or equal to 1"),
        (["--methods", "edi"], "did you mean 'eid'?"),
        (["--methods", "mcd+eid"], "unknown DG method 'eid'"),
        (["--tasks", "P:moon"], "unknown domain 'moon'"),
        (["--tasks", "Pnight"], "write labeled>target"),
        (["--tasks", "P:P"], "has the same domain twice"),
        (["--seeds", "-1"], "seed '-1'"),
        (["--seeds", "0", "x", "epochs=3"], "seed 'x'"),
        (["--preset", "papr"], "did you mean 'paper'?"),
        (["--jobs", "0"], "jobs"),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["backbone=resnet81"], "did you mean 'resnet18'?"),
        (["weights=nowhere.pth"], "nowhere.pth"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_mistakes(more: list[str], message: str, words: list[str], tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    if more[0] in words:  # an option may not be repeated
        at = words.index(more[0])
        words = words[:at] + words[at + 2 :]
    assert message in complaint(*words, *more)
    assert not (tmp_path / "bench").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["digist", "--data", "digits"], "did you mean 'digits'?"),
        (["pacs"], "add --data with the folder or zip of PACS"),
        (["nowhere.yaml"], "nowhere.yaml cannot be read"),
    ],
)
def test_mistakes_in_the_suite(args: list[str], message: str, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    assert message in complaint("bench", "run", *args, "--out", tmp_path / "bench")
    assert not (tmp_path / "bench").exists()


def test_data_that_are_not_the_suites(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    output = complaint("bench", "pacs", "--data", world, "--out", tmp_path / "bench", "--cache", cache)
    assert "needs the domains photo, art_painting, cartoon, sketch" in output


def test_a_setting_that_makes_the_rows(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    output = complaint("bench", "ablation-mix", "--data", world, "--out", tmp_path, "--cache", cache, "mix=x+u")
    assert "row 'eid, mix=mixup' sets 'mix' itself" in output


def test_status_of_a_folder_without_a_grid(tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    assert "it has no suite.json" in complaint("bench", "status", tmp_path)


def test_list(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call(["bench", "list"]) == 0
    output = capsys.readouterr().out
    assert "digits             all methods on digits" in output
    assert "digits-web         web-label strategies, embedded crawl for digits" in output
    assert call(["bench", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed[0]["tasks"]) == 12
    assert [row["name"] for row in listed[0]["rows"]][:2] == ["source-only", "dann"]


def test_list_needs_no_torch() -> None:
    code = "import sys; from ssdg.cli import call; call(['bench', 'list']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0
