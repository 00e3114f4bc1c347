"""Find wrong web-labels and outliers with cleanlab on backbone features."""

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
from ...data.parallel import show_progress
from ...data.sources.tree import Item
from ...errors import UserError

Features = NDArray[np.float32]  # (images, features), unit rows
Extract = Callable[[Sequence[Item]], Features]
_BATCH = 64


@dataclass(frozen=True)
class BackboneFeatures:
    """Feature extractor: concatenates the normalized features of every backbone."""

    backbones: Sequence[nn.Module]
    size: int  # px, side length
    cache: Path
    device: torch.device

    def __call__(self, items: Sequence[Item]) -> Features:
        """Return one row per item, in order; the items must be readable."""
        loaded = load_images(items, self.size, self.cache, title="crawl")
        if loaded.unreadable:
            path, reason = loaded.unreadable[0]
            raise UserError(f"'{path}' changed during the audit ({reason}); run the command again")
        rows = []
        with show_progress("features", None) as report_progress:
            for start in range(0, len(loaded.images), _BATCH):
                images = loaded.images[np.arange(start, min(start + _BATCH, len(loaded.images)))]
                rows.append(self._features(images))
                report_progress(start + len(images), len(items))
        features = np.empty((len(items), rows[0].shape[1] if rows else 1), np.float32)
        features[loaded.item] = np.concatenate(rows) if rows else features
        return features

    def _features(self, images: NDArray[np.uint8]) -> Features:
        x = to_float(torch.from_numpy(images).to(self.device))
        with torch.inference_mode():
            parts = [nn.functional.normalize(net.eval()(x).float(), dim=1) for net in self.backbones]
        joined: Features = (torch.cat(parts, dim=1) / len(parts) ** 0.5).cpu().numpy()
        return joined


Mask = NDArray[np.bool_]
FOLDS = 5
NUM_NEIGHBORS = 10
_INVERSE_REGULARIZATION = 1.0  # of the classifier; features have unit norm


@dataclass(frozen=True, eq=False)
class Marks:
    """Label issues and outliers, per image."""

    issue: Mask
    suggested: tuple[str, ...]  # web-label that fits better, '' without an issue
    quality: tuple[float | None, ...]  # how well the web-label fits, 0 to 1; None if not checked
    outlier: Mask
    outlier_score: tuple[float | None, ...]  # 0 to 1, high is far from all others; None with too few images
    notes: tuple[str, ...] = ()  # sentences on what could not be checked


def check_installed() -> None:
    """Raise `UserError` if cleanlab or scikit-learn is missing."""
    if find_spec("cleanlab") is None or find_spec("sklearn") is None:
        raise UserError(
            "label issues and outliers need cleanlab, which is not installed; "
            "run pip install 'ssdg[web]' or set --no-labels"
        )


def mark_images(features: Features, labels: Sequence[str], outlier_rate: float) -> Marks:
    """Mark label issues and outliers; images with the web-label '' and classes of one image have no label issues.

    Outliers are the fraction `outlier_rate` of the images that are farthest from their nearest neighbors: if many
    images belong to no class, no threshold on the distances reveals how many.
    """
    issue, suggested, quality, notes = _label_issues(features, labels)
    score = _outlier_scores(features)
    if score is None:
        notes.append(f"outliers were not checked: there are {len(labels)} images, at least 3 are needed")
        return Marks(issue, suggested, quality, np.zeros(len(labels), np.bool_), (None,) * len(labels), tuple(notes))
    rounded = tuple(round(float(value), 4) for value in score)
    return Marks(issue, suggested, quality, _select_highest(score, outlier_rate), rounded, tuple(notes))


def _label_issues(
    features: Features, labels: Sequence[str]
) -> tuple[Mask, tuple[str, ...], tuple[float | None, ...], list[str]]:
    counts = Counter(label for label in labels if label)
    single = sorted(label for label, count in counts.items() if count < 2)
    notes = [f"{', '.join(single)}: only one image, so its web-label was not checked"] if single else []
    rows = np.flatnonzero([counts[label] > 1 for label in labels])
    issue, suggested = np.zeros(len(labels), np.bool_), [""] * len(labels)
    quality: list[float | None] = [None] * len(labels)
    names, y = np.unique([labels[row] for row in rows.tolist()], return_inverse=True)
    if len(names) < 2:
        notes.append("label issues were not checked: at least two web-labels with two images each are needed")
        return issue, tuple(suggested), tuple(quality), notes
    if few := sorted(label for label, count in counts.items() if 2 <= count < FOLDS):
        notes.append(f"{', '.join(few)}: fewer than {FOLDS} images, so its label issues are unreliable")
    probs = _probabilities(features[rows], y)
    wrong, scores = _find_wrong_labels(y, probs)
    issue[rows] = wrong
    for row, is_wrong, score, best in zip(rows.tolist(), wrong, scores, probs.argmax(1), strict=True):
        quality[row] = round(float(score), 4)
        suggested[row] = str(names[best]) if is_wrong else ""
    return issue, tuple(suggested), tuple(quality), notes


def _find_wrong_labels(y: NDArray[np.intp], probs: NDArray[np.float64]) -> tuple[Mask, NDArray[np.float64]]:
    """Return which labels are wrong and how well each fits, by confident learning (cleanlab)."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    wrong: Mask = find_label_issues(y, probs, n_jobs=1)
    return wrong, get_label_quality_scores(y, probs)


def _probabilities(features: Features, y: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return out-of-fold class probabilities (images, classes) of linear classifiers."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(min(FOLDS, int(np.bincount(y).min())), shuffle=True, random_state=0)
    probs = np.zeros((len(y), y.max() + 1))
    for train, held_out in folds.split(features, y):
        model = LogisticRegression(C=_INVERSE_REGULARIZATION, max_iter=500).fit(features[train], y[train])
        probs[held_out] = model.predict_proba(features[held_out])
    return probs


def _outlier_scores(features: Features) -> NDArray[np.float64] | None:
    """Return 1 minus the typicality that cleanlab derives from the distance to the nearest images."""
    from cleanlab.outlier import OutOfDistribution

    if len(features) < 3:
        return None
    finder = OutOfDistribution({"k": min(NUM_NEIGHBORS, len(features) - 1)})
    scores: NDArray[np.float64] = 1 - finder.fit_score(features=features.astype(np.float64), verbose=False)
    return scores


def _select_highest(score: NDArray[np.float64], rate: float) -> Mask:
    selected = np.zeros(len(score), np.bool_)
    selected[np.argsort(-score, kind="stable")[: int(rate * len(score))]] = True
    return selected


def expand_marks(marks: Marks, rows: Sequence[int], total: int) -> Marks:
    """Expand the marks of some rows to all `total` rows; the others have none."""
    positions = dict(zip(rows, range(len(rows)), strict=True))
    issue, outlier = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    issue[list(rows)], outlier[list(rows)] = marks.issue, marks.outlier
    return replace(
        marks,
        issue=issue,
        suggested=tuple(marks.suggested[positions[row]] if row in positions else "" for row in range(total)),
        quality=tuple(marks.quality[positions[row]] if row in positions else None for row in range(total)),
        outlier=outlier,
        outlier_score=tuple(
            marks.outlier_score[positions[row]] if row in positions else None for row in range(total)
        ),
    )
