from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from builders import BASE, CLEAN, COLOURS, PLAIN, flat_images, labeled_set, unlabeled_set, values_of
from ssdg.data.augment import strong_view, to_float
from ssdg.data.sets import ImageTable, Inputs, LabeledBatch, MixedSet, UnlabeledBatch, concat_labeled
from ssdg.data.streams import (
    BalancedStream,
    BatchStream,
    LabeledStream,
    MixedStream,
    ShuffledIndices,
    UnionStream,
    UnlabeledStream,
    evaluation_batches,
)
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


def test_labeled_stream_keeps_images_beside_their_labels():
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


def test_strong_view_is_of_the_same_images_and_comes_beside_the_weak_one():
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
    beside = make_stream(replace(alone, unlabeled=unlabeled_set([1, 2, 3])), 4, 0, PLAIN).draw(0)
    assert beside.labeled.strong is None
    assert beside.unlabeled.strong is not None


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
