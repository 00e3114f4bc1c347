"""Turn the inputs of `SSDG.fit` into the folders of a run: folders as they are, images in memory as files.

Files are written once and found again by their content. From there on they are like any folder: the same
fingerprint, cache, resume and hidden-label rules.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..data.cache import digest_content
from ..data.parallel import shown
from ..data.sources.benchmark import is_ood
from ..data.sources.tree import IMAGE_SUFFIXES, Item, Reader, is_junk
from ..errors import UserError
from ..files import locked
from .inputs import Content, Images, Labels, is_path, is_place, label_array, raw, read_images, read_unlabeled_place

DIGEST = ".digest"  # a hidden file of a domain's folder: no part of its images
MAX_NAME = 150  # characters; a file system takes 255 bytes
SUFFIXES = {"JPEG": ".jpg", "GIF": ".gif", "BMP": ".bmp", "WEBP": ".webp", "TIFF": ".tif", "PPM": ".ppm"}


def class_folder(label: object) -> str:
    """`str(label)` where it can be a folder's name; other signs as %XX, so that no two labels share a folder.

    >>> [class_folder(label) for label in (7, "blue tit", "a/b", ".hidden", "100 %", "ood")]
    ['7', 'blue tit', 'a%2Fb', '%2Ehidden', '100 %25', '%6Fod']
    """
    text = str(label)
    name = quote(text, safe=" !#$&'()+,;=@[]^{}~", errors="surrogatepass") if _has_strange(text) else text
    if not text:
        return "%"
    if is_junk(name) or is_ood(name) or name != name.strip():
        name = f"%{ord(name[0]):02X}{quote(name[1:], safe='%')}"
    if len(name.encode()) > MAX_NAME:
        name = f"{name[:40]}%{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
    return name


def _has_strange(text: str) -> bool:
    """A sign that a path, a terminal or another system would not take as it is, or the escape sign itself."""
    return not text.isprintable() or any(sign in text for sign in '%/\\:*?"<>|')


def write_once(images: Images, folder: Path, labels: Labels, *, may_replace: bool) -> NDArray[Any] | None:
    """Make `folder` hold these images, if it does not yet; returns their labels, None where they have none."""
    digest, found = survey(images)
    y = checked_labels(found, images.role, labels)
    with locked(folder.parent / f".{folder.name}.lock"):
        is_ours = (folder / DIGEST).is_file()
        if is_ours and (folder / DIGEST).read_text(encoding="utf-8") == digest:
            return y
        if folder.exists() and not (is_ours and may_replace):
            raise UserError(f"'{folder}' holds other images than those of {images.role}; give another --out")
        for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        _write(images, folder)
    return y


def survey(images: Images) -> tuple[str, list[Any]]:
    """A digest of all contents and labels, and the labels."""
    sha, labels = hashlib.sha256(), []
    with Reader() as reader:
        for number, (content, label) in enumerate(images):
            sha.update(_line(content, label, reader, f"image {number} of {images.role}"))
            labels.append(label)
    return sha.hexdigest(), labels


def _line(content: Content, label: object, reader: Reader, where: str) -> bytes:
    place = "" if label is None else class_folder(label)
    return digest_content(raw(content, reader, where)) + place.encode() + b"\n"


def checked_labels(labels: list[Any], role: str, wanted: Labels) -> NDArray[Any] | None:
    """The labels, where all images have one; refused where they are needed and one is missing."""
    if None in labels or wanted == "dropped":
        if wanted == "needed":
            raise UserError(f"image {labels.index(None)} of {role} has no label; give a label for every image")
        return None
    return label_array(labels, role)


def _write(images: Images, folder: Path) -> None:
    """All files into a hidden folder beside, which gets its name when they are whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    sha = hashlib.sha256()
    try:
        with Reader() as reader, shown(f"{images.role}: writing", None) as progress:
            for number, (content, label) in enumerate(images):
                where = f"image {number} of {images.role}"
                # Taken anew: a dataset that draws at random may give another image than before.
                sha.update(_line(content, label, reader, where))
                place = temporary if label is None else temporary / class_folder(label)
                place.mkdir(exist_ok=True)
                _write_image(content, reader, place / f"{number + 1:06}", where)
                progress(number + 1, images.count)
        (temporary / DIGEST).write_text(sha.hexdigest(), encoding="utf-8")
        temporary.chmod(0o755)
        os.sync()  # the files are on disk before the folder has its name
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_image(content: Content, reader: Reader, stem: Path, where: str) -> None:
    """Pixels as a lossless file, files as they are."""
    if isinstance(content, np.ndarray):
        Image.fromarray(content).save(f"{stem}.png", compress_level=1)
        return
    if isinstance(content, Item) and not content.entry and _is_known(content.file):
        _link(Path(content.file).resolve(), Path(f"{stem}{Path(content.file).suffix.lower()}"))
        return
    data = raw(content, reader, where)
    assert isinstance(data, bytes)  # rows of .npz files are no single files
    Path(f"{stem}{_suffix(data)}").write_bytes(data)


def _is_known(file: str) -> bool:
    return Path(file).suffix.lower() in IMAGE_SUFFIXES


def _link(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(source, place)


def _suffix(data: bytes) -> str:
    """By what the file says it is; what cannot be read is listed as unreadable under any name."""
    try:
        with Image.open(BytesIO(data)) as image:
            return SUFFIXES.get(image.format or "", ".png")
    except Exception:  # Pillow's plugins raise nearly anything
        return ".png"


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
