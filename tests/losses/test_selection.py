from fractions import Fraction
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ssdg.losses.selection import (
    balanced_counts,
    clean_mask,
    clean_rate,
    fair_share_mask,
    mean_over_networks,
    num_selected,
    small_loss_rows,
    view_agreement,
    weigh_keywords,
)

LOSSES = torch.rand(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
RNG = torch.Generator().manual_seed(1)
# Two networks that mostly agree: common logits plus individual ones.
POOL = 2 * torch.randn(12, 3, dtype=torch.float64, generator=RNG) + torch.randn(2, 12, 3, generator=RNG)


def smallest_subset(losses, rate):
    """argmin over all U' with |U'| >= r|U| of the summed loss (Algorithm 1), by exhaustive search."""
    n = len(losses)
    subsets = [s for size in range(1, n + 1) if size >= rate * n for s in combinations(range(n), size)]
    return set(min(subsets, key=lambda s: sum(losses[i] for i in s), default=()))


def test_clean_rate_follows_algorithm_1():
    rate = 1.0  # r(1)
    for t in range(1, 16):
        assert clean_rate(t - 1, ramp_epochs=9, delta=0.5) == pytest.approx(rate)
        rate = 1 - min(t / 9 * 0.5, 0.5)  # r(t+1)


def test_clean_rate_by_hand():
    rates = [clean_rate(t, ramp_epochs=4, delta=0.4) for t in (0, 1, 2, 4, 100)]
    assert rates == pytest.approx([1, 0.9, 0.8, 0.6, 0.6])


def test_clean_rate_depends_on_all_its_arguments():
    assert clean_rate(2, ramp_epochs=4, delta=0.4) != clean_rate(3, ramp_epochs=4, delta=0.4)
    assert clean_rate(2, ramp_epochs=4, delta=0.4) != clean_rate(2, ramp_epochs=5, delta=0.4)
    assert clean_rate(2, ramp_epochs=4, delta=0.4) != clean_rate(2, ramp_epochs=4, delta=0.5)


@given(total=st.integers(1, 100_000), thousandths=st.integers(1, 1000))
def test_num_kept_is_the_least_count_that_reaches_the_rate(total, thousandths):
    required = Fraction(thousandths, 1000) * total
    count = num_selected(total, thousandths / 1000)
    assert required <= count < required + 1
    assert 1 <= count <= total


def test_num_kept_by_hand():
    assert [num_selected(n, 0.4) for n in (0, 1, 2, 3, 5, 6)] == [0, 1, 1, 2, 2, 3]
    assert num_selected(100, 0.07) == 7  # 0.07 · 100 is 7.000000000000001 in floating point
    assert num_selected(10, 0.0) == 1
    assert num_selected(10, 1.0) == 10


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.5, 0.9, 1.0])
def test_small_loss_rows_minimise_the_loss(rate):
    assert set(small_loss_rows(LOSSES, rate).tolist()) == smallest_subset(LOSSES.tolist(), rate)


def test_small_loss_rows_by_hand():
    assert small_loss_rows(torch.tensor([0.5, 2e4, 0.1, 0.7, 0.2]), 0.5).tolist() == [2, 4, 0]


def test_small_loss_rows_follow_the_samples():
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    assert order[small_loss_rows(LOSSES[order], 0.5)].tolist() == small_loss_rows(LOSSES, 0.5).tolist()


def test_small_loss_rows_refuse_an_empty_batch():
    with pytest.raises(ValueError, match="small_loss_rows needs at least one sample"):
        small_loss_rows(torch.zeros(0), 0.5)


def clean_by_loops(logits, rate, choice="whole", first_only=False):
    """Eq. agreement, then Eq. small_loss with the agreed class as the label."""
    probs = (logits.exp() / logits.exp().sum(-1, keepdim=True)).tolist()
    groups = {}
    for i in range(logits.shape[1]):
        votes = {max(range(3), key=lambda k, net=net, i=i: net[i][k]) for net in probs}
        if len(votes) == 1:
            q = votes.pop()
            loss = -sum(torch.tensor(net[i][q]).double().log().item() for net in probs[: 1 if first_only else 2])
            groups.setdefault("all" if choice == "whole" else q, []).append((i, loss))
    if choice == "balanced":
        return balanced_by_turns(groups, rate * sum(map(len, groups.values())))
    return sorted(g[j][0] for g in groups.values() for j in smallest_subset([loss for _, loss in g], rate))


def balanced_by_turns(groups, required):
    """In each round, every class that has samples left adds its best one, until there are enough."""
    left = [sorted(group, key=lambda pair: pair[1]) for group in groups.values()]
    selected = []
    while len(selected) < required - 1e-9:
        selected += [group.pop(0)[0] for group in left if group]
    return sorted(selected)


