"""Ranks, choices and what they would have been worth, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ssdg.selection.candidates import SCORES, Candidate, Group
from ssdg.selection.ranking import average_ranks, chosen_by, judge, judge_group, ranks_of, spearman, too_few


def group(*rows: tuple[float | None, float | None], title: str = "task") -> Group:
    """Candidates by validation and target."""
    blank = dict.fromkeys(SCORES)
    return Group(
        title,
        tuple(Candidate(str(n), Path(str(n)), {**blank, "validation": v}, t) for n, (v, t) in enumerate(rows)),
    )


def test_equals_share_the_mean_of_their_places() -> None:
    assert average_ranks([3, 7, 3, 1, 3]).tolist() == [3, 1, 3, 5, 3]  # ranks 2, 3 and 4
    assert average_ranks([]).tolist() == []


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)  # 1 - 6 (1 + 1) / (4 · 15)
    assert spearman([1, 2, 3], [30, 20, 10]) == -1
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(np.sqrt(3) / 2)  # ranks 2.5 2.5 1 and 3 2 1
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1], [2]) is None


def test_only_the_order_counts() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=9), rng.normal(size=9)
    assert spearman(np.exp(a), b**3) == pytest.approx(spearman(a, b))
    assert spearman(a, b) == spearman(b, a)
    assert spearman(-a, b) == pytest.approx(-spearman(a, b))


def test_a_candidate_without_the_score_has_no_rank() -> None:
    candidates = group((50, 1), (None, 2), (60, 3))
    assert ranks_of(candidates, "validation") == [2, None, 1]
    assert ranks_of(candidates, "density") == [None, None, None]
    assert [c.label for c in chosen_by(candidates, "validation")] == ["2"]
    assert chosen_by(candidates, "density") == []


def test_a_choice_is_held_against_the_best_and_the_mean() -> None:
    judgement = judge_group(group((90, 40), (80, 60), (70, 50)), "validation")
    assert judgement is not None
    assert (judgement.picked, judgement.best, judgement.mean, judgement.regret) == (40, 60, 50, 20)
    assert judgement.correlation == pytest.approx(-0.5)


def test_equals_are_worth_their_mean() -> None:
    judgement = judge_group(group((90, 40), (90, 60), (70, 50)), "validation")
    assert judgement is not None
    assert judgement.picked == 50


def test_the_best_counts_also_without_the_score() -> None:
    judgement = judge_group(group((90, 40), (80, 30), (None, 70)), "validation")
    assert judgement is not None
    assert (judgement.picked, judgement.best, judgement.candidates, judgement.of) == (40, 70, 2, 3)
    assert judgement.correlation is None  # of two


def test_the_target_changes_no_rank_and_no_choice() -> None:
    scores = [90.0, 80.0, 85.0]
    for targets in ((1, 2, 3), (3, 2, 1), (None, None, None)):
        candidates = group(*zip(scores, targets, strict=True))
        assert ranks_of(candidates, "validation") == [1, 3, 2]
        assert chosen_by(candidates, "validation")[0].label == "0"


def test_few_runs_have_no_correlation_and_one_no_choice() -> None:
    two, one = group((90, 40), (80, 60), title="two"), group((90, 40), title="one")
    judgement = judge_group(two, "validation")
    assert judgement is not None
    assert judgement.correlation is None
    assert judge_group(one, "validation") is None
    assert too_few([two, one, group((1, 1), (2, 2), (3, 3))]) == ["two", "one"]


def test_verdicts_are_means_over_tasks() -> None:
    """Within each: a task of high accuracies must not look like a good score."""
    easy = group((10, 90), (20, 91), (30, 92))
    hard = group((90, 12), (80, 11), (70, 13))
    verdict = judge([easy, hard, group((1, 5))])["validation"]
    assert (verdict.groups, verdict.correlated, verdict.scored, verdict.of) == (2, 2, 7, 7)
    assert verdict.correlation == pytest.approx((1 - 0.5) / 2)
    assert (verdict.picked, verdict.best, verdict.mean, verdict.regret) == (52, 52.5, 51.5, 0.5)
    assert judge([easy])["density"].picked is None
