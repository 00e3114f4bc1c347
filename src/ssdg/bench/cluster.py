"""Cells as tasks of a Ray cluster: each runs on a node with room for it, and again if its worker dies."""

from __future__ import annotations

import hashlib
import importlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import locked, read_bytes, read_text, write_bytes, write_text
from .folder import cell_folder, lock_of_launcher
from .launch import Slot, make_slots
from .worker import BUSY, FAILED, STOPPED, CellOptions, run_if_free

STATE_FILES = ("result.json", "error.txt")  # they determine the state of a cell


@dataclass(frozen=True)
class CellJob:
    """A cell to compute on a node, in the shared benchmark folder or in a scratch folder of the node."""

    folder: str
    launcher: str  # host
    cell: str
    options: CellOptions
    scratch: str = ""  # empty: `folder` is shared
    suite: str = ""  # contents of `suite.json` for the scratch folder


@dataclass(frozen=True)
class Outcome:
    """The result of a job: exit code of the worker, files by their name in the cell's folder, an error message."""

    code: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    message: str = ""  # if no error.txt gives the reason


def run_job(job: CellJob) -> Outcome:
    """Train the cell, or resume it from the checkpoint in the folder."""
    threads = str(job.options.threads)
    os.environ.update(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
    folder = Path(job.scratch or job.folder)
    if job.scratch:
        with locked(folder / ".suite.lock"):
            write_text(folder / "suite.json", job.suite)
    elif not lock_of_launcher(folder, job.launcher).exists():
        return Outcome(FAILED, message=not_shared_message(job))
    run_folder = cell_folder(folder, job.cell)
    redirect_output(run_folder / "worker.log")
    code = run_if_free(folder, job.cell, job.options)
    return Outcome(code, {} if code == BUSY else collect_files(run_folder, everything=bool(job.scratch)))


def not_shared_message(job: CellJob) -> str:
    """Return the error of a node that does not see the launcher's folder."""
    return (
        f"node {socket.gethostname()} does not see {job.folder} of {job.launcher}; "
        "share this folder with every node, or pass --scratch DIR, a local folder of each node"
    )


def redirect_output(path: Path) -> None:
    """Append all output of this process, also from C, to a file; Ray runs no other cell in the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)


def collect_files(folder: Path, *, everything: bool) -> dict[str, bytes]:
    """Read the files of a cell for the launcher: all but checkpoints and locks, or only those that tell its state.

    The latter are sent even if the folder is shared, because a network file system may hide a new file from the
    launcher's machine for half a minute.
    """
    if not everything:
        return {name: read_bytes(folder / name) for name in STATE_FILES if (folder / name).exists()}
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    selected = [name for name in names if not any(part == "stages" or part.startswith(".") for part in name.parts)]
    return {str(name): read_bytes(folder / name, max_bytes=None) for name in selected}  # weights of any size


RETRIES = 3  # of a cell whose worker died
CONNECT_SECONDS = 10.0  # timeout of the connection to the head
HOW_TO_START = "start one with ray start --head --disable-usage-stats"


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster that this process has joined."""

    ray: Any  # the package, which is an optional dependency

    def slots(self, jobs: int | None, options: CellOptions) -> list[Slot]:
        """Return `jobs` slots; by default as many as cells fit on the nodes now."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        num_gpus = self.gpus_per_cell(options)
        capacity = count_fitting_cells(nodes, options.threads, num_gpus)
        if not capacity:
            resources = f"{options.threads} CPUs" + (" and a GPU" if num_gpus else "")
            raise UserError(
                f"no node of the Ray cluster has {resources} for a cell; "
                "use fewer --threads or --device cpu, or add a node with ray start --address"
            )
        return make_slots(jobs or capacity)

    def gpus_per_cell(self, options: CellOptions) -> int:
        """Return 1 if cells use CUDA, which `auto` means if the cluster has any GPU; else 0."""
        has_gpus = bool(self.ray.cluster_resources().get("GPU"))
        return int(options.device == "cuda" or (options.device == "auto" and has_gpus))

    def starter(self, options: CellOptions, scratch: Path | None = None) -> TaskStarter:
        """Return the counterpart of `launch.start_worker` for this cluster."""
        as_task = self.ray.remote(
            num_cpus=options.threads,
            num_gpus=self.gpus_per_cell(options),
            max_retries=RETRIES,
            max_calls=1,  # a new process for every cell: it frees its memory, and a crash ends no other cell
        )
        return TaskStarter(self.ray, as_task(run_job), scratch)


@dataclass(frozen=True)
class TaskStarter:
    """Submits cells to the cluster."""

    ray: Any
    task: Any
    scratch: Path | None

    def __call__(self, folder: Path, cell: str, slot: Slot, options: CellOptions) -> TaskWorker:
        """Submit a cell as a task; slots only limit the number of tasks."""
        host = socket.gethostname()
        job = CellJob(str(folder), host, cell, options)
        if self.scratch:
            digest = hashlib.sha256(f"{host}:{folder}".encode()).hexdigest()[:8]
            scratch = self.scratch / f"{folder.name}-{digest}"  # two grids may use the same scratch folder
            suite = read_text(folder / "suite.json")
            job = CellJob(str(folder), host, cell, options, str(scratch), suite)
        return TaskWorker(self.ray, self.task.remote(job), cell_folder(folder, cell))


@dataclass
class TaskWorker:
    """A task that computes a cell."""

    ray: Any
    task: Any
    folder: Path  # of the cell, on the launcher's machine
    is_stopping: bool = False

    def poll(self) -> int | None:
        """Write the files of an ended task to the cell's folder and return its exit code; None while it runs."""
        ready, _ = self.ray.wait([self.task], timeout=0)
        if not ready:
            return None
        outcome = self._outcome()
        write_outcome(self.folder, outcome)
        return outcome.code

    def _outcome(self) -> Outcome:
        errors = self.ray.exceptions
        try:
            outcome: Outcome = self.ray.get(self.task)
        except errors.TaskCancelledError:
            return Outcome(STOPPED)
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
            return Outcome(FAILED, message=f"its worker died {RETRIES + 1} times ({first_line(error)})")
        except errors.RayTaskError as error:
            message = f"a node could not start it ({last_line(error)}); every node needs the same version of ssdg"
            return Outcome(FAILED, message=message)
        except errors.LocalRayletDiedError as error:
            raise UserError("the Ray cluster has ended; restart it, then run the same command again") from error
        except errors.RayError as error:
            return Outcome(FAILED, message=f"Ray could not run the cell ({first_line(error)})")
        return outcome

    def stop(self) -> None:
        """Interrupt the task as Ctrl-C would, once: a second interrupt would end it immediately."""
        if not self.is_stopping:
            self.is_stopping = True
            self.ray.cancel(self.task)

    def kill(self) -> None:
        """End its process through Ray."""
        self.ray.cancel(self.task, force=True)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write new and changed files to the cell's folder; those that determine its state come last."""
    for name in sorted(outcome.files, key=lambda name: name in STATE_FILES):
        path, content = folder / name, outcome.files[name]
        if not (path.exists() and read_bytes(path, max_bytes=None) == content):
            write_bytes(path, content)
    if outcome.message:
        write_bytes(folder / "error.txt", f"{outcome.message}\n".encode())


def count_fitting_cells(nodes: Sequence[Mapping[str, float]], threads: int, num_gpus: int) -> int:
    """Return how many cells fit on nodes with these resources."""
    by_cores = [int(node.get("CPU", 0)) // threads for node in nodes]
    return sum(min(n, int(node.get("GPU", 0))) if num_gpus else n for n, node in zip(by_cores, nodes, strict=True))


@contextmanager
def join_cluster(address: str) -> Iterator[Cluster]:
    """Join the cluster at `HOST:PORT`; `auto` is the one that RAY_ADDRESS names or that runs on this machine."""
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # 1 would send the working directory to all nodes
    ray = import_ray()
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    if address != "auto":
        check_address(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (RuntimeError, ValueError, OSError) as error:
        if address == "auto" and isinstance(error, ConnectionError):
            problem = "no Ray cluster runs on this machine, or more than one, and RAY_ADDRESS is not set"
        else:
            problem = f"cannot join the Ray cluster at {address} ({first_line(error)})"
        raise UserError(f"{problem}; {HOW_TO_START}, or pass --ray HOST:PORT") from error
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """Import the package ray; raise `UserError` if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError("--ray needs the package ray, which is not installed; run pip install 'ssdg[ray]'") from error


def check_address(address: str) -> None:
    """Raise `UserError` if an address is invalid or nothing answers there; Ray itself would retry for a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise UserError(
            f"'{address}' is not an address of a Ray cluster (--ray or RAY_ADDRESS); "
            "use auto, or HOST:PORT of its head, on a machine of the cluster"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address} ({error}); {HOW_TO_START}, or correct --ray") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error message; Ray's messages are a page long."""
    return str(error).strip().split("\n")[0].rstrip(".")


def last_line(error: Exception) -> str:
    """Return the last line of an error message: the cause, below the traceback."""
    return str(error).strip().split("\n")[-1].rstrip(".")
