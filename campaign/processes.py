"""Run commands in forked processes: everything is imported once, and every command starts from the same state."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ssdg
from ssdg.cli import call

Setup = Callable[[], object]  # called in the fork before the command: limits, hooks
# What commands import late. A fork would spend seconds on these before it reaches any code of ours.
LATE_IMPORTS = (
    "cleanlab.filter", "onnx", "onnxruntime", "onnxscript.function_libs.torch_lib.ops", "torch.onnx", "torch._dynamo",
    "networkx", "sklearn.neighbors",
)  # fmt: skip
CRASH = 70  # exit code of a command that ended with an exception
LIMIT = 20.0  # seconds of silence that count as a hang
TAIL = 4000  # characters of output that are kept
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FILE_EVENTS = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"})


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int | None  # negative: the signal that ended it; None: it hung and was killed
    output: str
    seconds: float
    memory: int  # bytes at its peak above those at its start, pages of libraries that it used included

    @property
    def crashed(self) -> bool:
        """Whether the user saw a traceback."""
        return self.code == CRASH or "Traceback (most recent call last)" in self.output

    @property
    def hung(self) -> bool:
        """Whether it had to be killed."""
        return self.code is None


def preload() -> None:
    """Import the whole package and what it imports late, so that forks have it from their start."""
    modules = pkgutil.walk_packages(ssdg.__path__, "ssdg.")
    for name in [*(module.name for module in modules if not module.name.endswith("__main__")), *LATE_IMPORTS]:
        with suppress(ImportError):  # the package of an extra
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # collections in the forks would copy every page


def run_command(
    words: Sequence[str | Path],
    folder: Path,
    *,
    setup: Setup | None = None,
    signal_after: tuple[int, float] | None = None,
    limit: float = LIMIT,
) -> Outcome:
    """Run `ssdg WORDS` in a fork with `folder` as working directory.

    Parameters
    ----------
    signal_after
        A signal and the seconds after which it is sent to the process.
    """
    reading, writing = os.pipe()
    started, before = time.monotonic(), own_bytes()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child([str(word) for word in words], folder, writing, setup)
    os.close(writing)
    output, hung = _watch(pid, reading, started, signal_after, limit)
    _, status, usage = os.wait4(pid, 0)
    kill_group(pid)
    memory = max(0, usage.ru_maxrss * 1024 - before)
    code = None if hung else os.waitstatus_to_exitcode(status)
    return Outcome(code, output, time.monotonic() - started, memory)


def own_bytes() -> int:
    """Return the bytes of this process in memory that are not of files; a fork starts with these."""
    resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - shared) * resource.getpagesize()


def _child(words: list[str], folder: Path, writing: int, setup: Setup | None) -> None:
    """Run the command and exit; never returns."""
    code = CRASH
    try:
        os.setsid()
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (writing, 1), (writing, 2)):
            os.dup2(source, target)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if setup is not None:
            setup()
        code = call(words)
    except BaseException:
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(code)


def _watch(
    pid: int, reading: int, started: float, signal_after: tuple[int, float] | None, limit: float
) -> tuple[str, bool]:
    """Collect output until the process ends; send the signal in time, and SIGKILL after the limit."""
    output, hung = b"", False
    pending = signal_after
    while True:
        passed = time.monotonic() - started
        if pending is not None and passed >= pending[1]:
            _signal(pid, pending[0])
            pending = None
        if passed > limit and not hung:
            hung = True
            _signal(pid, signal.SIGKILL)
        if select.select([reading], [], [], 0.02)[0]:
            data = os.read(reading, 65536)
            output = (output + data)[-TAIL:]
            if not data:
                break
        elif _has_ended(pid):  # a grandchild may hold the pipe
            break
    os.close(reading)
    return output.decode(errors="replace"), hung


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_group(pid: int) -> None:
    """Kill what the command started and left running."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def before_file_changes(root: Path, action: Callable[[int], None]) -> Setup:
    """Return a setup that calls `action` with 1, 2, 3, ... just before each change of a file below `root`.

    Processes that the command forks are left alone.
    """
    inside, count, pid = str(root), 0, 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            if not (isinstance(args[2], int) and args[2] & WRITING):
                return
        elif event not in FILE_EVENTS:
            return
        path = args[0]
        if isinstance(path, int) or not is_below(os.fsdecode(path), inside) or os.getpid() != pid:
            return
        count += 1
        action(count)

    def setup() -> None:
        nonlocal pid
        pid = os.getpid()
        sys.addaudithook(hook)

    return setup


def is_below(path: str, root: str) -> bool:
    """Return whether a path, absolute or relative to the working directory, is below `root`."""
    return (path if path.startswith("/") else f"{Path.cwd()}/{path}").startswith(root)


def count_file_changes(root: Path, counter: Path) -> Setup:
    """Return a setup that appends a byte to the file `counter` before each change of a file below `root`."""

    def count(_: int) -> None:
        with counter.open("ab") as file:
            file.write(b".")

    counter.write_bytes(b"")
    return before_file_changes(root, count)
