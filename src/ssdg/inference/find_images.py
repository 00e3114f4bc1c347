"""Find the images that a command names: folders, files, patterns, archives and lists, as a stream."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from io import BufferedIOBase
from pathlib import Path

from ..data.sources.tree import (
    IMAGE_SUFFIXES,
    MAX_VISITS,
    NO_IMAGES,
    TOO_DEEP,
    TOO_OFTEN,
    Identity,
    Item,
    archive_items,
    is_folder,
    is_junk,
    loop_reason,
    printable,
    suffix_of,
)
from ..data.sources.zip_entries import MAX_DEPTH
from ..errors import UserError

STDIN = "/dev/stdin"  # the input that stands for a list on standard input
MAX_NAMES = 20_000  # names of one folder in memory at once
ANY_FOLDERS = "**"  # matches any number of folders, including none
_CHUNK = 1 << 16
_MAX_PATH = 1 << 16  # bytes of a path in a list; systems allow 4,096


@dataclass(frozen=True, slots=True)
class UnreadablePath:
    """A path that cannot be read as images, and why."""

    path: str
    reason: str


Entry = Item | UnreadablePath


def check_inputs(inputs: Sequence[str]) -> None:
    """Reject inputs without any image, before the model is loaded; the content of a list is not checked."""
    if not inputs:
        raise UserError(
            "no images given; name images, folders, .zip archives or patterns, or - for a list of paths on standard "
            "input"
        )
    if inputs.count(STDIN) > 1:
        raise UserError("standard input is given twice (-), but can be read only once; leave out one")
    for value in inputs:
        if value != STDIN:
            _check_input(value)


def _check_input(value: str) -> None:
    if not is_pattern(value) and not Path(value).exists():
        raise UserError(f"'{value}' does not exist; give images, a folder, a .zip archive or a quoted pattern")
    first = next(iter_input(value), None)
    root = Pattern.parse(value).display_root if is_pattern(value) else str(Path(value))
    if first is None:
        problem = "matches no image" if is_pattern(value) else "contains no image"
        raise UserError(f"'{value}' {problem}; give images, a folder or a .zip archive of images")
    if isinstance(first, UnreadablePath) and first.path == root:
        raise UserError(f"'{root}' {first.reason}; give images, a folder or a .zip archive of images")


def find_images(
    inputs: Sequence[str], path_list: BufferedIOBase | None = None, *, null: bool = False
) -> Iterator[Entry]:
    """Yield every image of the inputs, in their order, with paths as the user would write them.

    `path_list` is read where the input is `-`. Names in a folder are sorted, so the order is reproducible.
    """
    for value in inputs:
        if value == STDIN and path_list is not None:
            for path in read_list(path_list, null=null):
                yield from iter_path(path)
        else:
            yield from iter_input(value)


def iter_input(value: str) -> Iterator[Entry]:
    """Yield the images of one input of the command."""
    if is_pattern(value):
        pattern = Pattern.parse(value)
        yield from _walk(pattern.root, pattern.display_root, pattern, (), frozenset(), Counter())
    else:
        yield from iter_path(value)


def iter_path(path: str) -> Iterator[Entry]:
    """Yield the images of a folder or an archive, or the single file, whatever its suffix."""
    display_path = printable(str(Path(path)))
    if os.path.isdir(path):  # noqa: PTH112 - a Path per line of a long list is slow
        yield from _walk(path, display_path, None, (), frozenset(), Counter())
    elif not os.path.isfile(path):  # noqa: PTH113
        yield UnreadablePath(display_path, "is not a regular file" if os.path.lexists(path) else "does not exist")
    elif suffix_of(path) == ".zip":
        yield from _iter_archive(Path(path), display_path, "", "")
    else:
        yield Item(display_path, path)


def read_list(path_list: BufferedIOBase, *, null: bool) -> Iterator[str]:
    """Yield the paths of a list, one per line, or each terminated by a NUL."""
    end, rest = b"\0" if null else b"\n", b""
    while chunk := path_list.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(end)
        if len(rest) > _MAX_PATH:
            hint = "leave out --null" if null else "give one path per line"
            raise UserError(f"the list on standard input has a path of more than {_MAX_PATH:,} bytes; {hint}")
        yield from _decode_paths(lines, null=null)
    yield from _decode_paths([rest], null=null)


def _decode_paths(lines: Sequence[bytes], *, null: bool) -> Iterator[str]:
    for line in lines:
        if b"\0" in line:
            raise UserError("the list on standard input is separated by NUL characters; add --null")
        if path := line if null else line.rstrip(b"\r"):
            yield os.fsdecode(path)


def _walk(
    folder: str,
    display_folder: str,
    pattern: Pattern | None,
    parts: tuple[str, ...],
    ancestors: frozenset[Identity],
    visits: Counter[Identity],
) -> Iterator[Entry]:
    """Yield the images below `folder`, which is at `parts` below the pattern's root.

    A link to an ancestor is not followed, so loops end; nor is a folder listed more than `MAX_VISITS` times.
    """
    try:
        stat = os.stat(folder)  # noqa: PTH116
        identity = (stat.st_dev, stat.st_ino)
        if identity in ancestors or os.path.lexists(f"{folder}/{NO_IMAGES}"):
            return
        visits[identity] += 1
        if visits[identity] > MAX_VISITS:
            yield UnreadablePath(display_folder, TOO_OFTEN)
            return
        for name, is_folder in _list_folder(folder):
            path, display_path, child = f"{folder}/{name}", _join(display_folder, name), (*parts, name)
            if is_folder:
                if len(ancestors) == MAX_DEPTH:
                    yield UnreadablePath(display_path, TOO_DEEP)
                elif pattern is None or pattern.may_match_below(child):
                    yield from _walk(path, display_path, pattern, child, ancestors | {identity}, visits)
            elif pattern is not None and not pattern.matches(child):
                continue
            elif suffix_of(name) == ".zip":
                yield from _iter_archive(Path(path), display_path, display_folder, folder)
            elif suffix_of(name) in IMAGE_SUFFIXES:
                yield Item(display_path, path)
            elif os.path.islink(path) and (reason := loop_reason(path)):  # noqa: PTH114
                yield UnreadablePath(display_path, f"cannot be read: {reason}")
    except OSError as error:
        yield UnreadablePath(display_folder, f"cannot be read: {error.strerror or error}")


def _list_folder(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield the names in a folder and whether each is a folder, in the order of their paths.

    A folder of a million files is scanned several times, so that its names are never all in memory.
    """
    last = ""
    while True:
        with os.scandir(folder) as entries:
            keys = (
                f"{entry.name}/" if is_folder(entry) else entry.name for entry in entries if not is_junk(entry.name)
            )
            names = heapq.nsmallest(MAX_NAMES, (key for key in keys if key > last))
        for name in names:
            yield name.removesuffix("/"), name.endswith("/")
        if len(names) < MAX_NAMES:
            return
        last = names[-1]


