"""Rank candidates by their scores, and measure how well a score would have chosen where a target is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from .candidates import SCORES, Candidate, Group, Score


def average_ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """1 for the highest, 2 for the next, ...; equals share the mean of their places."""
    array = np.asarray(values, np.float64)
    above = (array[None, :] > array[:, None]).sum(1)
    alike = (array[None, :] == array[:, None]).sum(1)
    return np.asarray(above + (alike + 1) / 2, np.float64)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, in [-1, 1]; None where one of the two is constant or shorter than 2."""
    a, b = average_ranks(first), average_ranks(second)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip((a @ b) / np.sqrt((a @ a) * (b @ b)), -1, 1))


FEWEST = 3  # candidates of which a correlation says anything


def ranks_of(group: Group, score: Score) -> list[float | None]:
    """The rank of every candidate among those that have the score, 1 the best; None without it."""
    values = [candidate.scores[score] for candidate in group.candidates]
    ranks = iter(average_ranks([value for value in values if value is not None]).tolist())
    return [None if value is None else next(ranks) for value in values]


def chosen_by(group: Group, score: Score) -> list[Candidate]:
    """Those with the highest score; several where they are equal, none where nobody has it."""
    known = [value for c in group.candidates if (value := c.scores[score]) is not None]
    return [c for c in group.candidates if known and c.scores[score] == max(known)]


@dataclass(frozen=True)
class Judgement:
    """What a score would have chosen in one group, in percent right on the target."""

    candidates: int  # that have the score
    of: int  # that have a scored target
    correlation: float | None
    picked: float  # the mean where several have the highest score
    best: float
    mean: float

    @property
    def regret(self) -> float:
        """What the choice lost against the best."""
        return self.best - self.picked


@dataclass(frozen=True)
class Verdict:
    """A score over all groups: means over those that can tell; None where none can."""

    groups: int  # over which picked, best and mean are averaged
    correlated: int  # over which the correlation is
    scored: int  # candidates that have the score, in all groups
    of: int  # candidates with a scored target, in all groups
    correlation: float | None
    picked: float | None
    best: float | None
    mean: float | None
    regret: float | None


def judge_group(group: Group, score: Score) -> Judgement | None:
    """A score held against the target; None if fewer than two candidates have both, for one is no choice."""
    seen = [c for c in group.candidates if c.target is not None]
    told = Group(group.title, tuple(seen))
    pairs = [(value, c.target) for c in seen if (value := c.scores[score]) is not None and c.target is not None]
    if len(pairs) < 2:
        return None
    targets = [c.target for c in seen if c.target is not None]
    enough = len(pairs) >= FEWEST
    return Judgement(
        candidates=len(pairs),
        of=len(seen),
        correlation=spearman(*zip(*pairs, strict=True)) if enough else None,
        picked=mean(c.target for c in chosen_by(told, score) if c.target is not None),
        best=max(targets),
        mean=mean(targets),
    )


def judge(groups: Sequence[Group]) -> Mapping[Score, Verdict]:
    """Every score over all groups."""
    return {score: _verdict(groups, score) for score in SCORES}


def is_scored(groups: Sequence[Group]) -> bool:
    """Whether any candidate has a scored target."""
    return any(c.target is not None for group in groups for c in group.candidates)


def too_few(groups: Sequence[Group]) -> list[str]:
    """The groups with too few scored candidates for a correlation."""
    return [g.title for g in groups if sum(c.target is not None for c in g.candidates) < FEWEST]


def _verdict(groups: Sequence[Group], score: Score) -> Verdict:
    judged = [j for group in groups if (j := judge_group(group, score)) is not None]
    seen = [c for group in groups for c in group.candidates if c.target is not None]
    correlations = [j.correlation for j in judged if j.correlation is not None]
    return Verdict(
        groups=len(judged),
        correlated=len(correlations),
        scored=sum(c.scores[score] is not None for c in seen),
        of=len(seen),
        correlation=mean(correlations) if correlations else None,
        picked=_mean([j.picked for j in judged]),
        best=_mean([j.best for j in judged]),
        mean=_mean([j.mean for j in judged]),
        regret=_mean([j.regret for j in judged]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None
