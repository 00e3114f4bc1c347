import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ssdg.data.loading import select_held_out


def digests(contents):
    rows = [np.random.default_rng(c).integers(0, 256, 16, np.uint8) for c in contents]
    return np.array(rows, np.uint8).reshape(-1, 16)


def test_the_share_is_exact():
    assert select_held_out(digests(range(100)), 0.2).sum() == 20
    assert select_held_out(digests(range(100)), 0.0).sum() == 0


def test_each_group_gives_its_share():
    groups = np.repeat([0, 1], [50, 10])
    held = select_held_out(digests(range(60)), 0.1, groups)
    assert held[:50].sum() == 5
    assert held[50:].sum() == 1


def test_order_does_not_matter():
    order = np.random.default_rng(0).permutation(50)
    ordered = digests(range(50))
    np.testing.assert_array_equal(select_held_out(ordered[order], 0.1), select_held_out(ordered, 0.1)[order])


def test_small_groups_keep_all():
    assert not select_held_out(digests(range(4)), 0.1, np.zeros(4, int)).any()
    assert not select_held_out(digests(range(3)), 0.9, np.arange(3)).any()


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=40), st.floats(0, 0.99))
def test_copies_go_together_and_no_group_is_emptied(images, rate):
    contents = np.array([c for c, _ in images])
    groups = np.array([g for _, g in images])
    held = select_held_out(digests(contents), rate, groups)
    for content in set(contents):
        assert len(set(held[contents == content])) == 1
    for group in set(groups):
        assert not held[groups == group].all()
