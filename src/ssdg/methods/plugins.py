"""Methods from a file of the user's: the file is run once and registers them."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from ..errors import UserError
from .api import METHODS


def load_plugin(path: Path) -> str:
    """Run the file, unless this process has done so, and return a digest of its content.

    A plugin is Python code and can do what you can: give only files that you trust.
    """
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise UserError(f"the plugin '{path}' cannot be read ({error.strerror}); give a Python file") from None
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
        for half_done in set(METHODS) - known:
            del METHODS[half_done]
        del sys.modules[name]
        line = _line_of(error, path)
        raise UserError(f"the plugin '{path}' fails{line}: {type(error).__name__}: {error}") from error
    if set(METHODS) == known:
        del sys.modules[name]
        raise UserError(f"the plugin '{path}' registers no method; call ssdg.methods.register in it")


def _line_of(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}"
    step, line = error.__traceback__, ""
    while step is not None:
        if step.tb_frame.f_code.co_filename == str(path):
            line = f" in line {step.tb_lineno}"
        step = step.tb_next
    return line
