"""Convert the inputs of `SSDG.fit` to the folders of a run: use folders as they are, write images in memory to files.

Files are written once and identified by their content. Then they are treated like any folder: the same fingerprint,
cache, resume and hidden-label rules apply.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..data.cache import digest_content
from ..data.parallel import show_progress
from ..data.sources.benchmark import is_ood
from ..data.sources.decode import FORMATS, open_image
from ..data.sources.tree import IMAGE_SUFFIXES, Item, Reader, is_junk
from ..errors import UserError
from ..files import atomic_folder, locked, read_text, real_path, remove_leftovers
from .image_content import Content, read_content
from .inputs import (
    Images,
    LabelMode,
    is_path,
    is_source,
    label_array,
    read_folder,
    read_images,
)

DIGEST = ".digest"  # a hidden file in the folder of a domain
MAX_NAME = 150  # bytes; file systems allow 255


def class_folder(label: object) -> str:
    """Return `str(label)` as a folder name; escape invalid characters as %XX, so that no two labels share a folder.

    >>> [class_folder(label) for label in (7, "blue tit", "a/b", ".hidden", "100 %", "ood")]
    ['7', 'blue tit', 'a%2Fb', '%2Ehidden', '100 %25', '%6Fod']
    """
    text = str(label)
    name = quote(text, safe=" !#$&'()+,;=@[]^{}~", errors="surrogatepass") if _needs_escape(text) else text
    if not text:
        return "%"
    if is_junk(name) or is_ood(name) or name != name.strip():
        name = f"%{ord(name[0]):02X}{quote(name[1:], safe='%')}"
    if len(name.encode()) > MAX_NAME:
        name = f"{name[:40]}%{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
    return name


def _needs_escape(text: str) -> bool:
    """Return whether the text has a character that is unsafe in paths or terminals, or the escape character."""
    return not text.isprintable() or any(character in text for character in '%/\\:*?"<>|')


def write_once(images: Images, folder: Path, mode: LabelMode, *, may_replace: bool) -> NDArray[Any] | None:
    """Write the images to `folder` unless it already has them; return their labels, or None without labels."""
    digest, labels = digest_images(images)
    y = check_labels(labels, images.role, mode)
    with locked(folder.parent / f".{folder.name}.lock"):
        remove_leftovers(folder)
        has_digest = (folder / DIGEST).is_file()
        if has_digest and read_text(folder / DIGEST) == digest:
            return y
        if folder.exists() and not (has_digest and may_replace):
            raise UserError(
                f"'{folder}' contains other images than {images.role}; choose another --out, or put {{id}} into it "
                "for a folder per fit"
            )
        _write(images, folder)
    return y


def digest_images(images: Images) -> tuple[str, list[Any]]:
    """Return a digest of all contents and labels, and the labels."""
    sha, labels = hashlib.sha256(), []
    with Reader() as reader:
        for index, (content, label) in enumerate(images):
            sha.update(_digest_line(content, label, reader, f"image {index} of {images.role}"))
            labels.append(label)
    return sha.hexdigest(), labels


def _digest_line(content: Content, label: object, reader: Reader, where: str) -> bytes:
    folder = "" if label is None else class_folder(label)
    return digest_content(read_content(content, reader, where)) + folder.encode() + b"\n"


def check_labels(labels: list[Any], role: str, mode: LabelMode) -> NDArray[Any] | None:
    """Return the labels if all images have one, else None; raise an error if a required label is missing."""
    if None in labels or mode == "ignored":
        if mode == "required":
            raise UserError(f"image {labels.index(None)} of {role} has no label; pass a label for every image")
        return None
    return label_array(labels, role)


def _write(images: Images, folder: Path) -> None:
    """Write all files to a temporary folder, which is renamed when they are complete."""
    sha = hashlib.sha256()
    with atomic_folder(folder) as temporary:
        with Reader() as reader, show_progress(f"{images.role}: writing", None) as progress:
            for index, (content, label) in enumerate(images):
                where = f"image {index} of {images.role}"
                # Recomputed: a dataset with random transforms may return another image than before.
                sha.update(_digest_line(content, label, reader, where))
                out_dir = temporary if label is None else temporary / class_folder(label)
                out_dir.mkdir(exist_ok=True)
                _write_image(content, reader, out_dir / f"{index + 1:06}", where)
                progress(index + 1, images.count)
        (temporary / DIGEST).write_text(sha.hexdigest(), encoding="utf-8")
        os.sync()  # the files are on disk before the folder is renamed


def _write_image(content: Content, reader: Reader, stem: Path, where: str) -> None:
    """Write pixels to a lossless file; link or copy files unchanged."""
    if isinstance(content, np.ndarray):
        Image.fromarray(content).save(f"{stem}.png", compress_level=1)
        return
    if isinstance(content, Item) and not content.entry and _has_image_suffix(content.file):
        _link(real_path(content.file), Path(f"{stem}{Path(content.file).suffix.lower()}"))
        return
    data = read_content(content, reader, where)
    assert isinstance(data, bytes)  # rows of .npz files are not inputs here
    Path(f"{stem}{_suffix(data)}").write_bytes(data)


def _has_image_suffix(file: str) -> bool:
    return Path(file).suffix.lower() in IMAGE_SUFFIXES


def _link(source: Path, path: Path) -> None:
    try:
        os.link(source, path)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(source, path)


def _suffix(data: bytes) -> str:
    """Return the suffix by the file's format; an unreadable file is reported later under any suffix."""
    try:
        with open_image(data) as image:
            return FORMATS.get(image.format or "", ".png")
    except Exception:  # Pillow's plugins raise almost any exception
        return ".png"


