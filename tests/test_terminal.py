"""What reaches the terminal: names cannot control it, and signals end a command with one word."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.table import Table

from runs import environment
from ssdg.cli import call
from ssdg.terminal import Console, EscapingStream, escape_controls
from worlds import write_world

ROOT = Path(__file__).parent.parent / "src" / "ssdg"
EVIL = "a\x1b]0;title\x07\x1b[2Jb\u202ec\x9b"


def test_control_characters_are_escaped() -> None:
    assert escape_controls(EVIL) == r"a\x1b]0;title\x07\x1b[2Jb\u202ec\x9b"
    assert escape_controls("Straße 例\n\t") == "Straße 例\n\t"
    assert escape_controls("\udcff") == r"\udcff"


def test_a_console_keeps_its_own_colors_only() -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=200)
    table = Table("class")
    table.add_row(EVIL)
    console.print(table)
    console.print(f"[red]{EVIL}[/red]", EVIL)
    assert "\x1b[" in file.getvalue()
    assert not re.search("\x1b(?!\\[[0-9;]*m)|\x07|\u202e|\x9b", file.getvalue())


def test_print_is_escaped() -> None:
    file = StringIO()
    print(EVIL, file=EscapingStream(file))  # type: ignore[arg-type]
    assert file.getvalue() == escape_controls(EVIL) + "\n"


def test_every_module_prints_through_this_console() -> None:
    users = [path for path in ROOT.rglob("*.py") if "rich.console import Console\n" in path.read_text("utf-8")]
    assert not users


def on_terminal(*words: object, env: dict[str, str] | None = None) -> bytes:
    """What a command shows on a terminal."""
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "ssdg", *map(str, words)]
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment(env))
    os.close(terminal)
    output = b""
    while True:
        try:
            block = os.read(main, 4096)
        except OSError:  # Linux: the other end is closed
            break
        if not block:
            break
        output += block
    process.wait()
    os.close(main)
    return output


def test_names_of_classes_and_files_do_not_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    name = "a\x1b]0;title\x07"
    world = write_world(tmp_path / "world", ("photo", "sketch"), 1)
    for domain in ("photo", "sketch"):
        (world / domain / "bar").rename(world / domain / name)
        (world / domain / name / "0.png").write_bytes(b"")
    shown = on_terminal("data", "describe", world)
    shown += on_terminal("data", "verify", world)
    shown += on_terminal("evaluate", tmp_path / name, "--data", tmp_path)
    assert b"\x1b]" not in shown
    assert b"\\x1b]0;title" in shown


def test_a_line_break_in_a_name_does_not_break_the_sentence(complaint) -> None:  # type: ignore[no-untyped-def]
    assert r"a\nb" in complaint("report", "a\nb")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_training_is_one_word_and_code_130(number: signal.Signals, tmp_path: Path) -> None:
    script = "import os, signal, ssdg.cli as c\nc.app = lambda *a, **k: os.kill(os.getpid(), {})\nc.main(['x'])"
    process = subprocess.run(
        [sys.executable, "-c", script.format(int(number))], capture_output=True, text=True, env=environment()
    )
    assert (process.returncode, process.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_modules_are_imported(number: signal.Signals, tmp_path: Path) -> None:
    """A module that the command line imports first sends the signal, and hides the exception as numpy does."""
    code = """
import os, time
try:
    os.kill(os.getpid(), {})
    time.sleep(5)
except BaseException:
    raise ImportError
"""
    (tmp_path / "cyclopts.py").write_text(code.format(int(number)))
    process = subprocess.run(
        [sys.executable, "-m", "ssdg", "--help"],
        capture_output=True,
        text=True,
        env=environment({"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT.parent}"}),
    )
    assert (process.returncode, process.stderr) == (130, "interrupted\n")


def test_an_import_that_hides_the_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*args: object, **options: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:
            raise ImportError("numpy._core.multiarray failed to import") from None

    monkeypatch.setattr("ssdg.cli.app", command)
    assert call(["methods"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
