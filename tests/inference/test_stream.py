"""The stream of predictions: order, bounds, unreadable files, batches that do not fit."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssdg.data.sources.decode import ResizeMode
from ssdg.data.sources.tree import Item, Reader
from ssdg.errors import UserError
from ssdg.inference.classifier import Answer, OutOfMemory
from ssdg.inference.find_images import Entry, UnreadablePath, find_images
from ssdg.inference.rejection import Rejection
from ssdg.inference.stream import NOT_FINITE, predict_batches


@dataclass
class Brightness:
    """Dark or light, by the first pixel; remembers how many images it was asked for at once."""

    fits: int = 1000
    batch_sizes: list[int] = field(default_factory=list)
    classes: tuple[str, ...] = ("dark", "light")
    size: int = 8
    resize: ResizeMode = "squash"
    rejection: Rejection | None = None

    def free_bytes(self) -> int:
        return 1 << 30

    def answer(self, images: np.ndarray) -> Answer:
        self.batch_sizes.append(len(images))
        if len(images) > self.fits:
            raise OutOfMemory
        light = images[:, 0, 0, 0] / 255
        probs = np.stack([1 - light, light], 1)
        probs[light == 1] = np.nan
        return Answer(probs, np.abs(light - 0.5))


def grey(folder: Path, *values: int) -> Path:
    folder.mkdir(exist_ok=True)
    for number, value in enumerate(values):
        Image.new("RGB", (8, 8), (value,) * 3).save(folder / f"{number:03}.png")
    return folder


def test_rows_follow_the_order_of_the_images_including_unreadable_ones(tmp_path: Path) -> None:
    folder = grey(tmp_path / "in", 51, 204, 255, 102)
    (folder / "001b.jpg").write_bytes(b"")
    (folder / "002b.jpg").symlink_to("nowhere")
    entries = [*find_images([str(folder)]), UnreadablePath("x", "does not exist")]
    model = Brightness()
    parts = list(predict_batches(model, entries, batch=3))
    assert [len(part) for part in parts] == [3, 3, 1]
    rows = [(Path(r.path).name, r.label, round(r.confidence, 6), r.second, r.error) for part in parts for r in part]
    assert rows == [
        ("000.png", "dark", 0.8, "light", ""),
        ("001.png", "light", 0.8, "dark", ""),
        ("001b.jpg", "", 0.0, "", "the file is empty"),
        ("002.png", "", 0.0, "", NOT_FINITE),
        ("002b.jpg", "", 0.0, "", "cannot be read: No such file or directory"),
        ("003.png", "dark", 0.6, "light", ""),
        ("x", "", 0.0, "", "does not exist"),
    ]
    assert model.batch_sizes == [2, 2]  # of a batch without an image nothing is asked


def test_no_more_than_one_batch_is_read_ahead(tmp_path: Path) -> None:
    path = grey(tmp_path / "in", 51) / "000.png"
    taken = 0

    def endless() -> Iterator[Entry]:
        nonlocal taken
        while True:
            taken += 1
            yield Item(str(taken), str(path))

    stream = predict_batches(Brightness(), endless(), batch=10)
    for number in range(1, 6):
        assert next(stream)[0].path == str(10 * number - 9)
        assert taken <= 10 * (number + 1)
    stream.close()


def test_a_batch_that_does_not_fit_is_halved_until_it_does(tmp_path: Path) -> None:
    folder = grey(tmp_path / "in", *range(0, 200, 10))
    model = Brightness(fits=3)
    whole = [row for part in predict_batches(Brightness(), find_images([str(folder)]), batch=20) for row in part]
    assert [row for part in predict_batches(model, find_images([str(folder)]), batch=10) for row in part] == whole
    assert model.batch_sizes == [10, 5, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]  # and it stays small
    with pytest.raises(UserError, match="a single image does not fit"):
        list(predict_batches(Brightness(fits=0), find_images([str(folder)]), batch=10))


def test_unknown_by_hand(tmp_path: Path) -> None:
    folder = grey(tmp_path / "in", 102, 51)  # scores 0.1 and 0.3
    rejection = Rejection(images=9, thresholds=tuple(n / 100 for n in range(100)))
    (rows,) = predict_batches(Brightness(rejection=rejection), find_images([str(folder)]), reject=0.2)
    assert [(r.is_unknown, round(r.score or 0, 6), r.label) for r in rows] == [
        (True, 0.1, "dark"),
        (False, 0.3, "dark"),
    ]
    with pytest.raises(UserError, match="this model has no thresholds"):
        list(predict_batches(Brightness(), find_images([str(folder)]), reject=0.2))


def test_archives_that_are_done_with_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = (grey(tmp_path / "in", 51) / "000.png").read_bytes()
    for number in range(40):
        with zipfile.ZipFile(tmp_path / f"{number:02}.zip", "w") as archive:
            archive.writestr("x.png", picture)
    most = 0
    real = Reader.close_all_but

    def counted(self: Reader, files: set[str]) -> None:
        nonlocal most
        most = max(most, len(self._archives))
        real(self, files)

    monkeypatch.setattr(Reader, "close_all_but", counted)
    inputs = [str(path) for path in sorted(tmp_path.glob("*.zip"))]
    rows = [row for part in predict_batches(Brightness(), find_images(inputs), batch=2) for row in part]
    assert [row.error for row in rows] == [""] * 40
    assert most <= 8 + 4  # some that stay, and two batches
