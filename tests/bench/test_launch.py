"""The launcher: order, crashes, stops, other launchers. Stub processes stand in for workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from threading import Event, Timer

import pytest

from ssdg.bench import launch
from ssdg.bench.folder import Cell, Grid, GridRow, cell_folder, error_of, lock_of
from ssdg.bench.launch import Launcher, LocalWorker, Slot, find_gpus, find_slots, interleave, make_slots, run_grid
from ssdg.bench.worker import CellOptions
from ssdg.errors import Stopped
from ssdg.files import is_locked, locked
from waiting import PATIENCE

FINISH = "open('result.json', 'w').write('{}')"
WAIT = "import sys; sys.stdin.read(); sys.exit(130)"  # as a worker that is asked to stop


class Workers:
    """Stub workers, and the events that the launcher reports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code: dict[str, str] = {}  # by cell; the default finishes
        self.started: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.stop = Event()

    def start(self, folder: Path, cell: str, slot: Slot, options: CellOptions) -> LocalWorker:
        self.started.append(cell)
        run_folder = cell_folder(folder, cell)
        run_folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-S", "-c", self.code.get(cell, FINISH)]
        return LocalWorker(subprocess.Popen(command, stdin=subprocess.PIPE, cwd=run_folder))

    def launch(self, *cells: str, jobs: int = 1) -> set[str]:
        return self.launcher(jobs).launch(cells, self.stop)

    def launcher(self, jobs: int = 1) -> Launcher:
        slots = make_slots(jobs)
        return Launcher(
            self.folder, CellOptions("cache"), slots, lambda *event: self.events.append(event), self.start
        )


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workers:
    stubs = Workers(tmp_path)
    monkeypatch.setattr(launch, "start_worker", stubs.start)
    monkeypatch.setattr(launch, "POLL_SECONDS", 0.01)
    return stubs


def error_message(workers: Workers, cell: str) -> str:
    return error_of(workers.folder, cell).read_text().strip()


def test_cells_run_in_order_once_each_and_not_when_done(workers: Workers) -> None:
    cell_folder(workers.folder, "b").mkdir(parents=True)
    (cell_folder(workers.folder, "b") / "result.json").write_text("{}")
    assert workers.launch("a", "b", "c", "a") == set()
    assert workers.started == ["a", "c"]
    assert workers.events == [("started", "a"), ("done", "a"), ("started", "c"), ("done", "c")]


def test_a_crash_is_reported_and_does_not_stop_the_others(workers: Workers) -> None:
    workers.code = {"a": "import os; os.kill(os.getpid(), 9)", "b": "import sys; sys.exit(3)"}
    assert workers.launch("a", "b", "c") == {"a", "b"}
    assert error_message(workers, "a") == "the worker was killed by SIGKILL; see worker.log in the same folder"
    assert error_message(workers, "b") == "the worker exited with code 3; see worker.log in the same folder"
    assert ("done", "c") in workers.events


def test_a_worker_killed_after_its_result_has_finished_and_leaves_nothing(workers: Workers) -> None:
    locks = "open('.cell.lock', 'w'); open('.lock', 'w')"
    workers.code = {"a": f"{FINISH}; {locks}; import os; os.kill(os.getpid(), 9)"}
    for _ in range(2):  # the second time, the launcher was killed as well
        assert workers.launch("a") == set()
        assert sorted(path.name for path in cell_folder(workers.folder, "a").iterdir()) == ["result.json"]
        lock_of(workers.folder, "a").touch()
        error_of(workers.folder, "a").write_text("the worker was killed")
    assert workers.events == [("started", "a"), ("done", "a")]


def test_the_lock_of_a_living_worker_stays(workers: Workers) -> None:
    cell_folder(workers.folder, "a").mkdir(parents=True)
    (cell_folder(workers.folder, "a") / "result.json").write_text("{}")
    with locked(lock_of(workers.folder, "a")):
        assert workers.launch("a") == set()
        assert lock_of(workers.folder, "a").exists()


def test_a_workers_own_sentence_is_kept(workers: Workers) -> None:
    workers.code = {"a": "import sys; open('error.txt', 'w').write('why'); sys.exit(1)"}
    assert workers.launch("a") == {"a"}
    assert error_message(workers, "a") == "why"


def test_a_failed_cell_is_tried_again_by_the_next_launcher(workers: Workers) -> None:
    for cell in "ab":
        cell_folder(workers.folder, cell).mkdir(parents=True)
        error_of(workers.folder, cell).write_text("an old reason")
    workers.code = {"b": "import sys; sys.exit(3)"}
    assert workers.launch("a", "b") == {"b"}
    assert workers.started == ["a", "b"]
    assert not error_of(workers.folder, "a").exists()
    assert "exited with code 3" in error_message(workers, "b")


