"""`ssdg report`."""

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
    """Write one page of a run, of several runs or of a benchmark: it needs no network and can be mailed.

    Parameters
    ----------
    folders
        Run folders, or folders that `ssdg bench` filled.
    out
        The page to write.  [default: report.html]
    watch
        Write nothing; serve the page to a browser on this machine and keep it fresh while a run is going on.
    port
        Of --watch; 0 takes a free one.  [default: 8737]
    """
    if not folders:
        raise UserError("no folder was given; name one or more run folders or a benchmark folder")
    if watch:
        if out is not None:
            raise UserError("--watch writes no page; leave out -o, or leave out --watch")
        return serve(folders, PORT if port is None else port)
    if port is not None:
        raise UserError("--port says nothing without --watch; leave it out, or add --watch")
    from ..files import write_text
    from ..report.page import build, render

    where = out or PAGE
    write_text(where, render(build(folders)))
    print(f"report: {where}")
    return 0


def serve(folders: tuple[Path, ...], port: int) -> int:
    """Answer a browser until Ctrl-C."""
    from ..report.page import address_of, make_server

    with make_server(folders, port) as server:
        print(f"report: {address_of(server)} (Ctrl-C ends it)", flush=True)
        server.serve_forever()
    return 0
