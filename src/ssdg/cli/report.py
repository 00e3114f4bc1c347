"""`ssdg report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import UserError

PAGE = Path("report.html")


def report(*folders: Path, out: Annotated[Path, Parameter(alias="-o")] = PAGE) -> int:
    """Write one page of a run, of several runs or of a benchmark: it needs no network and can be mailed.

    Parameters
    ----------
    folders
        Run folders, or folders that `ssdg bench` filled.
    out
        The page to write.
    """
    from ..files import write_text
    from ..report.build import build
    from ..report.page import render

    if not folders:
        raise UserError("no folder was given; name one or more run folders or a benchmark folder")
    write_text(out, render(build(folders)))
    print(f"report: {out}")
    return 0
