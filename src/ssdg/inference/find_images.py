"""Find the images that a command names: folders, files, patterns, archives and lists, as a stream."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from io import BufferedIOBase
from pathlib import Path

from ..data.sources.tree import IMAGE_SUFFIXES, NO_IMAGES, Item, archive_items, is_junk, printable, suffix_of
from ..errors import UserError

STDIN = "/dev/stdin"  # the word for a list on standard input
NAMES = 20_000  # of one folder that are in memory at once
_CHUNK = 1 << 16
_LONGEST = 1 << 16  # bytes of a path in a list; systems allow 4,096


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that was named or found and cannot be read as images."""

    path: str
    reason: str


Found = Item | Refused
Ancestors = frozenset[tuple[int, int]]


def check_words(words: Sequence[str]) -> None:
    """Refuse words that lead to no image, before time is spent; of a list nothing is known yet."""
    if not words:
        raise UserError(
            "no images were given; name images, folders, .zip archives or patterns after the model, or - for a list "
            "of paths on standard input"
        )
    if words.count(STDIN) > 1:
        raise UserError("standard input was given twice (-); it can be read once")
    for word in words:
        if word != STDIN:
            _check_word(word)


def _check_word(word: str) -> None:
    if not is_pattern(word) and not Path(word).exists():
        raise UserError(f"'{word}' does not exist; give images, a folder, a .zip archive or a pattern in quotes")
    first, root = next(find_word(word), None), Pattern.of(word).shown if is_pattern(word) else str(Path(word))
    if first is None:
        what = "matches no image" if is_pattern(word) else "holds no image"
        raise UserError(f"'{word}' {what}; give images, a folder or a .zip archive of images")
    if isinstance(first, Refused) and first.path == root:
        raise UserError(f"'{root}' {first.reason}; give images, a folder or a .zip archive of images")


def find(words: Sequence[str], listed: BufferedIOBase | None = None, *, null: bool = False) -> Iterator[Found]:
    """Every image behind the words, in their order, its path as the user would write it; `listed` stands for `-`.

    In a folder names are sorted, so that the same words give the same order again.
    """
    for word in words:
        if word == STDIN and listed is not None:
            for line in read_list(listed, null=null):
                yield from find_path(line)
        else:
            yield from find_word(word)


def find_word(word: str) -> Iterator[Found]:
    """The images behind one word of the command."""
    if is_pattern(word):
        pattern = Pattern.of(word)
        yield from _walk(pattern.root, pattern.shown, pattern, (), frozenset())
    else:
        yield from find_path(word)


def find_path(path: str) -> Iterator[Found]:
    """The images of a folder or an archive, or the one file, whatever it is called."""
    shown = printable(str(Path(path)))
    if os.path.isdir(path):  # noqa: PTH112 - a Path per line of a long list costs time
        yield from _walk(path, shown, None, (), frozenset())
    elif not os.path.isfile(path):  # noqa: PTH113
        yield Refused(shown, "is no file" if os.path.lexists(path) else "does not exist")
    elif suffix_of(path) == ".zip":
        yield from _archived(Path(path), shown, "", "")
    else:
        yield Item(shown, path)


def read_list(listed: BufferedIOBase, *, null: bool) -> Iterator[str]:
    """The paths of a list, one per line, or each ended by a NUL."""
    end, rest = b"\0" if null else b"\n", b""
    while chunk := listed.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(end)
        if len(rest) > _LONGEST:
            hint = "leave --null out" if null else "give one path per line"
            raise UserError(f"the list on standard input has a path of more than {_LONGEST:,} bytes; {hint}")
        yield from _paths(lines, null=null)
    yield from _paths([rest], null=null)


def _paths(lines: Sequence[bytes], *, null: bool) -> Iterator[str]:
    for line in lines:
        if b"\0" in line:
            raise UserError("the list on standard input is separated by NUL characters; add --null")
        if path := line if null else line.rstrip(b"\r"):
            yield os.fsdecode(path)


def _walk(
    folder: str, shown: str, pattern: Pattern | None, at: tuple[str, ...], ancestors: Ancestors
) -> Iterator[Found]:
    """The images below `folder`, `at` in the pattern; a link to an ancestor is not followed, so a loop ends."""
    try:
        here = os.stat(folder)  # noqa: PTH116
        identity = (here.st_dev, here.st_ino)
        if identity in ancestors or os.path.lexists(f"{folder}/{NO_IMAGES}"):
            return
        for name, is_folder in _entries(folder):
            path, told, place = f"{folder}/{name}", _joined(shown, name), (*at, name)
            if is_folder:
                if pattern is None or pattern.leads_to(place):
                    yield from _walk(path, told, pattern, place, ancestors | {identity})
            elif pattern is not None and not pattern.takes(place):
                continue
            elif suffix_of(name) == ".zip":
                yield from _archived(Path(path), told, shown, folder)
            elif suffix_of(name) in IMAGE_SUFFIXES:
                yield Item(told, path)
    except OSError as error:
        yield Refused(shown, f"cannot be read: {error.strerror or error}")


def _entries(folder: str) -> Iterator[tuple[str, bool]]:
    """Names in a folder and whether each is a folder, in the order of their paths.

    A folder of a million files is gone through several times, so that no list of all is ever made.
    """
    last = ""
    while True:
        with os.scandir(folder) as entries:
            keys = (
                f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries if not is_junk(entry.name)
            )
            names = heapq.nsmallest(NAMES, (key for key in keys if key > last))
        for name in names:
            yield name.removesuffix("/"), name.endswith("/")
        if len(names) < NAMES:
            return
        last = names[-1]


def _joined(shown: str, name: str) -> str:
    return f"{shown}/{printable(name)}" if shown else printable(name)


def _archived(archive: Path, told: str, shown: str, folder: str) -> Iterator[Found]:
    """The images of an archive; of one in a folder, as if unpacked there, without those that are unpacked already."""
    try:
        items = list(archive_items(archive, "", set(), mount_at_stem=bool(folder)))
    except UserError as error:
        yield Refused(told, f"cannot be read: {error.__context__ or error}")
        return
    for item in sorted(items, key=lambda item: (item.path, item.entry)):
        if suffix_of(item.path) in IMAGE_SUFFIXES and not (folder and os.path.lexists(f"{folder}/{item.path}")):
            yield replace(item, path=_joined(shown if folder else told, item.path))


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
