"""Find web-labels that look wrong and images that look like no other: cleanlab on backbone features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...data.augment import to_float
from ...data.cache import load_images
from ...data.parallel import shown
from ...data.sources.tree import Item
from ...errors import UserError

Features = NDArray[np.float32]  # (images, features), rows of length 1
Extract = Callable[[Sequence[Item]], Features]
_BATCH = 64


@dataclass(frozen=True)
class BackboneFeatures:
    """Called with images, gives their features side by side from every backbone, each of length 1 before."""

    backbones: Sequence[nn.Module]
    size: int  # px, of a side
    cache: Path
    device: torch.device

    def __call__(self, items: Sequence[Item]) -> Features:
        """One row for each item, in order; the items are known to be whole."""
        found = load_images(items, self.size, self.cache, title="crawl")
        if found.unreadable:
            path, why = found.unreadable[0]
            raise UserError(f"'{path}' changed while the audit ran ({why}); run the command again")
        rows = []
        with shown("features", None) as tell:
            for start in range(0, len(found.images), _BATCH):
                images = found.images[np.arange(start, min(start + _BATCH, len(found.images)))]
                rows.append(self._features(images))
                tell(start + len(images), len(items))
        features = np.empty((len(items), rows[0].shape[1] if rows else 1), np.float32)
        features[found.item] = np.concatenate(rows) if rows else features
        return features

    def _features(self, images: NDArray[np.uint8]) -> Features:
        x = to_float(torch.from_numpy(images).to(self.device))
        with torch.inference_mode():
            parts = [nn.functional.normalize(net.eval()(x).float(), dim=1) for net in self.backbones]
        joined: Features = (torch.cat(parts, dim=1) / len(parts) ** 0.5).cpu().numpy()
        return joined


Mask = NDArray[np.bool_]
FOLDS = 5
NEIGHBOURS = 10
_STRENGTH = 1.0  # inverse of the classifier's regularisation; features have length 1


@dataclass(frozen=True, eq=False)
class Marks:
    """Per image: does its web-label look wrong, which would fit, how well it fits; does it look like no other."""

    issue: Mask
    suggested: tuple[str, ...]  # '' where there is no issue
    quality: tuple[float | None, ...]  # 0 to 1; None where no web-label was looked at
    outlier: Mask
    outlier_score: tuple[float | None, ...]  # 0 to 1, high is far from all others; None if there are too few images
    notes: tuple[str, ...] = ()  # sentences on what could not be looked at


def check_installed() -> None:
    """Refuse before any work if cleanlab or scikit-learn is missing."""
    if find_spec("cleanlab") is None or find_spec("sklearn") is None:
        raise UserError(
            "label issues and outliers are found by cleanlab, which is not installed; "
            "run pip install 'ssdg[web]', or give --no-labels"
        )


def mark(features: Features, labels: Sequence[str], outlier_rate: float) -> Marks:
    """Mark the images; '' is a web-label that says nothing, and classes of one image are passed over.

    Outliers are the given share of the images that lie farthest from their nearest ones: no rule on the distances
    themselves tells how many there are where many images belong to no class.
    """
    issue, suggested, quality, notes = _label_issues(features, labels)
    score = _outlier_scores(features)
    if score is None:
        notes.append(f"outliers were not looked for: there are {len(labels)} images, and 3 are needed")
        return Marks(issue, suggested, quality, np.zeros(len(labels), np.bool_), (None,) * len(labels), tuple(notes))
    rounded = tuple(round(float(value), 4) for value in score)
    return Marks(issue, suggested, quality, _farthest(score, outlier_rate), rounded, tuple(notes))


def _label_issues(
    features: Features, labels: Sequence[str]
) -> tuple[Mask, tuple[str, ...], tuple[float | None, ...], list[str]]:
    counts = Counter(label for label in labels if label)
    single = sorted(label for label, count in counts.items() if count < 2)
    notes = [f"{', '.join(single)}: one image alone, so its web-label was not looked at"] if single else []
    rows = np.flatnonzero([counts[label] > 1 for label in labels])
    issue, suggested = np.zeros(len(labels), np.bool_), [""] * len(labels)
    quality: list[float | None] = [None] * len(labels)
    names, y = np.unique([labels[row] for row in rows.tolist()], return_inverse=True)
    if len(names) < 2:
        notes.append("label issues were not looked for: two web-labels with two images each are needed")
        return issue, tuple(suggested), tuple(quality), notes
    if few := sorted(label for label, count in counts.items() if 2 <= count < FOLDS):
        notes.append(f"{', '.join(few)}: fewer than {FOLDS} images, so marks of its web-labels are weak")
    probs = _probabilities(features[rows], y)
    wrong, fits = _judge(y, probs)
    issue[rows] = wrong
    for row, is_wrong, fit, best in zip(rows.tolist(), wrong, fits, probs.argmax(1), strict=True):
        quality[row] = round(float(fit), 4)
        suggested[row] = str(names[best]) if is_wrong else ""
    return issue, tuple(suggested), tuple(quality), notes


def _judge(y: NDArray[np.intp], probs: NDArray[np.float64]) -> tuple[Mask, NDArray[np.float64]]:
    """cleanlab's confident learning: which labels are wrong, and how well each fits."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    wrong: Mask = find_label_issues(y, probs, n_jobs=1)
    return wrong, get_label_quality_scores(y, probs)


def _probabilities(features: Features, y: NDArray[np.intp]) -> NDArray[np.float64]:
    """Of every class for every image, by linear classifiers that have not seen the image."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(min(FOLDS, int(np.bincount(y).min())), shuffle=True, random_state=0)
    probs = np.zeros((len(y), y.max() + 1))
    for seen, held in folds.split(features, y):
        model = LogisticRegression(C=_STRENGTH, max_iter=500).fit(features[seen], y[seen])
        probs[held] = model.predict_proba(features[held])
    return probs


def _outlier_scores(features: Features) -> NDArray[np.float64] | None:
    """1 minus cleanlab's typicality by the distance to the nearest images."""
    from cleanlab.outlier import OutOfDistribution

    if len(features) < 3:
        return None
    finder = OutOfDistribution({"k": min(NEIGHBOURS, len(features) - 1)})
    scores: NDArray[np.float64] = 1 - finder.fit_score(features=features.astype(np.float64), verbose=False)
    return scores


def _farthest(score: NDArray[np.float64], rate: float) -> Mask:
    far = np.zeros(len(score), np.bool_)
    far[np.argsort(-score, kind="stable")[: int(rate * len(score))]] = True
    return far


def spread(marks: Marks, rows: Sequence[int], total: int) -> Marks:
    """The marks of some rows among all; the others have none."""
    place = dict(zip(rows, range(len(rows)), strict=True))
    issue, outlier = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    issue[list(rows)], outlier[list(rows)] = marks.issue, marks.outlier
    return replace(
        marks,
        issue=issue,
        suggested=tuple(marks.suggested[place[row]] if row in place else "" for row in range(total)),
        quality=tuple(marks.quality[place[row]] if row in place else None for row in range(total)),
        outlier=outlier,
        outlier_score=tuple(marks.outlier_score[place[row]] if row in place else None for row in range(total)),
    )
