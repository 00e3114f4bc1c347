"""`python -m ssdg.bench.worker DIR ID OPTIONS`: one cell in a process of its own, so that a crash is its alone."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .folder import Cell

DONE, FAILED, BUSY, STOPPED = 0, 1, 75, 130  # exit codes


@dataclass(frozen=True)
class Options:
    """Where and when a cell is computed, but not what. `cores` are those it is bound to; empty is any."""

    cache: str
    device: str = "auto"
    threads: int = 1
    save_seconds: float = 30.0
    cores: tuple[int, ...] = ()
    shelf: str = ""  # of stages that cells share; empty is that of the grid's folder


def main(words: list[str]) -> int:
    """Train the cell that the words name, or go on with it; returns the exit code."""
    folder, cell, options = Path(words[0]), words[1], Options(**json.loads(words[2]))
    if options.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, options.cores)
    Thread(target=stop_with_parent, daemon=True).start()
    return take_cell(folder, cell, options)


def take_cell(folder: Path, cell: str, options: Options) -> int:
    """Train a cell in this process, unless another process has it; returns the exit code."""
    from ..errors import UserError
    from ..files import locked
    from .folder import lock_of

    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock_of(folder, cell), busy="another worker has this cell"))
        except UserError:
            return BUSY
        return run_cell(folder, cell, options)


def stop_with_parent() -> None:
    """Wait for the end of standard input, which the launcher holds open while it lives; then ask for a stop."""
    os.read(0, 1)  # and not sys.stdin, whose lock would be held when the interpreter ends
    os.kill(os.getpid(), signal.SIGTERM)


def run_cell(folder: Path, cell: str, options: Options) -> int:
    """Train under the cell's lock; what goes wrong is left as a sentence in `error.txt`."""
    from ..errors import NotFinite, Stopped, UserError
    from ..files import write_text
    from .folder import error_of

    error_of(folder, cell).unlink(missing_ok=True)
    try:
        train(folder, cell, options)
    except (Stopped, KeyboardInterrupt):
        return STOPPED
    except (UserError, NotFinite) as error:
        told = str(error)
    except Exception as error:
        traceback.print_exc()
        told = f"{type(error).__name__}: {error}; worker.log beside this file has the traceback"
    else:
        return DONE
    write_text(error_of(folder, cell), " ".join(told.split()) + "\n")
    return FAILED


def train(folder: Path, cell: str, options: Options) -> None:
    """Open the cell's data and run it."""
    import torch

    from ..engine.run import run
    from ..engine.setup import open_run, with_others
    from ..errors import UserError
    from ..machine import start_machine
    from .folder import cell_folder, read_grid

    torch.set_num_threads(options.threads)
    cells = read_grid(folder).cells
    given = next(entry for entry in cells if entry.id == cell)
    config, problem = open_run(given.config, Path(options.cache), device=options.device)
    if config.hash != cell:
        raise UserError(f"cell {cell} of {folder} resolves to {config.hash} now; give another --out")
    problem = with_others(config, problem, sister_targets(given, cells), Path(options.cache))
    kept = {key: value for key, value in vars(options).items() if key not in ("cores", "shelf")}
    run(
        config,
        problem,
        cell_folder(folder, cell),
        start_machine(options.device, config.precision),
        save_seconds=options.save_seconds,
        shelf=Path(options.shelf) if options.shelf else folder / "shelf",
        about={"command": f"ssdg resume {cell_folder(folder, cell)}", "options": kept},
    )


def sister_targets(cell: Cell, cells: Sequence[Cell]) -> list[str]:
    """The targets of the cells that differ from this one by nothing else."""
    alike = [
        c for c in cells if (c.row, c.seed, c.config["labeled"]) == (cell.row, cell.seed, cell.config["labeled"])
    ]
    return sorted({str(c.config["target"]) for c in alike})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
