"""Load plugins: Python files of the user that register methods.

A plugin runs with all your permissions, so only you can name one. Files that somebody else may have written, such as
`run.json` and suite files, can name one too, but it runs only if you have confirmed its content: by naming it on
the command line or in code. Names on the command line are remembered in the user's config folder, by content.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..errors import UserError
from ..files import open_file, read_text, user_folder
from .api import METHODS

MEMORY = "plugins.sha256"  # a line per confirmed content: its digest and the path it was named by
MAX_BYTES = 10_000_000
_confirmed: set[str] = set()  # digests, in this process


def load_plugin(path: Path, *, remember: bool = False) -> str:
    """Run a plugin that the user names, once per process, and return a short digest of its content.

    Naming a plugin confirms its content; `remember` confirms it for later commands of this user as well.
    """
    source = _read(path)
    digest = _digest(source)
    _confirmed.add(digest)
    if remember:
        _remember(digest, path)
    return _run_once(path, source)


def load_confirmed_plugin(path: Path) -> str:
    """Run a plugin that a file names, if the user has confirmed its content; return a short digest of it."""
    source = _read(path)
    digest = _digest(source)
    if digest not in _confirmed and digest not in _remembered():
        name = shlex.quote(str(path))
        raise UserError(
            f"a file names the plugin {name}, which was not run, because you have not confirmed its content; read it "
            f"and, if you trust it, add --plugin {name} (for ssdg bench: plugin={name})"
        )
    _confirmed.add(digest)
    return _run_once(path, source)


def plugin_digest(path: Path) -> str:
    """Return the short digest of a plugin's content, which `load_plugin` returns, without running it."""
    return _digest(_read(path))[:16]


def confirmed_plugins() -> tuple[str, ...]:
    """Return the digests that count as confirmed in this process, for its worker processes."""
    return tuple(sorted(_confirmed))


def confirm_plugins(digests: Iterable[str]) -> None:
    """Confirm contents that the process that started this one has confirmed."""
    _confirmed.update(digests)


def _remembered() -> set[str]:
    try:
        lines = read_text(user_folder("config") / MEMORY, errors="replace").splitlines()
    except (OSError, UserError):
        return set()
    return {line.split(" ")[0] for line in lines}


def _remember(digest: str, path: Path) -> None:
    """Append the digest to the user's file; without a config folder, the next command asks again."""
    if digest in _remembered():
        return
    with suppress(OSError, UserError):
        memory = user_folder("config") / MEMORY
        memory.parent.mkdir(parents=True, exist_ok=True)
        with open_file(memory, "ab") as file:
            file.write(f"{digest}  {str(path.absolute())!r}\n".encode())


def _read(path: Path) -> bytes:
    if path.suffix != ".py":
        raise UserError(f"the plugin '{path}' is not a Python file; its name must end in .py")
    try:
        with open_file(path) as file:
            source = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"the plugin '{path}' cannot be read ({reason}); pass a Python file") from None
    if len(source) > MAX_BYTES:
        raise UserError(f"the plugin '{path}' is larger than {MAX_BYTES:,} bytes; pass a Python file")
    return source


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _run_once(path: Path, source: bytes) -> str:
    short = _digest(source)[:16]
    name = f"ssdg_plugin_{short}"
    if name not in sys.modules:
        _run(path, name, source)
    return short


def _run(path: Path, name: str, source: bytes) -> None:
    """Execute the bytes of the digest: neither a file that changed since nor a cached .pyc next to it."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "the name ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    known = set(METHODS)
    try:
        exec(compile(source, str(path), "exec"), vars(module))
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
