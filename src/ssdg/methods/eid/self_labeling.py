"""The cycle with `apl=self`: the averaged networks of the run label the unlabeled domains themselves.

Not in the paper, whose labelers are trained by adversarial adaptation. There is one set of networks and one
learning-rate schedule over all cycles. Every cycle labels each domain anew, remembers what earlier cycles predicted,
and lets a growing share of the most confident images of every class and domain into training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.sets import Inputs, LabeledSet, PseudoLabels, Task, concat_labeled
from ...losses.selection import fair_share_mask, mean_over_networks, view_agreement, weigh_keywords
from ..api import Build, Learner, Span, Trainer, find_labeler
from .averaged import build_networks
from .labeling import Labeling
from .settings import SELF, EidSettings

TITLE = "networks of DCG"
Probs = NDArray[np.float32]  # (n, K)


@dataclass(frozen=True)
class RememberingShare:
    """A rule that selects the most confident images of every predicted class, at most a share of a fair share.

    It averages the probabilities over networks and views, and these with `remembered` ones of earlier cycles. The
    share is `rate` · agreement^`trust`: where randomized views change many labels, fewer labels are right and fewer
    are used. `keywords` (n,) of a crawl, -1 for none, are weighed by how often they match confident predictions;
    agreement is then that of the labels that include them.
    """

    rate: float
    memory: float = 0.5
    trust: float = 0.0
    remembered: Probs | None = None
    keywords: NDArray[np.int64] | None = None
    num_networks: int = 1

    def __call__(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the class of highest probability, and the selection, for logits (views · networks, n, K)."""
        probs = torch.from_numpy(self.update(logits.softmax(-1).mean(0).numpy()))
        views = mean_over_networks(logits, self.num_networks)
        reliability = view_agreement(views)
        weighed = torch.stack([self.weigh(view, reliability) for view in views])
        return self.select(self.weigh(probs, reliability), view_agreement(weighed))

    def choose(self, labels: PseudoLabels) -> PseudoLabels:
        """Return the labels of another method, of which only those of the rule's share are selected."""
        assert self.remembered is not None
        votes = torch.from_numpy(labels.votes)  # those of the plain image first
        agreement = float((votes[1:] == votes[0]).double().mean()) if len(votes) > 1 else 1.0
        y, keep = self.select(self.weigh(torch.from_numpy(self.remembered), agreement), agreement)
        return replace(labels, y=y.numpy(), keep=keep.numpy() & labels.keep)

    def weigh(self, probs: Tensor, reliability: float) -> Tensor:
        """Return probabilities (n, K) that take the keywords into account, if there are any."""
        return probs if self.keywords is None else weigh_keywords(probs, torch.from_numpy(self.keywords), reliability)

    def select(self, probs: Tensor, agreement: float) -> tuple[Tensor, Tensor]:
        """Return the class of highest probability and the selection, for probabilities (n, K)."""
        return probs.argmax(-1), fair_share_mask(probs, self.rate * agreement**self.trust)

    def update(self, probs: Probs) -> Probs:
        """Return the probabilities that the next cycle remembers."""
        if self.remembered is None:
            return probs
        return self.memory * self.remembered + (1 - self.memory) * probs


def fit_self_labeled(task: Task, trainer: Trainer, build: Build, cfg: EidSettings) -> Learner:
    """Train on the labeled domain, then in cycles on what the networks' averages label with confidence."""
    networks = build("dcg", build_networks, cfg)
    start, *spans = cfg.spans()
    if cfg.start_epochs:
        trainer.train("start", networks, Inputs(task.labeled), cfg.start, span=start, title="labeled domain")
    first = first_labels(task, trainer, build, cfg)
    remembered = {name: probs_of(labels, len(task.classes)) for name, labels in first.items()}
    for cycle, span in enumerate(spans, start=1):
        selected = [task.labeled]
        for name, pool in task.unlabeled.items():
            keywords = task.web.get(name)
            if keywords is not None and task.web_label == "retained":
                selected.append(pool.labeled_as(keywords))
                continue
            rule = RememberingShare(
                cfg.share(cycle), cfg.memory, cfg.trust, remembered.get(name), keywords, cfg.networks
            )
            if cycle == 1 and name in first and not cfg.start_epochs:  # the networks have learned nothing yet
                labels = rule.choose(first[name])
            else:
                labels = trainer.label(
                    f"apl/{name}", networks, pool, rule, round=cycle, title="self-labels (APL)", views=cfg.label_views
                )
                remembered[name] = rule.update(probs_of(labels, len(task.classes)))
            selected.append(pool.labeled_by(labels))
        train_cycle(networks, concat_labeled(selected), trainer, cfg, cycle=cycle, span=span)
    return networks


def train_cycle(
    networks: Learner, joined: LabeledSet, trainer: Trainer, cfg: EidSettings, *, cycle: int, span: Span
) -> None:
    """Train on equally many images of every domain."""
    inputs = Inputs(joined, balanced=True)
    trainer.train("dcg", networks, inputs, cfg.dcg, round=cycle, span=span, product=True, title=TITLE)


def first_labels(task: Task, trainer: Trainer, build: Build, cfg: EidSettings) -> dict[str, PseudoLabels]:
    """Return the labels of the method in `first_labels` for every domain; none if the networks begin themselves."""
    if cfg.first_labels == SELF:
        return {}
    labeling = Labeling(find_labeler(cfg.first_labels), cfg.labeler, cfg.apl_backbone, cfg.apl_weights)
    labelers = labeling.build(task, build)
    pools = {name: task.unlabeled[name] for name in labelers}
    return labeling.label(pools, trainer, labelers, task.labeled, key="first")


def probs_of(labels: PseudoLabels, num_classes: int) -> Probs:
    """Return the class probabilities of a labeling (n, K), without that of 'unknown' of an open-set labeler."""
    assert labels.probs is not None
    return labels.probs[:, :num_classes].astype(np.float32)
