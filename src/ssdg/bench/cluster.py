"""Run cells as tasks of a Ray cluster: each on a node with room for it, and again when its worker dies."""

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
from ..files import locked, write_bytes, write_text
from .folder import cell_folder, lock_of_launcher
from .launch import Slot, make_slots
from .worker import BUSY, FAILED, STOPPED, Options, take_cell

LAST_FILES = ("result.json", "error.txt")  # these tell the state of a cell


@dataclass(frozen=True)
class Order:
    """A cell for a node. Where no folder is shared, `scratch` is the node's own and `suite` its `suite.json`."""

    folder: str
    launcher: str  # the host
    cell: str
    options: Options
    scratch: str = ""
    suite: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: an exit code of `worker`, files by their name in its folder, a sentence where none tells."""

    code: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    told: str = ""


def work(order: Order) -> Outcome:
    """Train the cell, or go on with it from the checkpoint that the folder has."""
    threads = str(order.options.threads)
    os.environ.update(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
    folder = Path(order.scratch or order.folder)
    if order.scratch:
        with locked(folder / ".suite.lock"):
            write_text(folder / "suite.json", order.suite)
    elif not lock_of_launcher(folder, order.launcher).exists():
        return Outcome(FAILED, told=unseen(order))
    place = cell_folder(folder, order.cell)
    log_to(place / "worker.log")
    code = take_cell(folder, order.cell, order.options)
    return Outcome(code, {} if code == BUSY else files_of(place, everything=bool(order.scratch)))


def unseen(order: Order) -> str:
    """The sentence for a node that has not the launcher's folder."""
    return (
        f"node {socket.gethostname()} does not see {order.folder} of {order.launcher}; "
        "share this folder with every node, or give --scratch DIR, a folder that each node has of its own"
    )


