"""`ssdg bench --ray` on a real cluster of this machine: equal tables, dead workers, stops, errors."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from clusters import cell_of, epochs, events, has_open, in_the_middle, running_cluster, tables

from ssdg.bench import cluster as cluster_module
from ssdg.bench.cluster import CellJob, Cluster, check_address, count_fitting_cells, join_cluster
from ssdg.bench.folder import lock_of, read_grid, state_of
from ssdg.bench.worker import CellOptions
from ssdg.cli import call
from ssdg.errors import UserError
from ssdg.files import is_locked

Words = Callable[..., list[str]]
FILE = """
methods:
  - source-only
  - {method: mcd, epochs: 10}
tasks: [P>night]
settings: {backbone: digits-cnn, weights: none, size: 32, batch: 4, epochs: 1, lr: 0.01}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster that ends with the tests of this file."""
    with running_cluster() as address:
        yield address


@pytest.fixture(scope="module")
def bench(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Words:
    """The words of the command for a grid of two cells, of which `mcd` takes some seconds."""
    file = tmp_path_factory.mktemp("suite") / "mine.yaml"
    file.write_text(FILE)

    def words(folder: Path, *more: object, data: Path = world) -> list[str]:
        where = ["--data", data, "--out", folder, "--cache", cache, "--device", "cpu", "--save-seconds", 0]
        return [str(word) for word in ("bench", file, *where, *more)]

    return words


@pytest.fixture(scope="module")
def undisturbed(bench: Words, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same grid by local workers."""
    folder = tmp_path_factory.mktemp("local") / "bench"
    assert call(bench(folder, "--jobs", 2)) == 0
    return folder


