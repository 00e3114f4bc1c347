"""What an audit finds wrong with single images: damage, leaks, and copies of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..data.manifest import Row
from ..data.sources import Item
from .inspection import Seen
from .signatures import Match, copies, nearest
from .store import DAMAGED

LEAK, DUPLICATE, NEAR = "leak", "duplicate", "near-duplicate"


@dataclass(frozen=True)
class Finding:
    """What is wrong with one image; `other` is the image that it is a copy of."""

    kind: str  # damaged, leak, duplicate or near-duplicate
    detail: str
    other: str = ""
    similarity: float | None = None


def find_damage(seen: Seen) -> dict[int, Finding]:
    """The images that cannot be used."""
    return {number: Finding(DAMAGED, why) for number, why in sorted(seen.damage.items())}


def find_leaks(seen: Seen, others: Seen, items: Sequence[Item], least: float) -> dict[int, Finding]:
    """The images of the crawl that are among the others, by content or by look."""
    if not items or not seen.hashes:
        return {}
    same = {sha256: number for number, sha256 in reversed(list(enumerate(others.hashes))) if sha256}
    found = {}
    for number, match in enumerate(nearest(seen.signatures, others.signatures)):
        if seen.hashes[number] in same:
            match = Match(same[seen.hashes[number]], 1.0, mirrored=False)
        if match.similarity >= least and number not in seen.damage:
            found[number] = _finding(LEAK, items[match.index].path, match, seen, others, number)
    return found


def find_copies(rows: Sequence[Row], seen: Seen, among: Sequence[int], least: float) -> dict[int, Finding]:
    """The images that are copies of one that stays: the one of most pixels, and of these the first of `among`."""
    order = sorted(among, key=lambda number: -int(seen.pixels[number]))
    first: dict[str, int] = {}
    for number in order:
        first.setdefault(seen.hashes[number], number)
    found = {
        number: Match(first[seen.hashes[number]], 1.0, mirrored=False)
        for number in order
        if first[seen.hashes[number]] != number
    }
    found |= copies(seen.signatures, [number for number in order if number not in found], least)
    for number, match in found.items():  # an exact copy of a near copy is a copy of what stays
        if match.index in found:
            found[number] = replace(match, index=found[match.index].index)
    return {
        number: _finding(NEAR, rows[match.index].path, match, seen, seen, number) for number, match in found.items()
    }


def _finding(kind: str, other: str, match: Match, seen: Seen, others: Seen, number: int) -> Finding:
    if seen.hashes[number] == others.hashes[match.index]:
        return Finding(DUPLICATE if kind == NEAR else kind, f"same content as {other}", other, 1.0)
    turned = ", mirrored" if match.mirrored else ""
    similarity = round(min(match.similarity, 1.0), 4)
    return Finding(kind, f"looks like {other} (similarity {similarity:.3f}{turned})", other, similarity)


def other_labels(rows: Sequence[Row], copied: Mapping[int, Finding], refused: Sequence[Row]) -> dict[int, list[str]]:
    """For images that stay: other web-labels that the same image was found by, here or when it was recorded."""
    by_path = {row.path: number for number, row in enumerate(rows)}
    pairs = [(rows[number].label, copy.other) for number, copy in copied.items()]
    pairs += [(row.label, row.detail) for row in refused if row.reason == DUPLICATE]
    found: dict[int, set[str]] = {}
    for label, other in pairs:
        number = by_path.get(other)
        if number is not None and label != rows[number].label:
            found.setdefault(number, set()).add(label)
    return {number: sorted(labels) for number, labels in sorted(found.items())}