def log_to(path: Path) -> None:
    """Let all that this process prints, also from C, go to a file; Ray gives the process to no other cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)


def files_of(place: Path, *, everything: bool) -> dict[str, bytes]:
    """What the launcher is to have of a cell: all but checkpoints and locks, or what tells its state.

    In a shared folder too: the launcher's machine may be told for half a minute that a new file is not there.
    """
    if not everything:
        return {name: (place / name).read_bytes() for name in LAST_FILES if (place / name).exists()}
    names = [path.relative_to(place) for path in sorted(place.rglob("*")) if path.is_file()]
    kept = [name for name in names if name.parts[0] != "stages" and not name.name.startswith(".")]
    return {str(name): (place / name).read_bytes() for name in kept}


RETRIES = 3  # of a cell whose worker died
PATIENCE_SECONDS = 10.0  # for a head that does not answer
HOW_TO_START = "start one with ray start --head --disable-usage-stats"


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process has joined. `ray` is the package, which need not be installed."""

    ray: Any

    def slots(self, jobs: int | None, options: Options) -> list[Slot]:
        """As many cells at a time as asked for; else as many as the nodes have room for now."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        gpus = self.gpus_of_a_cell(options)
        room = room_of(nodes, options.threads, gpus)
        if not room:
            wanted = f"{options.threads} CPUs" + (" and a GPU" if gpus else "")
            raise UserError(
                f"no node of the Ray cluster has {wanted} for a cell; "
                "give fewer --threads or --device cpu, or add a node with ray start --address"
            )
        return make_slots(jobs or room, options.threads, [])

    def gpus_of_a_cell(self, options: Options) -> int:
        """One if cells are to use CUDA; `auto` is a GPU for each if the cluster has any."""
        has_gpus = bool(self.ray.cluster_resources().get("GPU"))
        return int(options.device == "cuda" or (options.device == "auto" and has_gpus))

    def starter(self, options: Options, scratch: Path | None = None) -> Starter:
        """What gives cells to the cluster in the place of `launch.start_worker`."""
        as_task = self.ray.remote(
            num_cpus=options.threads,
            num_gpus=self.gpus_of_a_cell(options),
            max_retries=RETRIES,
            max_calls=1,  # a process of its own for every cell: memory is given back, and a crash is its alone
        )
        return Starter(self.ray, as_task(work), scratch)


@dataclass(frozen=True)
class Starter:
    """Gives a cell to the cluster."""

    ray: Any
    task: Any
    scratch: Path | None

    def __call__(self, folder: Path, cell: str, slot: Slot, options: Options) -> TaskWorker:
        """The cell as a task; the slot only limits how many there are."""
        host = socket.gethostname()
        order = Order(str(folder), host, cell, options)
        if self.scratch:
            mark = hashlib.sha256(f"{host}:{folder}".encode()).hexdigest()[:8]
            place = self.scratch / f"{folder.name}-{mark}"  # two grids may have the same scratch
            suite = (folder / "suite.json").read_text(encoding="utf-8")
            order = Order(str(folder), host, cell, options, str(place), suite)
        return TaskWorker(self.ray, self.task.remote(order), cell_folder(folder, cell))


@dataclass
class TaskWorker:
    """A task at a cell."""

    ray: Any
    task: Any
    place: Path
    is_asked: bool = False

    def poll(self) -> int | None:
        """How the cell ended, after what came back of it has been written into its folder here."""
        ready, _ = self.ray.wait([self.task], timeout=0)
        if not ready:
            return None
        outcome = self._outcome()
        bring_home(self.place, outcome)
        return outcome.code

    def _outcome(self) -> Outcome:
        errors = self.ray.exceptions
        try:
            outcome: Outcome = self.ray.get(self.task)
        except errors.TaskCancelledError:
            return Outcome(STOPPED)
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
            return Outcome(FAILED, told=f"its worker died {RETRIES + 1} times ({first_line(error)})")
        except errors.RayTaskError as error:
            told = f"a node could not begin ({last_line(error)}); every node needs the same version of ssdg"
            return Outcome(FAILED, told=told)
        except errors.LocalRayletDiedError as error:
            raise UserError("the Ray cluster has ended; start it again, then give the same command again") from error
        except errors.RayError as error:
            return Outcome(FAILED, told=f"Ray gave the cell up ({first_line(error)})")
        return outcome

    def stop(self) -> None:
        """Interrupt it as Ctrl-C would; a second time would end it at once."""
        if not self.is_asked:
            self.is_asked = True
            self.ray.cancel(self.task)

    def kill(self) -> None:
        """Let Ray end its process."""
        self.ray.cancel(self.task, force=True)


def bring_home(place: Path, outcome: Outcome) -> None:
    """Write what came back that is not there already; what tells the state of the cell comes last."""
    for name in sorted(outcome.files, key=lambda name: name in LAST_FILES):
        path, content = place / name, outcome.files[name]
        if not (path.exists() and path.read_bytes() == content):
            write_bytes(path, content)
    if outcome.told:
        write_bytes(place / "error.txt", f"{outcome.told}\n".encode())


def room_of(nodes: Sequence[Mapping[str, float]], threads: int, gpus: int) -> int:
    """How many cells fit on nodes with these resources."""
    by_cores = [int(node.get("CPU", 0)) // threads for node in nodes]
    return sum(min(n, int(node.get("GPU", 0))) if gpus else n for n, node in zip(by_cores, nodes, strict=True))


@contextmanager
def joined_cluster(address: str) -> Iterator[Cluster]:
    """Join the cluster at `HOST:PORT`, or with `auto` the one that RAY_ADDRESS names or that runs on this machine."""
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # it would send the working directory to all nodes
    ray = import_ray()
    named = (address == "auto" and os.environ.get("RAY_ADDRESS")) or address
    if named != "auto":
        check_answers(named)
    try:
        ray.init(address=named, log_to_driver=False, logging_level="ERROR")
    except (RuntimeError, ValueError, OSError) as error:
        if named == "auto" and isinstance(error, ConnectionError):
            told = "no Ray cluster runs on this machine, or more than one, and RAY_ADDRESS is not set"
        else:
            told = f"the Ray cluster at {named} cannot be joined ({first_line(error)})"
        raise UserError(f"{told}; {HOW_TO_START}, or give --ray HOST:PORT") from error
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """The package, or a sentence on how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError("--ray needs the package ray, which is not installed; run pip install 'ssdg[ray]'") from error


def check_answers(address: str) -> None:
    """Refuse an address at which nobody answers; Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise UserError(
            f"'{address}' is no address of a Ray cluster (--ray, or RAY_ADDRESS); "
            "give auto, or HOST:PORT of its head, on a machine that is part of it"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address} ({error}); {HOW_TO_START}, or correct --ray") from error


def first_line(error: Exception) -> str:
    """Of what an error says; Ray's go on for a page."""
    return str(error).strip().split("\n")[0].rstrip(".")


def last_line(error: Exception) -> str:
    """Of what an error says: the cause, after its traceback."""
    return str(error).strip().split("\n")[-1].rstrip(".")