def test_a_killed_workers_cell_resumes_from_its_checkpoint(
    cluster: str, bench: Words, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bench"
    killed = []

    def kill(run_folder: Path) -> None:
        workers = [p for p in psutil.process_iter(["name"]) if (p.info["name"] or "").startswith("ray::")]
        holders = [p for p in workers if has_open(p, run_folder / ".cell.lock")]
        assert not (run_folder / "result.json").exists()
        killed.extend(holders)
        for process in holders:
            process.kill()

    thread = in_the_middle(kill, lambda: list(folder.glob("cells/*")))
    assert call(bench(folder, "--ray", cluster)) == 0
    thread.join()
    assert len(killed) == 1
    assert "2 done, 0 running, 0 failed, 0 missing" in capsys.readouterr().out
    log = events(cell_of(folder, "mcd, epochs=10"))
    assert [event["event"] for event in log].count("start") == 2, "tried again"
    assert epochs(cell_of(folder, "mcd, epochs=10")).count(1) == 1, "but not from the start"
    assert tables(folder, capsys) == tables(undisturbed, capsys)


def test_a_stopped_grid_resumes_and_results_come_back_from_a_scratch_folder(
    cluster: str,
    bench: Words,
    undisturbed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, scratch = tmp_path / "bench", tmp_path / "scratch"
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    words = bench(folder, "--ray", "auto", "--scratch", scratch)
    thread = in_the_middle(lambda _: os.kill(os.getpid(), signal.SIGINT), lambda: list(scratch.glob("*/cells/*")))
    assert call(words) == 130
    thread.join()
    assert "to resume, run the same command again" in capsys.readouterr().err
    assert state_of(folder, cell_of(folder, "mcd, epochs=10").name) == "missing"
    (own,) = scratch.iterdir()
    assert not any(is_locked(lock_of(own, cell.id)) for cell in read_grid(folder).cells)

    assert call(words) == 0
    home, away = (cell_of(path, "mcd, epochs=10") for path in (folder, own))
    assert epochs(home).count(1) == 1
    assert tables(folder, capsys) == tables(undisturbed, capsys)
    assert (home / "model" / "model.safetensors").read_bytes() == (away / "model" / "model.safetensors").read_bytes()
    assert (away / "stages").exists()
    assert not (home / "stages").exists()


def test_a_failing_cell_is_reported_and_the_others_continue(
    cluster: str, bench: Words, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(world, tmp_path / world.name))
    (other / "night" / "ring").rename(other / "night" / "star")
    words = bench(tmp_path / "bench", "--ray", cluster, "--methods", "source-only", data=other)
    assert call([*words, "--tasks", "P:night", "P:neon"]) == 1
    output = capsys.readouterr().out
    assert (
        "failed   source-only · P>night · seed 0: the classes of the labeled and the target domain differ" in output
    )
    assert "done     source-only · P>neon · seed 0: " in output
    assert "1 done, 0 running, 1 failed, 0 missing" in output


def test_a_node_that_does_not_see_the_folder_is_reported(
    cluster: str, bench: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"

    def misled(folder: str, *rest: Any) -> CellJob:
        return CellJob(str(elsewhere), *rest)

    monkeypatch.setattr(cluster_module, "CellJob", misled)
    assert call(bench(tmp_path / "bench", "--ray", cluster, "--jobs", 1)) == 1
    output = capsys.readouterr().out
    assert "1 at a time" in output
    assert f"does not see {elsewhere} of " in output
    assert "or pass --scratch DIR" in output
    assert "0 done, 0 running, 2 failed, 0 missing" in output
    assert not elsewhere.exists(), "nothing is computed where nobody would look for it"


def test_a_cell_that_no_node_can_hold_is_refused(
    cluster: str, bench: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(bench(tmp_path / "bench", "--ray", cluster, "--threads", 3)) == 2
    assert "no node of the Ray cluster has 3 CPUs for a cell; use fewer --threads" in capsys.readouterr().err
    with join_cluster(cluster) as joined, pytest.raises(UserError, match="1 CPUs and a GPU"):
        joined.slots(None, CellOptions("", device="cuda"))


def test_a_cell_whose_workers_always_die_fails_and_so_does_one_that_cannot_begin(
    cluster: str, bench: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = tmp_path / "deaths"

    def run_job(job: CellJob) -> None:
        if job.options.threads == 1:
            with deaths.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        raise ModuleNotFoundError("No module named 'ssdg'")

    monkeypatch.setattr(cluster_module, "RETRIES", 1)
    monkeypatch.setattr(cluster_module, "run_job", run_job)
    words = bench(tmp_path / "bench", "--ray", cluster, "--methods", "source-only")
    assert call(words) == 1
    assert "failed   source-only · P>night · seed 0: its worker died 2 times (" in capsys.readouterr().out
    assert deaths.read_text() == "xx"
    assert call([*words, "--threads", "2"]) == 1
    assert "(ModuleNotFoundError: No module named 'ssdg'); every node needs the same" in capsys.readouterr().out


def test_a_cell_has_a_gpu_if_it_is_to_use_one() -> None:
    class Ray:
        def __init__(self, **resources: float) -> None:
            self.cluster_resources = lambda: resources

    def gpus(device: str, **resources: float) -> int:
        return Cluster(Ray(**resources)).gpus_per_cell(CellOptions("", device=device))

    assert [gpus(device, CPU=8.0, GPU=2.0) for device in ("auto", "cuda", "cpu")] == [1, 1, 0]
    assert [gpus(device, CPU=8.0) for device in ("auto", "cuda", "cpu")] == [0, 1, 0]


def test_room_is_by_node_and_not_by_sum() -> None:
    nodes = [{"CPU": 3.0}, {"CPU": 5.0, "GPU": 1.0}, {"memory": 9.0}]
    assert count_fitting_cells(nodes, 1, 0) == 8
    assert count_fitting_cells(nodes, 2, 0) == 3
    assert count_fitting_cells(nodes, 4, 0) == 1
    assert count_fitting_cells(nodes, 1, 1) == 1
    assert count_fitting_cells(nodes, 6, 0) == 0


@pytest.mark.parametrize("address", ["nonsense", "host:", ":1", "ray://host:10001", "host:port"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UserError, match=r"is not an address of a Ray cluster .*; use auto, or HOST:PORT"):
        check_address(address)


def test_nobody_answers(bench: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(bench(tmp_path / "bench", "--ray", "127.0.0.1:1")) == 2
    output = capsys.readouterr().err
    assert "no Ray cluster answers at 127.0.0.1:1" in output
    assert "ray start --head" in output
    assert output.count("\n") == 1
    assert not (tmp_path / "bench").exists()


def test_no_cluster_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance. Please specify")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.init", init)  # others' clusters may run on the machine that runs this test
    with pytest.raises(UserError, match="no Ray cluster runs on this machine"), join_cluster("auto"):
        pass


def test_the_package_is_missing(
    bench: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert call(bench(tmp_path / "bench", "--ray", "auto")) == 2
    assert "pip install 'ssdg[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "bench").exists()


def test_scratch_is_for_ray(bench: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(bench(tmp_path / "bench", "--scratch", tmp_path)) == 2
    assert "--scratch needs --ray" in capsys.readouterr().err