@pytest.mark.parametrize("rate", [0.2, 0.4, 1.0])
@pytest.mark.parametrize("choice", ["whole", "per-class", "balanced"])
@pytest.mark.parametrize("first_only", [False, True])
def test_clean_mask_equals_the_equations(rate, choice, first_only):
    mask = clean_mask(POOL, rate, choice=choice, first_only=first_only)
    assert mask.nonzero().flatten().tolist() == clean_by_loops(POOL, rate, choice, first_only)


def as_logits(first, second):
    return torch.tensor([first, second], dtype=torch.float64).log()


def test_clean_mask_by_hand():
    first = [[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [0.4, 0.6]]
    second = [[0.6, 0.4], [0.95, 0.05], [0.4, 0.6], [0.3, 0.7], [0.1, 0.9]]
    # agreed: 0, 1, 3, 4 of joint probability .54, .57, .56, .54; of network 1 alone .9, .6, .8, .6
    pool = as_logits(first, second)
    assert clean_mask(pool, 0.5).tolist() == [False, True, False, True, False]
    assert clean_mask(pool, 0.5, first_only=True).tolist() == [True, False, False, True, False]
    assert clean_mask(pool, 1.0).tolist() == [True, True, False, True, True]
    # without sample 1 the best half of 0, 3, 4 (.54, .56, .54) is 3 and the first of two equals
    eligible = torch.tensor([True, False, True, True, True])
    assert clean_mask(pool, 0.3, eligible=eligible).tolist() == [False, False, False, True, False]
    assert clean_mask(pool, 1.0, eligible=eligible).tolist() == [True, False, False, True, True]


def test_clean_mask_depends_on_all_its_arguments():
    masks = [
        clean_mask(POOL, 0.4),
        clean_mask(POOL, 0.8),
        clean_mask(POOL, 0.4, choice="per-class"),
        clean_mask(POOL, 0.4, choice="balanced"),
        clean_mask(POOL, 0.4, first_only=True),
    ]
    assert len({tuple(mask.tolist()) for mask in masks}) == 5


def test_clean_mask_treats_both_networks_alike_and_ignores_shifts():
    assert torch.equal(clean_mask(POOL.flip(0) + 9, 0.4), clean_mask(POOL, 0.4))


def test_clean_mask_keeps_one_of_every_agreed_class():
    pool = torch.eye(3).expand(2, 3, 3)
    assert clean_mask(pool, 0.01, choice="per-class").all()
    assert clean_mask(pool, 0.01, choice="balanced").all()
    assert clean_mask(pool, 0.01).sum() == 1


def test_even_counts_by_hand():
    # 12 of 30 are required: limits 1 to 5 select 3, 6, 8, 10, 12
    assert balanced_counts([20, 2, 8], 0.4) == [5, 2, 5]
    assert balanced_counts([20, 2, 8], 1.0) == [20, 2, 8]
    assert balanced_counts([7], 0.4) == [3]
    assert balanced_counts([], 0.4) == []


def test_clean_mask_without_any_agreement_is_empty():
    apart = torch.stack([torch.eye(3), torch.eye(3).roll(1, 0)])
    for choice in ("whole", "per-class", "balanced"):
        assert not clean_mask(apart, 1.0, choice=choice).any()


def test_clean_mask_at_extreme_logits():
    pool = torch.tensor([[[1e4, -1e4], [-1e4, 1e4], [1e4, 0.0]], [[1e4, -1e4], [-1e4, 1e4], [-1e4, 1e4]]])
    assert clean_mask(pool, 1.0).tolist() == [True, True, False]


def test_fair_share_by_hand():
    # class 0: 0.9, 0.6, 0.8, 0.7; class 1: 0.6; class 2: never; a fair share is 5 / 3 of each class
    class_0 = [[0.9, 0.1, 0.0], [0.6, 0.2, 0.2], [0.8, 0.1, 0.1], [0.7, 0.1, 0.2]]
    probs = torch.tensor([*class_0, [0.2, 0.6, 0.2]])
    assert fair_share_mask(probs, 1.0).tolist() == [True, False, True, False, True]  # at most 2
    assert fair_share_mask(probs, 0.6).tolist() == [True, False, False, False, True]  # at most 1
    assert fair_share_mask(probs, 0.01).tolist() == [True, False, False, False, True]  # and at least 1


@given(st.integers(1, 40), st.integers(1, 6), st.floats(0.01, 1.0), st.integers(0, 99))
def test_fair_share_selects_the_most_confident_of_every_predicted_class(n, num_classes, rate, seed):
    logits = 3 * torch.randn(n, num_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    probs = logits.softmax(1)
    mask = fair_share_mask(probs, rate)
    confidence, predicted = probs.max(1)
    share = Fraction(rate) * n / num_classes
    for k in range(num_classes):
        rows = (predicted == k).nonzero().squeeze(1)
        chosen, rest = confidence[rows[mask[rows]]], confidence[rows[~mask[rows]]]
        assert (len(chosen) > 0) == (len(rows) > 0)
        assert len(chosen) <= 1 or len(chosen) < share + 1  # the share, rounded up
        assert not len(rest) or len(chosen) + 1e-6 >= share  # nothing is left out below the share
        assert not len(rest) or chosen.min() >= rest.max()


def test_fair_share_of_an_easy_class_is_no_larger_than_that_of_others():
    probs = torch.cat([torch.tensor([[0.99, 0.01]]).repeat(90, 1), torch.tensor([[0.4, 0.6]]).repeat(10, 1)])
    mask = fair_share_mask(probs, 0.2)
    assert (int(mask[:90].sum()), int(mask[90:].sum())) == (10, 10)


def test_fair_share_of_no_sample_is_an_error():
    with pytest.raises(ValueError, match="fair_share_mask"):
        fair_share_mask(torch.zeros(0, 3), 0.5)


def votes_for(*rows):
    """Logits (rows, n, 3) whose largest is that of the given classes."""
    return torch.nn.functional.one_hot(torch.tensor(rows), 3).double()


def test_view_agreement_by_hand():
    plain, first, second = [0, 1, 2, 2], [0, 1, 1, 2], [0, 0, 0, 2]
    assert view_agreement(votes_for(plain, first)) == 0.75
    assert view_agreement(votes_for(plain, second)) == 0.5
    assert view_agreement(votes_for(plain, first, second)) == 5 / 8
    assert view_agreement(votes_for(first, plain, second)) == 5 / 8  # all with the first, the plain image
    assert view_agreement(votes_for(second, plain, first)) == 0.5


def test_view_agreement_of_two_networks_is_that_of_their_mean():
    """Networks of the plain image say 0.9 and 0.3 of class 0, those of the view 0.6 and 0.3: 0.6 against 0.45."""
    of_class_0 = torch.tensor([[0.9, 0.8], [0.3, 0.8], [0.6, 0.8], [0.3, 0.8]], dtype=torch.float64)
    logits = torch.stack([of_class_0, 1 - of_class_0], -1).log()
    assert view_agreement(mean_over_networks(logits, 2)) == 0.5
    # As four views of one network, image 0 agrees once, image 1 always.
    assert view_agreement(mean_over_networks(logits, 1)) == 4 / 6


@pytest.mark.parametrize("num_networks", [1, 2])
def test_without_views_all_agree(num_networks):
    assert view_agreement(mean_over_networks(votes_for(*[[0, 1, 2]] * num_networks), num_networks)) == 1.0
    assert view_agreement(mean_over_networks(votes_for([0, 1], [2, 0]), 2)) == 1.0  # networks differ, not views


def test_view_agreement_of_no_sample_is_an_error():
    with pytest.raises(ValueError, match="view_agreement needs at least one sample"):
        view_agreement(torch.zeros(2, 0, 3))


# Each image is the most confident one of its class, so all count as confident.
CROWD = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]], dtype=torch.float64)
KEYWORDS = torch.tensor([0, 0, 2])


