"""Patterns such as `photos/**/*.jpg`, matched while folders are walked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

DEEP = "**"  # any number of folders, also none


@dataclass(frozen=True)
class Pattern:
    """The folder where a pattern begins, how it is written in paths, and the pattern below it."""

    root: str
    shown: str
    parts: tuple[str, ...]

    @classmethod
    def of(cls, word: str) -> Pattern:
        """Take a word apart."""
        parts = Path(word).parts
        fixed = next(n for n, part in enumerate(parts) if has_magic(part))
        root = str(Path(*parts[:fixed]))
        return cls(root, root if fixed else "", parts[fixed:])

    def takes(self, names: Sequence[str]) -> bool:
        """Whether it matches a file."""
        return fits(names, self.parts)

    def leads_to(self, names: Sequence[str]) -> bool:
        """Whether it can match anything below a folder."""
        return may_lead(names, self.parts)


def has_magic(part: str) -> bool:
    """Whether a name stands for several."""
    return any(sign in part for sign in "*?[")


def is_pattern(word: str) -> bool:
    """Whether a word is a pattern; a file that is really called so is a file."""
    return has_magic(word) and not os.path.lexists(word)


def fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the names of folders and file match the parts of a pattern, all of them."""
    if not parts:
        return not names
    if parts[0] == DEEP:
        return fits(names, parts[1:]) or (bool(names) and fits(names[1:], parts))
    return bool(names) and fnmatchcase(names[0], parts[0]) and fits(names[1:], parts[1:])


def may_lead(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether names of folders match the beginning of a pattern that goes on below them."""
    if not names:
        return bool(parts)
    if not parts or parts[0] == DEEP:
        return bool(parts)
    return fnmatchcase(names[0], parts[0]) and may_lead(names[1:], parts[1:])
