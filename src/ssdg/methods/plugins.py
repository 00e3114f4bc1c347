"""Load plugins: Python files of the user that register methods."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from ..errors import UserError
from ..files import read_bytes
from .api import METHODS


def load_plugin(path: Path) -> str:
    """Run a plugin once per process and return a digest of its content.

    A plugin is Python code with all your permissions: load only files that you trust.
    """
    try:
        digest = hashlib.sha256(read_bytes(path)).hexdigest()[:16]
    except OSError as error:
        raise UserError(f"the plugin '{path}' cannot be read ({error.strerror}); pass a Python file") from None
    name = f"ssdg_plugin_{digest}"
    if name not in sys.modules:
        _run(path, name)
    return digest


def _run(path: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"the plugin '{path}' is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    known = set(METHODS)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        for registered in set(METHODS) - known:
            del METHODS[registered]
        del sys.modules[name]
        line = _describe_line(error, path)
        raise UserError(f"the plugin '{path}' failed{line}: {type(error).__name__}: {error}") from error
    if set(METHODS) == known:
        del sys.modules[name]
        raise UserError(f"the plugin '{path}' registers no method; it must call ssdg.methods.register")


def _describe_line(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f" on line {error.lineno}"
    frame, line = error.__traceback__, ""
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(path):
            line = f" on line {frame.tb_lineno}"
        frame = frame.tb_next
    return line
