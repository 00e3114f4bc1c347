"""The commands of docs/getting-started.md with a schedule of seconds, as a reader would give them."""

from __future__ import annotations

import re

from .artifacts import ROOT

PAGE = ROOT / "docs" / "getting-started.md"
TUTORIAL_EXTRAS = ("train", "demo", "export")
# Shorter schedules: what the page says, and what is run instead.
SHORTER = {"warm_epochs: 20": "warm_epochs: 1\nepochs: 1\niterations: 5", "epochs=12": "epochs=1"}


def tutorial_commands() -> list[str]:
    """Return the shell blocks of the page without the installation; raise an error if a schedule is not there."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    blocks = [block for block in blocks if "pip install" not in block]
    for long, short in SHORTER.items():
        if not any(long in block for block in blocks):
            raise ValueError(f"{PAGE} has no '{long}'; update SHORTER")
        blocks = [block.replace(long, short) for block in blocks]
    return blocks
