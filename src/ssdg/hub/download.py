"""Download a file from the first source that has it, and the ImageNet weights of ResNets into torch.hub's folder."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..files import locked
from ..models.weights import RESNET_FILES, hub_folder, not_downloaded, resnet_address, told_hash
from .transfer import Failed, Limits, Tell, forget, transfer

PART = ".part"


@dataclass(frozen=True)
class Remote:
    """A published file; without a known hash its content must be checked in another way."""

    url: str
    name: str  # on our disk, without folders
    sha256: str = ""  # its first digits, or all


@dataclass(frozen=True)
class Downloader:
    """Downloads; `sleep` is replaced in tests."""

    limits: Limits = field(default_factory=Limits)
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = lambda text: None

    def get(self, remote: Remote, folder: Path) -> Path:
        """The whole file in `folder`, downloaded unless it is there; raises `Failed`."""
        path = folder / remote.name
        if path.is_file():
            if digest(path).startswith(remote.sha256):
                return path
            path.unlink()
        part = folder / f"{remote.name}{PART}"
        is_resumed = part.exists()
        with bar(remote.name) as tell:
            self._persist(remote.url, part, tell)
        found = digest(part)
        if not found.startswith(remote.sha256):
            forget(part)
            if is_resumed:  # the beginning may have been of something else
                return self.get(remote, folder)
            raise Failed(f"another content than published: sha256 {found}, expected {remote.sha256}")
        part.replace(path)
        forget(part)
        return path

    def _persist(self, url: str, part: Path, tell: Tell) -> None:
        """Try until the file is whole; bytes that came count as a success of the line."""
        in_a_row, before, has_line = 0, 0, False
        for _ in range(self.limits.most_tries):
            try:
                return transfer(url, part, self.limits, tell)
            except Failed as failure:
                now = part.stat().st_size if part.exists() else 0
                has_line = has_line or not failure.no_line
                in_a_row = 1 if now > before else in_a_row + 1
                before = now
                may_pass = failure.passing or (failure.no_line and has_line)
                if not may_pass or in_a_row >= self.limits.tries:
                    raise
                wait = max(failure.wait, self.limits.first_wait * 2 ** (in_a_row - 1))
                self.say(f"{failure}; trying again in {wait:g} s")
                self.sleep(wait)
        raise Failed(f"not whole after {self.limits.most_tries} tries")


def digest(path: Path) -> str:
    """The sha256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def bar(title: str) -> Iterator[Tell]:
    """How far a download is, with the time left, when standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn(title, markup=False), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as shown:
        task = shown.add_task(title, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def bring_imagenet(backbone: str, weights: str, downloader: Downloader | None = None) -> None:
    """Download what `backbone` with `weights` will read, unless it is there; other backbones bring their own."""
    file = RESNET_FILES.get(backbone)
    if weights != "imagenet" or file is None:
        return
    folder = hub_folder()
    if (folder / file).is_file():
        return
    remote = Remote(resnet_address(backbone), file, told_hash(file))
    try:
        with locked(folder / f".{file}.lock"):  # of several processes one downloads, the others wait
            (downloader or Downloader()).get(remote, folder)
    except (Failed, OSError) as failure:
        raise not_downloaded(backbone, str(failure)) from None
