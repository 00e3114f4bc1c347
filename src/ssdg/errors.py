"""Exceptions that the command line reports in one sentence, without a traceback, and the text in their messages."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from reprlib import Repr

MAX_VALUE = 80  # characters of a value that a message repeats
# What zipfile and its decompressors raise on damaged archives, and numpy on damaged arrays, besides `OSError`.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    MemoryError,
    OverflowError,
    RuntimeError,  # includes NotImplementedError: an unknown compression method
    ValueError,
    SyntaxError,  # numpy parses the header of an array as Python
    tokenize.TokenError,
)


class UserError(ValueError):
    """Invalid user input.

    The message is one sentence: the problem, the allowed values, the fix.
    The command line prints it without a traceback and exits with code 2.
    """


class NotRegularFileError(OSError, UserError):
    """A pipe, device or socket in place of a file, which could block forever or never end.

    It is an `OSError`, so that a reader of many files lists it like any other file that cannot be read.
    """

    def __str__(self) -> str:
        return f"'{self.filename}' is a pipe, a device or a socket; give a regular file"


class TooLargeError(OSError, UserError):
    """A file with more bytes than its reader accepts; an `OSError` for the same reason."""

    def __str__(self) -> str:
        return f"'{self.filename}' has {self.strerror}"


class Note(UserWarning):
    """Something worth knowing about a run that is no error; the command line prints it on one line."""


class Stopped(Exception):
    """Interruption by the user after a checkpoint was written; the message says how to resume."""


class NotFinite(Exception):
    """NaN or infinite loss or weight; the last good checkpoint stays in place."""


def missing_package_message(error: ModuleNotFoundError) -> str:
    """Return the message for a missing package of the extra `train`; re-raise the error for any other module.

    Many modules import these packages; only the outermost caller reports the error.
    """
    name = (error.name or "").split(".")[0]
    if name not in ("torch", "accelerate", "safetensors"):
        raise error
    return f"this needs the package {name}, which is not installed; run pip install 'ssdg[train]'"


def one_line(text: str, max_length: int = 300) -> str:
    """Return untrusted text on one line, without control characters, truncated to `max_length`."""
    return truncate(printable(text), max_length)


def printable(text: str) -> str:
    """Return untrusted text on one line, without control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def truncate(text: str, max_length: int = MAX_VALUE) -> str:
    """Return the text, or its start and `…` if it is longer than `max_length`."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def brief(value: object) -> str:
    """Return a value for a message: its `repr`, shortened where the value is long, deep or wide."""
    try:
        return truncate(_SHORT.repr(value))
    except ValueError:  # an integer with too many digits to print
        return f"a value of type {type(value).__name__}"


_SHORT = Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxother = MAX_VALUE
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 6


def suggest(word: str, choices: list[str] | tuple[str, ...]) -> str:
    """Return ` (did you mean 'x'?)` for the closest of `choices`, or an empty string if none is close."""
    from difflib import get_close_matches

    matches = get_close_matches(word.lower(), [c.lower() for c in choices], n=1, cutoff=0.6)
    if not matches:
        return ""
    return f" (did you mean '{next(c for c in choices if c.lower() == matches[0])}'?)"


def unknown(kind: str, name: str, choices: list[str] | tuple[str, ...]) -> UserError:
    """Return the error for a name that is not among `choices`."""
    word = truncate(name)
    return UserError(f"unknown {kind} '{word}'{suggest(word, choices)}; choose from {', '.join(choices)}")


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun: `1 image`, `2,500 images`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
