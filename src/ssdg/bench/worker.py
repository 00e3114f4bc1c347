"""`python -m ssdg.bench.worker DIR ID OPTIONS`: train one cell in its own process, so that a crash ends no other."""

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
class CellOptions:
    """Where and how a cell is computed. Options are not part of its configuration."""

    cache: str
    device: str = "auto"
    threads: int = 1
    save_seconds: float = 30.0
    plugins: tuple[str, ...] = ()  # digests of plugins that the user has named
    shelf: str = ""  # folder of stages that cells share; empty: `shelf` in the benchmark folder


def main(args: list[str]) -> int:
    """Train or resume the cell that the arguments name; return the exit code."""
    folder, cell, options = Path(args[0]), args[1], CellOptions(**json.loads(args[2]))
    Thread(target=stop_with_parent, daemon=True).start()
    return run_if_free(folder, cell, options)


def run_if_free(folder: Path, cell: str, options: CellOptions) -> int:
    """Train a cell in this process unless another process holds its lock; return the exit code."""
    from ..errors import UserError
    from ..files import locked
    from .folder import lock_of

    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock_of(folder, cell), busy="another worker holds this cell"))
        except UserError:
            return BUSY
        return run_cell(folder, cell, options)


def stop_with_parent() -> None:
    """Wait for the end of standard input, which the launcher keeps open while it lives; then request a stop."""
    os.read(0, 1)  # not sys.stdin, whose lock would still be held at interpreter exit
    os.kill(os.getpid(), signal.SIGTERM)


def run_cell(folder: Path, cell: str, options: CellOptions) -> int:
    """Train under the cell's lock; on failure write a one-sentence reason to `error.txt`."""
    from ..errors import NotFinite, Stopped, UserError
    from ..files import write_text
    from .folder import error_of

    error_of(folder, cell).unlink(missing_ok=True)
    try:
        train(folder, cell, options)
    except (Stopped, KeyboardInterrupt):
        return STOPPED
    except (UserError, NotFinite) as error:
        message = str(error)
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}; see worker.log in the same folder for the traceback"
    else:
        return DONE
    write_text(error_of(folder, cell), " ".join(message.split()) + "\n")
    return FAILED


def train(folder: Path, cell_id: str, options: CellOptions) -> None:
    """Open the data of a cell and run it."""
    import torch

    from ..engine.run import run
    from ..engine.setup import open_settings, with_other_targets
    from ..errors import UserError
    from ..machine import start_machine
    from ..methods.plugins import confirm_plugins
    from .folder import cell_folder, read_grid

    torch.set_num_threads(options.threads)
    confirm_plugins(options.plugins)
    cells = read_grid(folder).cells
    cell = next(cell for cell in cells if cell.id == cell_id)
    config, problem = open_settings(cell.config, Path(options.cache), device=options.device)
    if config.hash != cell_id:
        raise UserError(f"cell {cell_id} of {folder} now resolves to {config.hash}; use another --out")
    problem = with_other_targets(config, problem, sibling_targets(cell, cells), Path(options.cache))
    run_options = {key: value for key, value in vars(options).items() if key not in ("plugins", "shelf")}
    run(
        config,
        problem,
        cell_folder(folder, cell_id),
        start_machine(options.device, config.precision),
        save_seconds=options.save_seconds,
        stage_cache=Path(options.shelf) if options.shelf else folder / "shelf",
        cache=Path(options.cache),
        provenance={"command": f"ssdg resume {cell_folder(folder, cell_id)}", "options": run_options},
    )


def sibling_targets(cell: Cell, cells: Sequence[Cell]) -> list[str]:
    """Return the targets of all cells with the same row, seed and labeled domain, this cell included."""
    key = (cell.row, cell.seed, cell.config["labeled"])
    return sorted({str(c.config["target"]) for c in cells if (c.row, c.seed, c.config["labeled"]) == key})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