def _join(display_folder: str, name: str) -> str:
    return f"{display_folder}/{printable(name)}" if display_folder else printable(name)


def _iter_archive(archive: Path, display_path: str, display_folder: str, folder: str) -> Iterator[Entry]:
    """Yield the images of an archive.

    An archive inside a `folder` is read as if unpacked there, without images that are already unpacked.
    """
    try:
        items = list(archive_items(archive, "", set(), mount_at_stem=bool(folder)))
    except UserError as error:
        yield UnreadablePath(display_path, f"cannot be read: {error.__context__ or error}")
        return
    for item in sorted(items, key=lambda item: (item.path, item.entry)):
        if suffix_of(item.path) in IMAGE_SUFFIXES and not (folder and os.path.lexists(f"{folder}/{item.path}")):
            yield replace(item, path=_join(display_folder if folder else display_path, item.path))


@dataclass(frozen=True)
class Pattern:
    """A glob pattern: the folder where it starts, how that folder is displayed, and the parts below it."""

    root: str
    display_root: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Split a pattern at its first wildcard."""
        parts = Path(text).parts
        num_fixed = next(n for n, part in enumerate(parts) if has_wildcard(part))
        root = str(Path(*parts[:num_fixed]))
        return cls(root, root if num_fixed else "", parts[num_fixed:])

    def matches(self, names: Sequence[str]) -> bool:
        """Return whether the pattern matches a file."""
        return matches_all(names, self.parts)

    def may_match_below(self, names: Sequence[str]) -> bool:
        """Return whether the pattern can match anything below a folder."""
        return matches_start(names, self.parts)


def has_wildcard(part: str) -> bool:
    """Return whether a name contains `*`, `?` or `[`."""
    return any(char in part for char in "*?[")


def is_pattern(value: str) -> bool:
    """Return whether an input is a pattern; an existing file of that name is a file."""
    return has_wildcard(value) and not os.path.lexists(value)


def matches_all(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether the names of folders and file match all parts of a pattern.

    All numbers of parts that the names so far can match are tracked at once: trying each way takes exponential time.
    """
    matched = _with_empty_folders({0}, parts)
    for name in names:
        following = {
            number if parts[number] == ANY_FOLDERS else number + 1
            for number in matched
            if number < len(parts) and (parts[number] == ANY_FOLDERS or fnmatchcase(name, parts[number]))
        }
        matched = _with_empty_folders(following, parts)
    return len(parts) in matched


def _with_empty_folders(matched: set[int], parts: Sequence[str]) -> set[int]:
    """Add the numbers of parts that also match because `**` matches no folder."""
    for number, part in enumerate(parts):
        if number in matched and part == ANY_FOLDERS:
            matched.add(number + 1)
    return matched


def matches_start(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether the names of folders match the start of a pattern that has more parts."""
    if not names or not parts or parts[0] == ANY_FOLDERS:
        return bool(parts)
    return fnmatchcase(names[0], parts[0]) and matches_start(names[1:], parts[1:])
