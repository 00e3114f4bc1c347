"""Download a published file with retries, and the ImageNet weights of ResNets into the folder of torch.hub."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..files import locked, remove_free_lock, sha256_of
from ..models.weights import RESNET_FILES, download_error, hash_in_name, hub_folder, resnet_url
from .transfer import FetchError, Limits, OnProgress, remove_partial, transfer

PART = ".part"


@dataclass(frozen=True)
class Remote:
    """A published file; without a known hash its content must be verified in another way."""

    url: str
    name: str  # of the local file, without folders
    sha256: str = ""  # or its first digits; empty if unknown


@dataclass(frozen=True)
class Downloader:
    """Downloads files with retries; tests replace `sleep`."""

    limits: Limits = field(default_factory=Limits)
    sleep: Callable[[float], None] = time.sleep
    log: Callable[[str], None] = lambda message: None

    def get(self, remote: Remote, folder: Path) -> Path:
        """Return the path of the complete file in `folder`, downloading it if needed; raise `FetchError`."""
        path = folder / remote.name
        if path.is_file():
            if sha256_of(path).startswith(remote.sha256):
                return path
            path.unlink()
        part = folder / f"{remote.name}{PART}"
        is_resumed = part.exists()
        with progress_bar(remote.name) as on_progress:
            self._retry(remote.url, part, on_progress)
        sha256 = sha256_of(part)
        if not sha256.startswith(remote.sha256):
            remove_partial(part)
            if is_resumed:  # the partial file may have belonged to another version
                return self.get(remote, folder)
            raise FetchError(f"unexpected content: sha256 is {sha256}, expected {remote.sha256}")
        part.replace(path)
        remove_partial(part)
        return path

    def _retry(self, url: str, part: Path, on_progress: OnProgress) -> None:
        """Retry until the file is complete; every received byte resets the count of failures."""
        num_failures, previous_size, was_reached = 0, 0, False
        for _ in range(self.limits.max_tries):
            try:
                return transfer(url, part, self.limits, on_progress)
            except FetchError as failure:
                size = part.stat().st_size if part.exists() else 0
                was_reached = was_reached or not failure.is_unreachable
                num_failures = 1 if size > previous_size else num_failures + 1
                previous_size = size
                may_retry = failure.is_transient or (failure.is_unreachable and was_reached)
                if not may_retry or num_failures >= self.limits.tries:
                    raise
                wait = max(failure.wait, self.limits.first_wait * 2 ** (num_failures - 1))
                self.log(f"{failure}; retrying in {wait:g} s")
                self.sleep(wait)
        raise FetchError(f"incomplete after {self.limits.max_tries} attempts")


@contextmanager
def progress_bar(title: str) -> Iterator[OnProgress]:
    """Show the progress of a download if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from ..terminal import Console

    columns = (TextColumn(title, markup=False), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def download_imagenet_weights(backbone: str, weights: str, downloader: Downloader | None = None) -> None:
    """Download the weights of a ResNet if they are missing; other backbones load their own."""
    file = RESNET_FILES.get(backbone)
    if weights != "imagenet" or file is None:
        return
    folder = hub_folder()
    lock = folder / f".{file}.lock"
    if (folder / file).is_file():
        remove_free_lock(lock)
        return
    remote = Remote(resnet_url(backbone), file, hash_in_name(file))
    try:
        with locked(lock):  # one of several processes downloads, the others wait
            (downloader or Downloader()).get(remote, folder)
    except (FetchError, OSError) as failure:
        raise download_error(backbone, str(failure)) from None
