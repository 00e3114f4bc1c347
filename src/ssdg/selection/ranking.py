"""Rank candidates by a score, and evaluate the selection where the target is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from .candidates import SCORES, Candidate, Group, Score


def average_ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return ranks, 1 for the highest value; ties share the mean of their ranks."""
    array = np.asarray(values, np.float64)
    above = (array[None, :] > array[:, None]).sum(1)
    ties = (array[None, :] == array[:, None]).sum(1)
    return np.asarray(above + (ties + 1) / 2, np.float64)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation in [-1, 1]; None if either input is constant or shorter than 2."""
    a, b = average_ranks(first), average_ranks(second)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip((a @ b) / np.sqrt((a @ a) * (b @ b)), -1, 1))


FEWEST = 3  # candidates for a correlation


def ranks_of(group: Group, score: Score) -> list[float | None]:
    """Return the rank of every candidate among those that have the score, 1 for the best; None without it."""
    values = [candidate.scores[score] for candidate in group.candidates]
    ranks = iter(average_ranks([value for value in values if value is not None]).tolist())
    return [None if value is None else next(ranks) for value in values]


def chosen_by(group: Group, score: Score) -> list[Candidate]:
    """Return the candidates with the highest score: several if they tie, none if no candidate has the score."""
    known = [value for c in group.candidates if (value := c.scores[score]) is not None]
    return [c for c in group.candidates if known and c.scores[score] == max(known)]


@dataclass(frozen=True)
class Judgement:
    """Selection by a score in one group, as accuracy (%) on the target."""

    candidates: int  # with the score
    of: int  # with a scored target
    correlation: float | None
    picked: float  # mean over ties
    best: float
    mean: float

    @property
    def regret(self) -> float:
        """Accuracy lost against the best candidate, in percentage points."""
        return self.best - self.picked


@dataclass(frozen=True)
class Verdict:
    """A score over all groups: means over the groups that have a value, None if none has."""

    groups: int  # that picked, best and mean are averaged over
    correlated: int  # groups that the correlation is averaged over
    scored: int  # candidates with the score, in all groups
    of: int  # candidates with a scored target, in all groups
    correlation: float | None
    picked: float | None
    best: float | None
    mean: float | None
    regret: float | None


def judge_group(group: Group, score: Score) -> Judgement | None:
    """Evaluate a score against the target; None if fewer than two candidates have both."""
    evaluated = Group(group.title, tuple(c for c in group.candidates if c.target is not None))
    targets = [c.target for c in evaluated.candidates if c.target is not None]
    scores = [c.scores[score] for c in evaluated.candidates]
    pairs = [(value, target) for value, target in zip(scores, targets, strict=True) if value is not None]
    if len(pairs) < 2:
        return None
    return Judgement(
        candidates=len(pairs),
        of=len(targets),
        correlation=spearman(*zip(*pairs, strict=True)) if len(pairs) >= FEWEST else None,
        picked=mean(c.target for c in chosen_by(evaluated, score) if c.target is not None),
        best=max(targets),
        mean=mean(targets),
    )


def judge(groups: Sequence[Group]) -> Mapping[Score, Verdict]:
    """Evaluate every score over all groups."""
    return {score: _verdict(groups, score) for score in SCORES}


def is_scored(groups: Sequence[Group]) -> bool:
    """Return whether any candidate has a scored target."""
    return any(c.target is not None for group in groups for c in group.candidates)


def too_few(groups: Sequence[Group]) -> list[str]:
    """Return the titles of groups with too few scored candidates for a correlation."""
    return [g.title for g in groups if sum(c.target is not None for c in g.candidates) < FEWEST]


def _verdict(groups: Sequence[Group], score: Score) -> Verdict:
    judged = [j for group in groups if (j := judge_group(group, score)) is not None]
    evaluated = [c for group in groups for c in group.candidates if c.target is not None]
    correlations = [j.correlation for j in judged if j.correlation is not None]
    return Verdict(
        groups=len(judged),
        correlated=len(correlations),
        scored=sum(c.scores[score] is not None for c in evaluated),
        of=len(evaluated),
        correlation=mean(correlations) if correlations else None,
        picked=_mean([j.picked for j in judged]),
        best=_mean([j.best for j in judged]),
        mean=_mean([j.mean for j in judged]),
        regret=_mean([j.regret for j in judged]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None
