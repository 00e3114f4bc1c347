"""What a node of a cluster does with a cell: the code of local workers, in the process that Ray gives."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..files import locked, write_text
from .folder import cell_folder, lock_of_launcher
from .worker import BUSY, FAILED, Options, take_cell

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