RESERVED = ("labeled", "target", "unlabeled")
DOMAIN_NAME = re.compile(r"[^\W_][\w .+-]*")


@dataclass(frozen=True)
class InputWriter:
    """Writer of domains below one folder; `may_replace` means that no run depends on existing ones."""

    folder: Path
    may_replace: bool

    def write(
        self, inputs: Any, name: str, mode: LabelMode, role: str | None = None
    ) -> tuple[str, NDArray[Any] | None]:
        """Return the folder of a domain, and its labels if it had to be written; `role` names it in messages."""
        if is_path(inputs):
            return str(Path(inputs)), None
        images = read_images(inputs, role or name, mode)
        y = write_once(images, self.folder / name, mode, may_replace=self.may_replace)
        return str(self.folder / name), y

    def write_named(self, inputs: Any, name: str, mode: LabelMode) -> str:
        """Return the folder of a domain with a custom name; copy existing folders and archives under that name."""
        if mode == "required" or not is_source(inputs):
            return self.write(inputs, name, mode)[0]
        write_once(read_folder(inputs, name), self.folder / name, mode, may_replace=self.may_replace)
        return str(self.folder / name)


@dataclass(frozen=True)
class InputDigests:
    """Counterpart of `InputWriter` that writes nothing and returns a digest, or the path of a folder."""

    def write(
        self, inputs: Any, name: str, mode: LabelMode, role: str | None = None
    ) -> tuple[str, NDArray[Any] | None]:
        """Return what identifies a domain, and its labels unless it is a folder."""
        if is_path(inputs):
            return str(Path(inputs).absolute()), None
        digest, labels = digest_images(read_images(inputs, role or name, mode))
        return f"{name} {digest}", check_labels(labels, role or name, mode)

    def write_named(self, inputs: Any, name: str, mode: LabelMode) -> str:
        """Return what identifies a domain with a custom name."""
        return f"{name} {self.write(inputs, name, mode)[0]}"


@dataclass(frozen=True)
class RunInputs:
    """Folders of a run as settings, and the labels of the labeled domain unless it was a folder."""

    settings: dict[str, Any]
    labels: NDArray[Any] | None


def prepare_inputs(
    writer: InputWriter | InputDigests, labeled: Any, unlabeled: Any, target: Any, web: Any
) -> RunInputs:
    """Prepare a folder for every input."""
    if isinstance(unlabeled, Mapping) and (
        duplicates := set(unlabeled) & set(web if isinstance(web, Mapping) else ["web"])
    ):
        raise UserError(f"'{duplicates.pop()}' names a domain of both unlabeled and web; use unique names")
    folder, y = writer.write(labeled, "labeled", "required", role="X")
    if y is not None and len(np.unique(y)) < 2:
        raise UserError(f"X has only one class ('{y[0]}'); at least two are required")
    settings: dict[str, Any] = {"labeled": folder}
    if unlabeled is not None:
        settings["unlabeled"] = _write_domains(writer, unlabeled, "unlabeled", "ignored")
    if web is not None:
        settings["web"] = _write_domains(writer, web, "web", "required")
    if target is not None:
        settings["target"] = writer.write(target, "target", "optional")[0]
    return RunInputs(settings, y)


def _write_domains(writer: InputWriter | InputDigests, inputs: Any, name: str, mode: LabelMode) -> list[str]:
    """Return one or more folders: of a single domain, of a list of folders, or of domains by name."""
    if isinstance(inputs, Mapping):
        if not inputs:
            raise UserError(f"{name} is an empty dict; pass one or more domains, or omit {name}")
        return [writer.write_named(images, _check_name(key, name), mode) for key, images in inputs.items()]
    if isinstance(inputs, list | tuple) and any(map(is_source, inputs)):
        if not all(map(is_path, inputs)):
            raise UserError(f"{name} has folders and images in one list; pass {{name: images}} for several domains")
        return [str(Path(path)) for path in inputs]
    return [writer.write(inputs, name, mode)[0]]


def _check_name(name: Any, role: str) -> str:
    if not isinstance(name, str) or not DOMAIN_NAME.fullmatch(name) or len(name) > 100 or name in RESERVED:
        raise UserError(
            f"{name!r} cannot name a domain of {role}; use letters, digits, spaces and .+-_, but none of the names "
            f"{', '.join(RESERVED)}"
        )
    return name
