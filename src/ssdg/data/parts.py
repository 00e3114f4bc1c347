"""What is given to `SSDG.fit` -> the folders of a run: places as they are, all else written as files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .inputs import Labels, is_path, is_place, read_images, read_unlabeled_place
from .written import write_once

TAKEN = ("labeled", "target", "unlabeled")
PLAIN_NAME = re.compile(r"[^\W_][\w .+-]*")


@dataclass(frozen=True)
class Writer:
    """Writes domains into one folder; `may_replace` says that no run depends on what is there."""

    folder: Path
    may_replace: bool

    def place(self, given: Any, name: str, labels: Labels) -> tuple[str, NDArray[Any] | None]:
        """The folder of a domain, and its labels where it was written here."""
        if is_path(given):
            return str(Path(given)), None
        images = read_images(given, name, labels)
        y = write_once(images, self.folder / name, labels, may_replace=self.may_replace)
        return str(self.folder / name), y

    def named(self, given: Any, name: str, labels: Labels) -> str:
        """The folder of a domain that has a name of its own; a place is then written anew, under that name."""
        if labels == "needed" or not is_place(given):
            return self.place(given, name, labels)[0]
        write_once(read_unlabeled_place(given, name), self.folder / name, labels, may_replace=self.may_replace)
        return str(self.folder / name)


@dataclass(frozen=True)
class Parts:
    """The folders of a run, as its settings hold them, and the labels of the labeled part where it was no folder."""

    given: dict[str, Any]
    labels: NDArray[Any] | None


def place_parts(writer: Writer, labeled: Any, unlabeled: Any, target: Any, web: Any) -> Parts:
    """A folder for every part."""
    if isinstance(unlabeled, Mapping) and (
        twice := set(unlabeled) & set(web if isinstance(web, Mapping) else ["web"])
    ):
        raise UserError(f"'{twice.pop()}' names a domain of unlabeled and one of web; give each a name of its own")
    place, y = writer.place(labeled, "labeled", "needed")
    if y is not None and len(np.unique(y)) < 2:
        raise UserError(f"labeled has the single class '{y[0]}'; at least two are needed")
    given: dict[str, Any] = {"labeled": place}
    if unlabeled is not None:
        given["unlabeled"] = _places(writer, unlabeled, "unlabeled", "dropped")
    if web is not None:
        given["web"] = _places(writer, web, "web", "needed")
    if target is not None:
        given["target"] = writer.place(target, "target", "allowed")[0]
    return Parts(given, y)


def _places(writer: Writer, given: Any, name: str, labels: Labels) -> list[str]:
    """One folder or more: of a single domain, of a list of folders, or of domains by their names."""
    if isinstance(given, Mapping):
        if not given:
            raise UserError(f"{name} is a dict without any domain; give one or more, or leave {name} out")
        return [writer.named(images, _checked_name(key, name), labels) for key, images in given.items()]
    if isinstance(given, list | tuple) and any(map(is_place, given)):
        if not all(map(is_path, given)):
            raise UserError(f"{name} has folders and images in one list; give {{name: images}} for several domains")
        return [str(Path(path)) for path in given]
    return [writer.place(given, name, labels)[0]]


def _checked_name(name: Any, role: str) -> str:
    if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name) or len(name) > 100 or name in TAKEN:
        raise UserError(
            f"{name!r} cannot name a domain of {role}; give letters, digits, spaces and .+-_, and none of the names "
            f"{', '.join(TAKEN)}"
        )
    return name
