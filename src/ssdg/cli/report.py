"""The command `ssdg report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import UserError

PAGE = Path("report.html")
PORT = 8737


def report(
    *folders: Path,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    watch: Annotated[bool, Parameter(negative=())] = False,
    port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None,
) -> int:
    """Write a self-contained HTML page about a run, several runs or a benchmark.

    Parameters
    ----------
    folders
        Run folders, or folders of `ssdg bench`.
    out
        The page to write.  [default: report.html]
    watch
        Write no file; serve the page to a browser on this machine and update it while a run trains.
    port
        The port of --watch; 0 chooses a free one.  [default: 8737]
    """
    if not folders:
        raise UserError("no folder was given; name one or more run folders or a benchmark folder")
    if watch:
        if out is not None:
            raise UserError("--watch writes no page; leave out -o, or leave out --watch")
        return serve(folders, PORT if port is None else port)
    if port is not None:
        raise UserError("--port has no effect without --watch; leave it out, or add --watch")
    from ..files import write_text
    from ..report.page import build, render

    path = out or PAGE
    write_text(path, render(build(folders)))
    print(f"report: {path}")
    return 0


def serve(folders: tuple[Path, ...], port: int) -> int:
    """Serve the page until Ctrl-C."""
    from ..report.page import address_of, make_server

    with make_server(folders, port) as server:
        print(f"report: {address_of(server)} (Ctrl-C ends it)", flush=True)
        server.serve_forever()
    return 0
