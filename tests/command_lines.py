"""Commands in shell scripts, checked against the real command line without running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from cyclopts import CycloptsError

from ssdg.cli import add_reject_default, app, replace_stdin_dash
from ssdg.cli.train import SETTING
from ssdg.config import parse_overrides, resolve
from ssdg.errors import UserError

HEREDOC = re.compile(r"<<-?'?(\w+)'?.*?\n\1$", re.DOTALL | re.MULTILINE)


def commands(script: str) -> Iterator[list[str]]:
    """The arguments of each `ssdg` command of a shell script, also behind pipes and in `python -m ssdg`."""
    pending = ""
    for line in HEREDOC.sub("", script).replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(pending + line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quotation that ends on a later line
            pending += line + "\n"
        else:
            pending = ""
            yield from _commands_of_words(words)


def _commands_of_words(words: list[str]) -> Iterator[list[str]]:
    ends = [n for n, word in enumerate(words) if re.fullmatch(r"[();<>|&]+|[{}]", word)]
    for start, end in zip([-1, *ends], [*ends, len(words)], strict=True):
        command = words[start + 1 : end]
        if "ssdg" in command and "install" not in command:
            yield [word for word in command[command.index("ssdg") + 1 :] if word != "..."]


def check_command(words: list[str]) -> None:
    """Parse a command without running it; for `ssdg train`, check its settings too."""
    known = replace_stdin_dash(add_reject_default(words))
    _, bound, _ = app.parse_args(known, exit_on_error=False, print_error=False)
    if words[:1] == ["train"] and "$" not in " ".join(words):
        check_settings(bound.arguments)


def check_settings(options: dict[str, Any]) -> None:
    """Resolve the settings of `ssdg train`; those of a plugin or of a file are not known here."""
    words = [*options.get("words", ()), *(options.get("unlabeled") or ()), *(options.get("web") or ())]
    settings = [word for word in words if SETTING.match(word)]
    if "plugin" in options or any("=" not in word for word in settings):
        return
    flags = {name: options[name] for name in ("method", "preset", "setting", "web_label") if name in options}
    resolve({"labeled": "x", "preset": "best", **flags, **parse_overrides(settings)}, kind="photo", size=224)


def wrong_commands(script: str) -> list[str]:
    """The commands that the command line refuses, with the reason."""
    wrong = []
    for words in commands(script):
        try:
            check_command(words)
        except (CycloptsError, UserError) as error:
            wrong.append(f"ssdg {' '.join(words)}: {error}")
    return wrong
