"""Batches of a frozen trunk: which stored view of an image is drawn, and how maps are read from many files."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from builders import PLAIN, flat_images, labeled_set, unlabeled_set
from ssdg.data.map_cache import MapFile, StoredViews
from ssdg.data.sets import ImageTable, LabeledSet, Pixels, Rows, View, concat_labeled, concat_tables, evenly_sampled
from ssdg.data.streams import LabeledStream, Pipeline, UnlabeledStream, WholeStream, draw_views, evaluation_batches
from ssdg.seeds import numpy_rng

SHAPE = (2, 1, 5)


def maps_of(pixels: Pixels, view: int, rows: Rows) -> np.ndarray:
    """Maps that encode the color of the image, the view and the position."""
    colors = pixels[rows][:, 0, 0, 0].astype(np.float32)
    positions = np.arange(10).reshape(SHAPE) / 16
    return (4 * colors[:, None, None, None] + view + positions).astype(np.float16)


@dataclass
class Folder:
    """Opens map files, each once, and counts them."""

    path: object

    def __post_init__(self) -> None:
        self.opened: dict[tuple[int, int], MapFile] = {}

    def open(self, pixels: Pixels, view: int) -> MapFile:
        key = (id(pixels), view)
        if key not in self.opened:
            path = self.path / f"{len(self.opened)}.f16"  # type: ignore[operator]
            self.opened[key] = MapFile(path, pixels.shape[0], SHAPE, lambda rows: maps_of(pixels, view, rows))
        return self.opened[key]


@pytest.fixture
def stored(tmp_path: object) -> StoredViews:
    return StoredViews(Folder(tmp_path).open, num_views=3)


@pytest.fixture
def pipeline(stored: StoredViews) -> Pipeline:
    return replace(PLAIN, stored=stored)


def drawn(names: tuple[View, ...], num_views: int, seed: int = 0, count: int = 400) -> dict[str, Rows]:
    return draw_views(count, num_views, names, np.random.default_rng(seed))


def test_without_other_views_every_stored_view_is_drawn_equally_often() -> None:
    views = drawn((), 3)
    assert list(views) == ["weak"]
    counts = np.bincount(views["weak"], minlength=4)
    assert len(counts) == 4
    assert counts.min() > 70  # of 100 expected


def test_next_to_a_strong_view_the_plain_image_is_the_weak_one() -> None:
    views = drawn(("strong",), 3)
    assert set(views) == {"weak", "strong"}
    assert not views["weak"].any()
    counts = np.bincount(views["strong"], minlength=4)
    assert counts[0] == 0
    assert counts[1:].min() > 100  # of 133 expected


@pytest.mark.parametrize("num_views", [1, 2, 5])
def test_a_second_view_differs_from_the_first(num_views: int) -> None:
    views = drawn(("second",), num_views)
    assert set(views) == {"weak", "second"}
    assert (views["weak"] != views["second"]).all()
    pairs = {*zip(views["weak"].tolist(), views["second"].tolist(), strict=True)}
    assert len(pairs) == (num_views + 1) * num_views  # every pair of different views


@pytest.mark.parametrize("names", [(), ("second",), ("strong",)])
def test_with_no_randomized_view_all_views_are_plain(names: tuple[View, ...]) -> None:
    views = drawn(names, 0)
    assert set(views) == {"weak", *names}
    assert not any(view.any() for view in views.values())


@pytest.mark.parametrize("names", [(), ("second",), ("strong",)])
def test_the_seed_decides_the_views(names: tuple[View, ...]) -> None:
    name = names[0] if names else "weak"
    first, same, other = (drawn(names, 3, seed)[name] for seed in (0, 0, 1))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def views_in(maps: torch.Tensor, colors: list[int]) -> list[int]:
    """The views that maps (B, C, h, w) come from."""
    return (maps[:, 0, 0, 0] - 4 * torch.tensor(colors)).int().tolist()


def test_a_batch_is_decided_by_seed_and_step(pipeline: Pipeline) -> None:
    data = unlabeled_set([*range(1, 17)])

    def batch(seed: int, step: int) -> torch.Tensor:
        return UnlabeledStream(data, 16, seed, pipeline, ("second",)).draw(step).x

    assert torch.equal(batch(1, 0), batch(1, 0))
    assert not torch.equal(batch(1, 0), batch(1, 1))
    assert not torch.equal(batch(1, 0), batch(2, 0))


def test_streams_give_the_views_that_a_method_requests(pipeline: Pipeline) -> None:
    data, colors = unlabeled_set([7] * 12), [7] * 12
    batch = UnlabeledStream(data, 12, 0, pipeline, ("strong",)).draw(0)
    assert batch.second is None
    assert batch.strong is not None
    assert views_in(batch.x, colors) == [0] * 12
    assert set(views_in(batch.strong, colors)) == {1, 2, 3}
    batch = UnlabeledStream(data, 12, 0, pipeline, ("second",)).draw(0)
    assert batch.strong is None
    assert batch.second is not None
    pairs = zip(views_in(batch.x, colors), views_in(batch.second, colors), strict=True)
    assert all(first != second for first, second in pairs)
    labeled = LabeledStream(labeled_set([7] * 12, [0] * 12), 12, 0, pipeline).draw(0)
    assert len(set(views_in(labeled.x, colors))) == 4
    assert labeled.strong is None


def test_maps_are_float32_in_the_layout_of_images(pipeline: Pipeline) -> None:
    table = flat_images([3, 5])
    maps = pipeline.plain(table, np.array([1, 0]), view=2)
    assert maps.dtype == torch.float32
    assert maps.shape == (2, 5, 2, 1)
    assert maps.is_contiguous(memory_format=torch.channels_last)
    expected = torch.from_numpy(maps_of(table.arrays[0], 2, np.array([1, 0]))).float().permute(0, 3, 1, 2)
    assert torch.equal(maps, expected)


def test_evaluation_reads_every_image_once_in_one_view(pipeline: Pipeline) -> None:
    table = flat_images([1, 2, 3, 4, 5])
    for view in (0, 3):
        batches = list(evaluation_batches(table, 2, pipeline, view))
        assert [len(batch) for batch in batches] == [2, 2, 1]
        assert views_in(torch.cat(batches), [1, 2, 3, 4, 5]) == [view] * 5


@pytest.fixture
def joined() -> ImageTable:
    """Rows of three arrays in a mixed order, some of them twice."""
    parts = [flat_images([1, 2, 3, 4]), flat_images([11, 12]), flat_images([21, 22, 23])]
    return concat_tables(parts).take(np.array([8, 0, 5, 3, 3, 6, 4, 2, 8]))


def test_reading_from_many_files_equals_reading_row_by_row(stored: StoredViews, joined: ImageTable) -> None:
    rng = numpy_rng(3)
    rows, views = rng.integers(len(joined), size=40), rng.integers(4, size=40)
    maps = stored.read(joined, rows, views)
    assert maps.dtype == np.float16
    for index, (row, view) in enumerate(zip(rows, views, strict=True)):
        alone = stored.read(joined, np.array([row]), np.array([view]))
        assert np.array_equal(maps[index], alone[0])
        pixels = joined.arrays[joined.source[row]]
        assert np.array_equal(alone, maps_of(pixels, int(view), joined.row[[row]]))


def test_reading_nothing_gives_no_maps(stored: StoredViews, joined: ImageTable, pipeline: Pipeline) -> None:
    none = np.zeros(0, np.intp)
    assert stored.read(joined, none, none).shape == (0, *SHAPE)
    assert pipeline.views(joined, none, ("strong",), 0, 0)["strong"].shape == (0, 5, 2, 1)


def test_a_table_needs_files_of_the_plain_images_and_of_every_view(stored: StoredViews, joined: ImageTable) -> None:
    files = stored.files_of([joined], 2)
    assert len(files) == 3 * 3  # three arrays; the plain image and two views
    assert sum(len(file.missing(rows)) for file, rows in files) == 7 * 3  # nine rows, two of them twice
    for file, rows in files:
        file.fill(rows, 2, lambda num_stored: None)
    assert not any(len(file.missing(rows)) for file, rows in stored.files_of([joined], 2))
    assert any(len(file.missing(np.arange(file.shape[0]))) for file, _ in files)  # rows that the table leaves out
    assert len(stored.open_file(joined.arrays[0], 3).missing(np.arange(4))) == 4


def test_the_whole_set_comes_view_by_view_in_every_step(pipeline: Pipeline) -> None:
    data = concat_labeled([labeled_set([1, 2, 3], [0, 1, 2]), labeled_set([9], [1], domain=2, trusted=False)])
    first, second = (WholeStream(data, pipeline).draw(step) for step in (0, 1))
    assert torch.equal(first.x, second.x)
    assert views_in(first.x, 4 * [1, 2, 3, 9]) == [view for view in range(4) for _ in range(4)]
    assert first.y.tolist() == 4 * [0, 1, 2, 1]
    assert first.domain.tolist() == 4 * [0, 0, 0, 2]
    assert first.trusted.tolist() == 4 * [True, True, True, False]
    assert first.host_domain is not None
    assert first.host_domain.tolist() == first.domain.tolist()
    images = WholeStream(data, PLAIN).draw(0)  # without a frozen trunk: the images themselves
    assert images.x.shape == (4, 3, 4, 4)


def classes_of(labeled: LabeledSet) -> list[int]:
    return np.bincount(labeled.y).tolist()


def sampled(y: list[int], limit: int) -> LabeledSet:
    return evenly_sampled(labeled_set(list(range(len(y))), y), limit)


def test_a_set_is_thinned_out_evenly() -> None:
    assert classes_of(sampled([0, 1] * 50, 20)) == [10, 10]
    assert classes_of(sampled([2, 0, 1, 0] * 25, 40)) == [20, 10, 10]
    labeled = sampled([1] * 5 + [0] * 5, 4)  # sorted by class, 0 to 9: every third of 5, 6, 7, 8, 9, 0, 1, 2, 3, 4
    assert labeled.images[np.arange(4)][:, 0, 0, 0].tolist() == [1, 4, 5, 8]
    assert labeled.y.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("limit", [6, 7])
def test_a_set_within_the_limit_is_returned_as_it_is(limit: int) -> None:
    labeled = labeled_set([*range(6)], [0, 1, 2] * 2)
    assert evenly_sampled(labeled, limit) is labeled


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_no_more_than_the_limit_and_no_image_twice(limit: int) -> None:
    labeled = sampled([*range(5)] * 4, limit)
    assert len(labeled) == limit
    assert len({row.tobytes() for row in labeled.images.digest}) == limit
