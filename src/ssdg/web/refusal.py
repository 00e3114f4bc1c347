"""Why a file was not kept: a word from a short list, and a detail for people."""

from __future__ import annotations

# fmt: off
REASONS = {
    "bad-url": "not an http or https address that can be asked for",
    "address": "leads to a private, loopback or otherwise not public address",
    "robots": "the robots.txt of its host forbids it",
    "unreachable": "no such host, no connection, or no HTTP answer",
    "busy": "the host answered 429 or 5xx",
    "status": "the host answered anything else than 200",
    "slow": "no whole answer in time",
    "redirects": "too many redirects, or a loop of them",
    "type": "not an image in one of the known formats",
    "too-large": "more bytes or pixels than allowed",
    "too-small": "fewer pixels on a side than asked for",
    "truncated": "the answer ended before its announced end",
    "broken": "cannot be decoded",
    "duplicate": "same content as the file that the detail names",
    "no-class": "its place or line tells no class",
    "not-asked": "of a class that --classes does not name",
    "outside": "its path leaves the given folder or archive",
    "unreadable": "the file is missing or cannot be read",
    "damaged": "its file is missing, cannot be decoded or is not the one that was recorded (audit)",
    "leak": "a copy of an image that it must not be trained with (audit)",
    "near-duplicate": "looks like the kept file that the detail names (audit)",
    "two-labels": "found by several keywords (audit --refuse two-labels)",
    "label-issue": "its web-label looks wrong (audit --refuse label-issues)",
    "outlier": "far from all other images (audit --refuse outliers)",
}
# fmt: on
PASSING = frozenset({"unreachable", "busy", "slow", "truncated"})  # may go better another time
_MOST_LETTERS = 300


class Refused(Exception):
    """This file cannot be kept; `reason` is one of `REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, one_line(detail)


class Spent(Exception):
    """A limit of the whole crawl is reached: nothing is wrong with the file that was being fetched."""


def one_line(text: str, most: int = _MOST_LETTERS) -> str:
    """The text in one line of printable letters: a server may have sent it."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(shown.split())[:most]