def test_weigh_keywords_by_hand():
    """Keyword 0 matches 1 of 2, q = 2/4, and 1/4 for each other class: odds 2. Keyword 2: q = 2/3 and 1/6: odds 4."""
    expected = [[8 / 9, 1 / 18, 1 / 18], [1 / 3, 5 / 12, 1 / 4], [3 / 22, 3 / 22, 16 / 22]]
    torch.testing.assert_close(weigh_keywords(CROWD, KEYWORDS, 1.0), torch.tensor(expected, dtype=torch.float64))
    # Squares: 0.64 · 2, 0.01, 0.01; 0.04 · 2, 0.25, 0.09; 0.09, 0.09, 0.16 · 4
    rows = [[1.28, 0.01, 0.01], [0.08, 0.25, 0.09], [0.09, 0.09, 0.64]]
    expected = [[value / sum(row) for value in row] for row in rows]
    torch.testing.assert_close(weigh_keywords(CROWD, KEYWORDS, 2.0), torch.tensor(expected, dtype=torch.float64))


def test_weigh_keywords_compares_with_confident_predictions_only():
    """Of 20 images and 2 classes, the 3 most confident of each class count: a dozen uncertain mismatches do not."""
    sure = torch.tensor([[0.99, 0.01]] * 3 + [[0.01, 0.99]] * 3)
    unsure = torch.tensor([[0.49, 0.51]] * 14)
    keywords = torch.tensor([0] * 3 + [1] * 3 + [0] * 14)
    weighed = weigh_keywords(torch.cat([sure, unsure]), keywords, 1.0)
    # q = 4/5: odds 4
    torch.testing.assert_close(weighed[6:], torch.tensor([[1.96, 0.51]] * 14) / 2.47)


