"""A published data set into a folder that `--data` reads: download, unpack, lay out, and only then its name."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UserError
from ..files import locked, write_json
from .download import Downloader, digest
from .failure import Failed
from .layout import lay_out
from .members import Bounds
from .published import Published, Source
from .unpack import unpack

RECORD, LOCK = "fetched.json", "lock"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Fetch:
    """One data set, its place, and how to get it there."""

    published: Published
    to: Path
    downloader: Downloader = field(default_factory=Downloader)
    bounds: Bounds = field(default_factory=Bounds)
    say: Say = lambda text: None

    @property
    def work(self) -> Path:
        """Beside the place, so that the end is a renaming; a killed fetch goes on with what lies here."""
        return self.to.parent / f".{self.to.name}.fetch"

    def from_sources(self, sources: Sequence[Source]) -> None:
        """From the first source that gives the whole data set."""
        with self._working():
            reasons = []
            for source in sources:
                self.say(f"{self.published.name} from {source.told}")
                try:
                    return self._from_source(source)
                except Failed as failure:
                    reasons.append(str(failure))
                    self.say(f"  failed: {failure}")
            raise self._none_left(reasons)

    def from_files(self, files: Sequence[Path]) -> None:
        """From archives on this disk, all of them together."""
        for file in files:
            if file.is_dir():
                raise UserError(
                    f"'{file}' is a folder; if it holds {self.published.name}, use it as it is with --data"
                )
            if not file.is_file():
                raise UserError(f"'{file}' does not exist; give the archive of {self.published.name} that you have")
        with self._working():
            try:
                self._place(files, [str(file) for file in files])
            except Failed as failure:
                raise UserError(
                    f"{self.published.name} cannot be made from {', '.join(map(str, files))}: {failure}; "
                    "give the whole archive, or all of its parts after one --from"
                ) from None

    @contextmanager
    def _working(self) -> Iterator[None]:
        self._check_free()
        self.work.mkdir(parents=True, exist_ok=True)
        with locked(self.work / LOCK, busy=f"'{self.to}' is being fetched by another process; wait for it"):
            try:
                yield
            finally:
                if self.to.exists() or [path.name for path in self.work.iterdir()] == [LOCK]:
                    shutil.rmtree(self.work)

    def _check_free(self) -> None:
        if self.to.exists() or self.to.is_symlink():
            raise UserError(
                f"'{self.to}' is there already and is left as it is; "
                "look at it with ssdg data verify, or give another folder with --to"
            )

    def _from_source(self, source: Source) -> None:
        folder = self.work / hashlib.sha256(source.files[0].url.encode()).hexdigest()[:8]
        files = [self.downloader.get(remote, folder) for remote in source.files]
        try:
            self._place(files, [remote.url for remote in source.files])
        except Failed:
            shutil.rmtree(folder)  # the same bytes would fail again
            raise

    def _place(self, files: Sequence[Path], origins: Sequence[str]) -> None:
        """Archives -> the folder, in one step at the end."""
        tree, ready = self.work / "unpacked", self.work / "ready"
        try:
            for leftover in (tree, ready):  # of a killed fetch
                shutil.rmtree(leftover, ignore_errors=True)
            for number, file in enumerate(files):
                self.say(f"unpacking {file.name}")
                unpack(file, tree / str(number), self.bounds)
            lay_out(tree, ready, self.published.dataset)
            write_json(ready / RECORD, self._record(files, origins))
            self._check_free()
            ready.rename(self.to)
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            shutil.rmtree(ready, ignore_errors=True)

    def _record(self, files: Sequence[Path], origins: Sequence[str]) -> dict[str, object]:
        """Where it came from."""
        parts = [
            {"from": origin, "sha256": digest(file), "bytes": file.stat().st_size}
            for file, origin in zip(files, origins, strict=True)
        ]
        fetched = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {"data_set": self.published.name, "fetched": fetched, "files": parts}

    def _none_left(self, reasons: Sequence[str]) -> UserError:
        why = f"could not be downloaded ({'; '.join(dict.fromkeys(reasons))})" if reasons else "has no known address"
        hand = f"download {self.published.by_hand}" if reasons else self.published.by_hand
        return UserError(
            f"{self.published.name} {why}; {hand}, then run ssdg data fetch {self._key()} --from FILE --to {self.to}"
        )

    def _key(self) -> str:
        from .published import PUBLISHED

        return next((key for key, one in PUBLISHED.items() if one.name == self.published.name), self.published.name)