def test_a_stop_reaches_running_workers_and_no_other_cell_starts(workers: Workers) -> None:
    workers.code = {"a": WAIT, "b": WAIT}
    Timer(0.3, workers.stop.set).start()
    assert workers.launch("a", "b", "c", jobs=2) == set()
    assert workers.started == ["a", "b"]
    assert not error_of(workers.folder, "a").exists()


def test_ctrl_c_ends_the_launcher_when_its_workers_have_stopped(workers: Workers) -> None:
    workers.code = {"a": WAIT}
    cells = tuple(Cell(name, "row", "P>A", 0, {}) for name in "ab")
    rows = (GridRow("row", "ours"),)
    grid = Grid(
        format=1, name="mine", data="data", preset="paper", rows=rows, tasks=("P>A",), seeds=(0,), cells=cells
    )
    Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(Stopped, match="to resume, run the same command again"):
        run_grid(workers.folder, grid, make_slots(1), CellOptions("cache"), lambda *event: None)
    assert workers.started == ["a"]
    assert not is_locked(workers.folder / f".launcher-{socket.gethostname()}.lock")


def test_workers_do_not_outlive_a_launcher_that_fails(workers: Workers) -> None:
    workers.code = {"a": WAIT}

    def full_disk(event: str, cell: str) -> None:
        raise OSError("no space left")

    launcher = Launcher(workers.folder, CellOptions("cache"), make_slots(1), full_disk, workers.start)
    with pytest.raises(OSError, match="no space"):
        launcher.launch(["a"], workers.stop)
    assert [worker.poll() for _, worker in launcher.running.values()] == [-signal.SIGKILL]


def test_a_cell_that_another_launcher_has_is_waited_for(workers: Workers) -> None:
    with locked(lock_of(workers.folder, "a")):
        timer = Timer(0.3, lambda: (cell_folder(workers.folder, "a") / "result.json").write_text("{}"))
        timer.start()
        assert workers.launch("a", "b") == set()
    assert workers.started == ["b"]
    assert workers.events[0] == ("elsewhere", "a")
    assert sorted(workers.events[1:]) == [("done", "a"), ("done", "b"), ("started", "b")]


def test_a_cell_whose_worker_dies_is_run_by_another(workers: Workers) -> None:
    launcher = workers.launcher()
    with locked(lock_of(workers.folder, "a")):
        launcher.waiting.append("a")
        launcher._fill()
        assert workers.events == [("elsewhere", "a")]
    assert launcher.launch([], workers.stop) == set()
    assert workers.events[1:] == [("started", "a"), ("done", "a")]


def test_a_cell_that_failed_elsewhere_is_not_tried_at_once(workers: Workers) -> None:
    workers.code = {"a": "import sys; open('error.txt', 'w').write('why'); sys.exit(75)"}  # taken, then failed there
    assert workers.launch("a") == {"a"}
    assert workers.started == ["a"]


def test_every_worker_has_a_slot_and_gpus_take_turns() -> None:
    assert len(set(make_slots(3))) == 3
    assert [slot.gpu for slot in make_slots(3, ["0", "1"])] == ["0", "1", "0"]


def test_a_worker_may_use_every_core_of_its_launcher(tmp_path: Path) -> None:
    """Bound to core i, worker i of two grids would share a core while others are idle."""
    code = "import os, sys\nfrom ssdg.bench import worker\nworker.run_if_free = lambda *args: 0\n"
    code += "before = os.sched_getaffinity(0)\nworker.main(sys.argv[1:])\nassert os.sched_getaffinity(0) == before"
    options = json.dumps(asdict(CellOptions("cache")))
    command = [sys.executable, "-c", code, str(tmp_path), "c", options]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # a worker stops when its input ends
        assert process.wait(PATIENCE) == 0


def test_as_many_workers_as_cores_or_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 7}, raising=False)
    assert len(find_slots(None, CellOptions("", device="cpu"))) == 4
    assert len(find_slots(None, CellOptions("", device="cpu", threads=2))) == 2
    assert len(find_slots(None, CellOptions("", device="cpu", threads=9))) == 1
    assert len(find_slots(3, CellOptions("", device="cpu"))) == 3
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [slot.gpu for slot in find_slots(None, CellOptions(""))] == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert find_gpus("auto") == ["4", "6"]
    assert find_gpus("cpu") == []


def test_neighbours_in_the_queue_have_other_labeled_domains_or_seeds() -> None:
    cells = [
        Cell(f"{labeled}{target}{seed}", "row", f"{labeled}>{target}", seed, {"labeled": labeled})
        for seed in (0, 1)
        for labeled in "AB"
        for target in "CD"
    ]
    order = interleave(cells)
    assert order == ["AC0", "BC0", "AC1", "BC1", "AD0", "BD0", "AD1", "BD1"]
    assert interleave(cells[:3]) == ["AC0", "BC0", "AD0"]