def random_probs(n, num_classes, seed, dtype=torch.float64):
    return (3 * torch.randn(n, num_classes, dtype=dtype, generator=torch.Generator().manual_seed(seed))).softmax(1)


@given(st.integers(1, 30), st.integers(1, 6), st.floats(0.0, 1.0), st.integers(0, 99))
def test_weighed_keywords_are_probabilities_that_follow_the_samples(n, num_classes, reliability, seed):
    rng = torch.Generator().manual_seed(seed)
    probs, keywords = random_probs(n, num_classes, seed), torch.randint(-1, num_classes, (n,), generator=rng)
    before = probs.clone()
    weighed = weigh_keywords(probs, keywords, reliability)
    assert (weighed >= 0).all()
    torch.testing.assert_close(weighed.sum(1), torch.ones(n, dtype=torch.float64))
    order = torch.randperm(n, generator=rng)
    torch.testing.assert_close(weigh_keywords(probs[order], keywords[order], reliability), weighed[order])
    assert torch.equal(probs, before)


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 99))
def test_without_a_keyword_a_reliable_prediction_stays(n, num_classes, seed):
    probs = random_probs(n, num_classes, seed)
    torch.testing.assert_close(weigh_keywords(probs, torch.full((n,), -1), 1.0), probs)


@pytest.mark.parametrize("match", [True, False])
def test_keywords_pull_or_push_uncertain_images(match):
    """A search for class 0 finds images that are surely of it, or of class 1; other images are sure without it."""
    other, sure = (
        torch.eye(3)[[0, 1, 2]].repeat(12, 1) * 0.9 + 0.1 / 3,
        torch.eye(3)[[0 if match else 1]] * 0.97 + 0.01,
    )
    unsure = torch.tensor([[0.33, 0.35, 0.32] if match else [0.35, 0.33, 0.32]])
    probs = torch.cat([other, sure.repeat(12, 1), unsure.repeat(12, 1)])
    keywords = torch.tensor([-1] * 36 + [0] * 24)
    weighed = weigh_keywords(probs, keywords, 1.0)
    assert (weighed[48:].argmax(1) == (0 if match else 1)).all()
    assert ((weighed[48:, 0] > unsure[0, 0]) == match).all()
    assert (weighed[36:48].argmax(1) == (0 if match else 1)).all()  # those that are sure stay


def test_weigh_keywords_depends_on_all_its_arguments():
    base = weigh_keywords(CROWD, KEYWORDS, 1.0)
    assert not torch.allclose(base, weigh_keywords(CROWD.flip(1), KEYWORDS, 1.0))
    assert not torch.allclose(base, weigh_keywords(CROWD, torch.tensor([0, 1, 2]), 1.0))
    assert not torch.allclose(base, weigh_keywords(CROWD, torch.tensor([0, -1, 2]), 1.0))
    assert not torch.allclose(base, weigh_keywords(CROWD, KEYWORDS, 0.5))


def test_unreliable_predictions_leave_the_decision_to_keywords():
    torch.testing.assert_close(
        weigh_keywords(CROWD, KEYWORDS, 0.0),
        torch.tensor([[2, 1, 1], [2, 1, 1], [2 / 3, 2 / 3, 8 / 3]], dtype=torch.float64) / 4,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reliability", [0.0, 0.5, 1.0])
def test_weigh_keywords_is_finite_for_certain_predictions(dtype, reliability):
    probs = torch.eye(3, dtype=dtype)[[0, 0, 1, 2]]
    weighed = weigh_keywords(probs, torch.tensor([0, 1, -1, 2]), reliability)
    assert weighed.dtype == dtype
    assert weighed.isfinite().all()
    torch.testing.assert_close(weighed.sum(1), torch.ones(4, dtype=dtype))


def test_weigh_keywords_of_no_sample_is_an_error():
    with pytest.raises(ValueError, match="weigh_keywords needs at least one sample"):
        weigh_keywords(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), 1.0)
