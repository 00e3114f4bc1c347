import numpy as np

from builders import flat_images, labeled_set, unlabeled_set
from ssdg.data.sets import ImageTable, MixedSet, PseudoLabels, Task, concat_labeled, concat_tables, concat_unlabeled


def values(table):
    return table[np.arange(len(table))][:, 0, 0, 0].tolist()


def test_take_follows_rows_and_masks():
    table = flat_images([10, 11, 12, 13])
    assert values(table.take(np.array([3, 0, 3]))) == [13, 10, 13]
    assert values(table.take(np.array([False, True, False, True]))) == [11, 13]
    assert values(table.take(np.array([3, 2, 1])).take(np.array([2, 0]))) == [11, 13]


def test_rows_of_several_arrays_come_in_the_order_asked_for():
    table = concat_tables(
        [flat_images([10, 11]), flat_images([20]), flat_images([30, 31, 32]).take(np.array([2, 0]))]
    )
    assert len(table) == 5
    assert values(table) == [10, 11, 20, 32, 30]
    mixed = table[np.array([4, 0, 2, 4])]
    assert mixed.shape == (4, 4, 4, 3)
    assert mixed[:, 0, 0, 0].tolist() == [30, 10, 20, 30]
    twice = concat_tables([table.take(np.array([2, 3])), table])
    assert values(twice) == [20, 32, 10, 11, 20, 32, 30]


def test_reading_no_rows_gives_no_images():
    none = np.zeros(0, np.intp)
    assert flat_images([1, 2])[none].shape == (0, 4, 4, 3)
    assert concat_tables([flat_images([1]), flat_images([2])])[none].shape == (0, 4, 4, 3)


def test_fingerprint_depends_on_content_and_order_but_not_storage():
    table = flat_images([1, 2, 3])
    assert table.fingerprint == flat_images([1, 2, 3]).fingerprint
    assert table.fingerprint == concat_tables([flat_images([1]), flat_images([2, 3])]).fingerprint
    others = [flat_images(v) for v in ([1, 2, 4], [2, 1, 3], [1, 2])]
    assert len({t.fingerprint for t in (table, *others)}) == 4


def test_one_pixel_changes_the_fingerprint():
    pixels = np.zeros((2, 4, 4, 3), np.uint8)
    before = ImageTable.from_array(pixels.copy()).fingerprint
    pixels[1, 3, 2, 1] = 1
    assert ImageTable.from_array(pixels).fingerprint != before


def test_fingerprint_of_a_labeled_set_depends_on_all_that_training_sees():
    sets = [
        labeled_set([1, 2], [0, 1]),
        labeled_set([1, 3], [0, 1]),
        labeled_set([1, 2], [1, 1]),
        labeled_set([1, 2], [0, 1], domain=2),
        labeled_set([1, 2], [0, 1], trusted=False),
    ]
    assert len({s.fingerprint for s in sets}) == len(sets)
    assert unlabeled_set([1], domain=1).fingerprint != unlabeled_set([1], domain=2).fingerprint


def test_mixed_set_is_as_long_as_its_source_and_knows_its_parts():
    base, clean = labeled_set([1, 2, 3], [0, 1, 2]), labeled_set([4, 5], [0, 1], domain=1, trusted=False)
    sets = [
        MixedSet(base, clean, "mixup", 1.0),
        MixedSet(base, clean, "cutmix", 1.0),
        MixedSet(base, clean, "x+u", 1.0),
        MixedSet(base, clean, "mixup", 0.5),
        MixedSet(base, clean, "mixup", 1.0, any_pair=True),
        MixedSet(clean, base, "mixup", 1.0),
    ]
    assert [len(s) for s in sets] == [3, 3, 5, 3, 5, 2]
    assert len({s.fingerprint for s in sets}) == len(sets)


def test_pseudo_labels_make_an_untrusted_set_of_the_kept_images():
    pool = unlabeled_set([10, 11, 12], domain=2)
    labels = PseudoLabels(
        np.array([5, 6, 7]), np.array([True, False, True]), np.ones(3, np.float32), np.zeros((1, 3), np.int64)
    )
    labeled = pool.labeled_by(labels)
    assert values(labeled.images) == [10, 12]
    assert labeled.y.tolist() == [5, 7]
    assert labeled.domain.tolist() == [2, 2]
    assert not labeled.trusted.any()


def test_concat_keeps_images_with_their_labels():
    joined = concat_labeled([labeled_set([1, 2], [0, 1]), labeled_set([3], [2], domain=1, trusted=False)])
    assert values(joined.images) == [1, 2, 3]
    assert joined.y.tolist() == [0, 1, 2]
    assert joined.domain.tolist() == [0, 0, 1]
    assert joined.trusted.tolist() == [True, True, False]
    pair = concat_unlabeled([unlabeled_set([7], domain=2), unlabeled_set([8, 9], domain=1)])
    assert values(pair.images) == [7, 8, 9]
    assert pair.domain.tolist() == [2, 1, 1]


def test_pool_of_a_task_is_all_unlabeled_domains_in_order():
    task = Task(("a",), labeled_set([1], [0]), {"x": unlabeled_set([2, 3], 1), "y": unlabeled_set([4], 2)})
    assert values(task.pool.images) == [2, 3, 4]
    assert task.pool.domain.tolist() == [1, 1, 2]
