"""Style groups that replace domains."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording import TASK, Recorder, random_logits

from builders import flat_images, labeled_set
from ssdg.data.sets import LabeledSet, concat_labeled
from ssdg.methods.api import Method
from ssdg.methods.generalization import groups
from ssdg.methods.generalization.groups import GroupSettings, brightness, style_groups, with_style_groups
from ssdg.methods.source_only import SourceOnly


def grouped(values, y, count):
    return style_groups(labeled_set(values, y), count).domain.tolist()


def test_dark_to_bright_in_groups_of_equal_size():
    assert grouped([50, 10, 60, 20, 40, 30], [0] * 6, 3) == [2, 0, 2, 0, 1, 1]
    assert grouped([50, 10, 60, 20, 40], [0] * 5, 2) == [1, 0, 1, 0, 0]


def test_every_group_has_the_darkest_or_brightest_of_every_class():
    """Class 1 is darker than class 0 throughout; both are in both groups."""
    assert grouped([110, 120, 130, 140, 10, 20, 30, 40], [0] * 4 + [1] * 4, 2) == [0, 0, 1, 1, 0, 0, 1, 1]


def test_one_image_per_class_is_ranked_over_all():
    assert grouped([50, 10, 60, 20], [0, 1, 2, 3], 2) == [1, 0, 1, 0]


def test_fewer_images_than_groups_give_a_group_each():
    assert grouped([9, 5], [0, 1], 3) == [1, 0]
    assert grouped([9], [0], 3) == [0]


@given(st.data(), st.integers(1, 40), st.integers(2, 6))
def test_sizes_differ_by_at_most_one_and_order_does_not_matter(data, n, count):
    values = data.draw(st.lists(st.integers(0, 255), min_size=n, max_size=n, unique=True))
    y = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    labeled = labeled_set(values, y)
    grouped_set = style_groups(labeled, count)
    sizes = np.bincount(grouped_set.domain, minlength=min(n, count))
    assert grouped_set.num_domains == len(sizes) == min(n, count)
    assert sizes.max() - sizes.min() <= 1
    order = np.array(data.draw(st.permutations(range(n))))
    moved = LabeledSet(labeled.images.take(order), y[order], labeled.domain, labeled.trusted)
    assert np.array_equal(style_groups(moved, count).domain, grouped_set.domain[order])


def test_equal_brightness_goes_by_content():
    """Four images of the same sum: two halves swapped, channels turned. Their order in the set does not matter."""
    image = np.zeros((2, 2, 3), np.uint8)
    array = np.stack([np.roll(image + np.eye(2, 3, dtype=np.uint8).reshape(2, 1, 3), s, (0, 2)) for s in range(4)])
    data = replace(labeled_set(range(4), [0] * 4), images=flat_images([0]).from_array(array))
    assert len(set(brightness(data.images))) == 1
    first = style_groups(data, 2).domain
    order = np.array([2, 0, 3, 1])
    again = style_groups(replace(data, images=data.images.take(order)), 2).domain
    assert sorted(first) == [0, 0, 1, 1]
    assert np.array_equal(again, first[order])


def test_only_the_domain_is_new_and_pixels_are_read_in_chunks(monkeypatch):
    monkeypatch.setattr(groups, "CHUNK_SIZE", 2)
    data = labeled_set([5, 9, 200, 3, 7], [0, 1, 0, 1, 0], trusted=False)
    assert brightness(data.images).tolist() == [v * 4 * 4 * 3 for v in (5, 9, 200, 3, 7)]
    grouped_set = style_groups(data, 2)
    assert grouped_set.images is data.images
    assert grouped_set.y is data.y
    assert grouped_set.trusted is data.trusted
    assert style_groups(data, 2) is grouped_set  # computed once for the plan and the training
    assert style_groups(data, 3) is not grouped_set


METHOD = with_style_groups(Method("any", "DG", "paper", "summary", SourceOnly, GroupSettings, needs=("balanced",)))


@pytest.mark.parametrize("count", [2, 3])
def test_one_domain_is_trained_as_groups(count):
    recorder = Recorder(random_logits)
    settings = GroupSettings(groups=count)
    product = METHOD.fit(TASK, recorder, recorder.build, settings)
    (args,) = recorder.trained("main")
    assert (product.kind, product.options) == (SourceOnly, {"num_domains": count})
    assert args["labeled"].domain.tolist() == style_groups(TASK.labeled, count).domain.tolist()
    assert (args["product"], args["balanced"], args["settings"]) == (True, True, settings)
    assert "unlabeled" not in args


def test_existing_domains_are_preserved():
    both = concat_labeled([labeled_set([10, 20], [0, 1]), labeled_set([15, 25], [0, 1], domain=1, trusted=False)])
    recorder = Recorder(random_logits)
    product = METHOD.fit(replace(TASK, labeled=both), recorder, recorder.build, GroupSettings())
    assert product.options == {"num_domains": 2}
    assert recorder.trained("main")[0]["labeled"] is both
