from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import BASE, CLEAN, COLOURS, PLAIN, flat_images, labeled_set, unlabeled_set, values_of
from ssdg.data.augment import strong_view, to_float
from ssdg.data.map_cache import StoredViews
from ssdg.data.sets import ImageTable, Inputs, LabeledBatch, MixedSet, UnlabeledBatch, UnlabeledSet, concat_labeled
from ssdg.data.streams import (
    MAX_VIEWS,
    BalancedStream,
    BatchStream,
    LabeledStream,
    MixedStream,
    ShuffledIndices,
    UnionStream,
    UnlabeledStream,
    evaluation_batches,
)
from ssdg.data.views import RANDOMIZED, RECIPES
from ssdg.engine.batches import make_stream
from ssdg.seeds import torch_rng


def mixed(mix, any_pair, pipeline):
    return MixedStream(MixedSet(BASE, CLEAN, mix, 1.0, any_pair), 7, 0, pipeline)


@given(n=st.integers(1, 40), seed=st.integers(0, 99), number=st.integers(0, 50))
def test_every_pass_is_a_permutation(n, seed, number):
    assert sorted(ShuffledIndices(n, seed).take(number * n, n)) == list(range(n))


@given(n=st.integers(1, 20), start=st.integers(0, 90), count=st.integers(1, 60))
def test_any_stretch_is_a_piece_of_one_sequence(n, start, count):
    sequence = np.concatenate([ShuffledIndices(n, 3).take(number * n, n) for number in range(150 // n + 1)])
    assert ShuffledIndices(n, 3).take(start, count).tolist() == sequence[start : start + count].tolist()


def test_passes_and_seeds_differ():
    passes = [tuple(ShuffledIndices(20, seed).take(start, 20)) for seed in (0, 1) for start in (0, 20, 40)]
    assert len(set(passes)) == 6


def test_a_stream_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one image"):
        ShuffledIndices(0, 0)


def test_labeled_stream_keeps_images_with_their_labels():
    data = concat_labeled([BASE, CLEAN])
    for step in range(6):
        batch = LabeledStream(data, 3, 0, PLAIN).draw(step)
        torch.testing.assert_close(batch.x, COLOURS[batch.y][:, None, None, None].expand(-1, 3, 4, 4))
        assert torch.equal(batch.domain, (batch.y >= 4).long())
        assert torch.equal(batch.trusted, batch.y < 4)


def test_a_pass_draws_every_image_once_and_a_batch_may_be_larger_than_the_set():
    stream = LabeledStream(concat_labeled([BASE, CLEAN]), 4, 0, PLAIN)
    assert sorted(stream.draw(0).y.tolist() + stream.draw(1).y.tolist()) == list(range(8))
    assert sorted(LabeledStream(BASE, 12, 0, PLAIN).draw(5).y.tolist()) == sorted([0, 1, 2, 3] * 3)


def test_unlabeled_stream_draws_its_images_without_labels():
    stream = UnlabeledStream(unlabeled_set([1, 2, 3, 4, 5], domain=2), 5, 0, PLAIN)
    batch = stream.draw(0)
    assert sorted(values_of(batch.x)) == [1, 2, 3, 4, 5]
    assert batch.domain.tolist() == [2] * 5
    assert batch.strong is None
    assert {f.name for f in fields(UnlabeledBatch)} == {"x", "domain", "second", "strong"}


def test_strong_view_is_of_the_same_images_as_the_weak_one():
    stream = UnlabeledStream(unlabeled_set(range(100, 116), size=8), 16, 0, PLAIN)
    plain, both = stream.draw(3), replace(stream, views=("strong",)).draw(3)
    assert torch.equal(plain.x, both.x)
    assert both.strong.shape == both.x.shape
    assert not torch.equal(both.strong, both.x)


@pytest.mark.parametrize("kind", [LabeledStream, BalancedStream])
def test_labeled_images_have_a_strong_view_if_asked(kind):
    data = concat_labeled([labeled_set(range(8), range(8), size=8), labeled_set(range(8, 16), range(8), 1, size=8)])
    stream = kind(data, 16, 0, PLAIN)
    plain, both = stream.draw(3), replace(stream, views=("strong",)).draw(3)
    assert plain.strong is None
    assert torch.equal(plain.x, both.x)
    assert torch.equal(plain.domain, both.domain)
    assert torch.equal(both.strong, strong_view(both.x, torch_rng(0, 3, 0, "strong")))
    assert not torch.equal(both.strong, both.x)


@pytest.mark.parametrize("balanced", [False, True])
def test_unlabeled_images_have_the_views_where_there_are_any(balanced):
    alone = Inputs(BASE, balanced=balanced, views=("strong",))
    assert make_stream(alone, 4, 0, PLAIN).draw(0).labeled.strong.shape == (4, 3, 4, 4)
    both = make_stream(replace(alone, unlabeled=unlabeled_set([1, 2, 3])), 4, 0, PLAIN).draw(0)
    assert both.labeled.strong is None
    assert both.unlabeled.strong is not None


NOISE = ImageTable.from_array(np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8))


def noisy(seed=0):
    data = replace(labeled_set(range(12), range(12), size=8), images=NOISE)
    return LabeledStream(data, 5, seed, replace(PLAIN, kind="photo"))


def test_a_batch_depends_on_seed_and_step_alone():
    stream = noisy()
    for step in (0, 1, 2):
        stream.draw(step)
    assert torch.equal(stream.draw(7).x, noisy().draw(7).x)
    assert not torch.equal(noisy().draw(7).x, noisy().draw(8).x)
    assert not torch.equal(noisy().draw(7).x, noisy(seed=1).draw(7).x)


def test_augmentation_is_drawn_anew_when_an_image_comes_again():
    one = LabeledStream(replace(labeled_set([0], [0]), images=NOISE.take(np.array([0]))), 1, 0, noisy().pipeline)
    assert len({one.draw(step).x.numpy().tobytes() for step in range(10)}) > 5


def test_union_stream_hands_out_one_shuffled_batch_in_two_parts():
    data = concat_labeled([BASE, CLEAN])
    sizes = set()
    for step in range(0, 12, 2):
        parts = [part for number in (step, step + 1) for part in UnionStream(data, 4, 0, PLAIN).draw(number)]
        assert sorted(y for part in parts for y in part.y.tolist()) == list(range(8))
        for trusted, pseudo in (parts[:2], parts[2:]):
            assert trusted.trusted.all()
            assert not pseudo.trusted.any()
            torch.testing.assert_close(pseudo.x[:, 0, 0, 0], COLOURS[pseudo.y])
            sizes.add((len(trusted.y), len(pseudo.y)))
    assert len(sizes) > 1


def test_a_part_of_the_union_may_be_empty():
    trusted, pseudo = UnionStream(BASE, 4, 0, PLAIN).draw(0)
    assert len(trusted.x) == 4
    assert pseudo.x.shape == (0, 3, 4, 4)
    assert pseudo.x.dtype == torch.float32
    assert pseudo.y.dtype == torch.long


STREAMS = {
    "labeled": lambda p: LabeledStream(concat_labeled([BASE, CLEAN]), 7, 0, p),
    "unlabeled": lambda p: UnlabeledStream(unlabeled_set(range(9)), 7, 0, p),
    "mixup": lambda p: mixed("mixup", False, p),
    "any pair": lambda p: mixed("mixup", True, p),
    "cutmix": lambda p: mixed("cutmix", False, p),
    "union": lambda p: UnionStream(concat_labeled([BASE, CLEAN]), 7, 0, p),
}


def drawn(stream, step):
    """Every drawn image with its label, as bytes."""
    batch = stream.draw(step)
    parts = [batch] if isinstance(batch, LabeledBatch | UnlabeledBatch) else batch
    rows = []
    for part in parts:
        y = part.y if isinstance(part, LabeledBatch) else part.domain
        rows += [
            (x.contiguous().numpy().tobytes(), label.numpy().tobytes()) for x, label in zip(part.x, y, strict=True)
        ]
    return sorted(rows)


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_processes_share_a_batch_without_loss_or_repeat(make):
    for step in (0, 1, 5):
        shares = [drawn(make(replace(PLAIN, rank=rank, world=3)), step) for rank in range(3)]
        assert sorted(row for share in shares for row in share) == drawn(make(PLAIN), step)
        assert all(shares)


def test_batch_stream_draws_from_all_its_streams():
    labeled, pseudo = LabeledStream(BASE, 2, 0, PLAIN), LabeledStream(CLEAN, 3, 1, PLAIN)
    unlabeled = UnlabeledStream(unlabeled_set([1, 2, 3]), 3, 2, PLAIN)
    full = BatchStream(labeled, pseudo, unlabeled).draw(4)
    assert torch.equal(full.labeled.y, labeled.draw(4).y)
    assert torch.equal(full.pseudo.y, pseudo.draw(4).y)
    assert torch.equal(full.unlabeled.x, unlabeled.draw(4).x)
    bare = BatchStream(labeled).draw(4)
    assert bare.pseudo is None
    assert bare.unlabeled is None
    union = BatchStream(UnionStream(concat_labeled([BASE, CLEAN]), 8, 0, PLAIN)).draw(0)
    assert (sorted(union.labeled.y.tolist()), sorted(union.pseudo.y.tolist())) == ([0, 1, 2, 3], [4, 5, 6, 7])


def test_evaluation_sees_every_image_once_in_order_and_not_augmented():
    batches = list(evaluation_batches(NOISE, 5, replace(PLAIN, kind="photo")))
    assert [len(b) for b in batches] == [5, 5, 2]
    assert torch.equal(torch.cat(batches), to_float(torch.from_numpy(NOISE[np.arange(12)])))
    assert [values_of(b) for b in evaluation_batches(flat_images(range(4)), 4, PLAIN)] == [[0, 1, 2, 3]]


def test_a_union_is_shared_evenly_whatever_it_holds() -> None:
    """Two processes get two of four images each in every step, though labeled and guessed ones come in odd counts."""
    data = concat_labeled([BASE, CLEAN])
    shares = [UnionStream(data, 4, 3, replace(PLAIN, rank=rank, world=2)) for rank in (0, 1)]
    single, num_odd = UnionStream(data, 4, 3, PLAIN), 0
    for step in range(8):
        parts = [share.draw(step) for share in shares]
        assert [sum(len(part.x) for part in pair) for pair in parts] == [2, 2]
        seen = sorted(value for pair in parts for part in pair for value in values_of(part.x) if len(part.x))
        assert seen == sorted(value for part in single.draw(step) for value in values_of(part.x) if len(part.x))
        num_odd += len(single.draw(step)[0].x) % 2
    assert num_odd


IMAGES = ImageTable.from_array(np.random.default_rng(1).integers(0, 256, (200, 12, 12, 3), dtype=np.uint8))
ALL = np.arange(200)


def randomizing(kind, **changes):
    return replace(PLAIN, kind=kind, **changes)


def plain_images(rows=ALL):
    return to_float(torch.from_numpy(IMAGES[rows]))


def distance(a, b):
    """The largest difference of every pair of images: (B,)."""
    return (a - b).abs().amax((1, 2, 3))


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_weak_view_is_randomized_at_the_rate_of_the_recipe(kind):
    views = randomizing(kind).views(IMAGES, ALL, (), seed=0, step=0)
    assert list(views) == ["weak"]
    is_changed = distance(views["weak"], plain_images()) > 0
    assert is_changed.float().mean().item() == pytest.approx(RECIPES[kind].view_rate, abs=0.09)


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_next_to_a_randomized_strong_view_the_weak_one_is_plain(kind):
    views = randomizing(kind).views(IMAGES, ALL, ("strong",), seed=0, step=0)
    assert set(views) == {"weak", "strong"}
    assert torch.equal(views["weak"], plain_images())
    assert (distance(views["strong"], plain_images()) > 1e-3).all()  # every one, whatever the recipe's rate


@pytest.mark.parametrize("names", [("second",), ("second", "strong")])
@pytest.mark.parametrize("kind", RANDOMIZED)
def test_second_randomized_view_has_other_random_numbers_than_the_first(kind, names):
    views = randomizing(kind).views(IMAGES, ALL, names, seed=0, step=0)
    assert set(views) == {"weak", *names}
    is_equal = distance(views["weak"], views["second"]) < 1e-3
    rate = RECIPES[kind].view_rate
    both_plain = (
        (1 - rate) ** 2 if names == ("second",) else 1 - rate
    )  # next to a strong view, the weak one always is
    assert is_equal.float().mean().item() == pytest.approx(both_plain, abs=0.09)
    assert torch.equal(views["second"][is_equal], plain_images()[is_equal])
    if "strong" in names:
        assert (distance(views["strong"], views["second"]) > 1e-3).all()


@pytest.mark.parametrize("name", ["weak", "second", "strong"])
@pytest.mark.parametrize("kind", RANDOMIZED)
def test_randomized_views_are_decided_by_seed_step_and_rank(kind, name):
    names = () if name == "weak" else (name,)

    def view(seed=3, step=5, rank=0):
        return randomizing(kind, rank=rank, world=2).views(IMAGES, ALL[:20], names, seed, step)[name]

    assert torch.equal(view(), view())
    for other in (view(seed=4), view(step=6), view(rank=1)):
        assert (distance(view(), other) > 1e-3).float().mean() > 0.7


@pytest.mark.parametrize("names", [(), ("second",), ("strong",), ("second", "strong")])
@pytest.mark.parametrize("kind", ["none", "photo", *RANDOMIZED])
def test_views_of_no_image_are_empty(kind, names):
    views = randomizing(kind).views(IMAGES, ALL[:0], names, seed=0, step=0)
    assert set(views) == {"weak", *names}
    for view in views.values():
        assert view.shape == (0, 3, 12, 12)
        assert view.dtype == torch.float32


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_numbered_view_depends_on_content_and_index_only(kind):
    pipeline, rows = randomizing(kind), np.array([4, 9, 2, 7])
    views = pipeline.plain(IMAGES, rows, view=3)
    alone = torch.cat([pipeline.plain(IMAGES, rows[[i]], view=3) for i in range(4)])
    torch.testing.assert_close(alone, views, atol=1e-6, rtol=0)
    moved = IMAGES.take(ALL[::-1].copy())  # the same images in other rows, and among others
    among_others = pipeline.plain(moved, np.append(np.arange(30, 40), 199 - rows), view=3)
    torch.testing.assert_close(among_others[10:], views, atol=1e-6, rtol=0)
    elsewhere = randomizing(kind, rank=1, world=2, num_classes=3)
    assert torch.equal(elsewhere.plain(IMAGES, rows, view=3), views)


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_numbered_views_differ_by_index_and_image(kind):
    pipeline = randomizing(kind)
    views = [pipeline.plain(IMAGES, ALL[:6], view=index) for index in range(10)]
    assert torch.equal(views[0], plain_images(ALL[:6]))
    for i, first in enumerate(views):
        assert all((distance(first, second) > 1e-3).all() for second in views[:i])
    twins = ImageTable.from_array(np.repeat(IMAGES[ALL[:1]], 2, axis=0))
    first, second = pipeline.plain(twins, np.arange(2), view=1)
    torch.testing.assert_close(first, second, atol=1e-6, rtol=0)  # equal images, equal views


def test_numbered_views_follow_the_recipe_of_the_augmentation():
    photo, character = (
        randomizing(kind).plain(IMAGES, ALL[:20], view=4) for kind in ("photo-views", "character-views")
    )
    assert torch.equal(photo[:, 0], photo[:, 1])  # the fourth view of a photo is its edges
    assert not torch.equal(character[:, 0], character[:, 1])


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_evaluation_passes_the_index_of_the_view(kind):
    pipeline = randomizing(kind)
    batches = list(evaluation_batches(IMAGES.take(ALL[:7]), 3, pipeline, view=2))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    torch.testing.assert_close(torch.cat(batches), pipeline.plain(IMAGES, ALL[:7], view=2), atol=1e-6, rtol=0)


@pytest.mark.parametrize("views", [(), ("strong",)])
@pytest.mark.parametrize("kind", RANDOMIZED)
def test_randomized_views_leave_rows_and_labels_alone(kind, views):
    data = concat_labeled(
        [labeled_set(range(8), range(8), size=8), labeled_set(range(8, 16), range(8), 1, False, size=8)]
    )
    plain, random = (LabeledStream(data, 12, 0, randomizing(k), views).draw(3) for k in ("none", kind))
    for name in ("y", "domain", "trusted", "host_domain"):
        assert torch.equal(getattr(random, name), getattr(plain, name)), name
    if views:
        assert torch.equal(random.x, plain.x)  # the same images, in the same order
        assert random.strong.shape == plain.x.shape
    else:
        is_plain = distance(random.x, plain.x) == 0
        assert 0 < is_plain.sum() < 12  # images that stay plain are in their places


@pytest.mark.parametrize("kind", RANDOMIZED)
def test_unlabeled_stream_has_the_randomized_views_that_a_method_requests(kind):
    data = UnlabeledSet(IMAGES, np.full(200, 1))
    stream = UnlabeledStream(data, 30, 0, randomizing(kind), ("strong",))
    batch = stream.draw(2)
    rows = ShuffledIndices(200, 0).take(60, 30)
    assert torch.equal(batch.x, plain_images(rows))
    assert batch.second is None
    assert (distance(batch.strong, batch.x) > 1e-3).all()
    assert replace(stream, views=("second",)).draw(2).strong is None


def test_number_of_views_is_that_stored_or_any_or_none():
    stored = StoredViews(lambda pixels, view: pytest.fail("no file is needed"), num_views=3)
    for kind in ("none", "photo", "photo-views", "character-views"):
        assert randomizing(kind, stored=stored).num_views == 3
        assert randomizing(kind, stored=replace(stored, num_views=0)).num_views == 0
    assert [randomizing(kind).num_views for kind in ("none", "photo")] == [0, 0]
    assert [randomizing(kind).num_views for kind in RANDOMIZED] == [MAX_VIEWS, MAX_VIEWS]
