"""A Trainer and a Build that record the requests of a method."""

from dataclasses import dataclass, field

import numpy as np
import torch

from builders import labeled_set, unlabeled_set
from ssdg.data.sets import PseudoLabels, Task

LABELED = labeled_set([10, 20, 30], [0, 1, 2])
SEA, SKY = unlabeled_set([50, 51, 52, 53], domain=1), unlabeled_set([60, 61, 62], domain=2)
TASK = Task(("a", "b", "c"), LABELED, {"sea": SEA, "sky": SKY})


@dataclass(frozen=True)
class Built:
    """Placeholder of a learner."""

    key: str
    kind: type
    settings: object
    options: dict


@dataclass
class Recorder:
    """`train` and `label` of a Trainer, and a Build; `logits(learner, n, round)` replaces the networks."""

    logits: object
    calls: list = field(default_factory=list)
    builds: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # by (key, round)

    def build(self, key, learner, settings, **options):
        self.builds.append(Built(key, learner, settings, options))
        return self.builds[-1]

    def train(self, key, learner, inputs, settings, *, round=1, title="", group="", **options):
        args = {**{k: v for k, v in vars(inputs).items() if v is not None}, "settings": settings, **options}
        self.calls.append(("train", key, round, learner, args))

    def label(self, key, learner, pool, rule, *, round, kind="pseudo-labels", title="", views=0):
        self.calls.append(("label", key, round, learner, {"pool": pool, "views": views}))
        logits = self.logits(learner, len(pool), round)
        y, keep = rule(logits)
        probs, votes = logits.softmax(-1).mean(0).half().numpy(), logits.argmax(-1).numpy()
        labels = PseudoLabels(y.numpy(), keep.numpy(), np.ones(len(pool), np.float32), votes, probs)
        self.labels[key, round] = labels
        return labels

    def order(self):
        return [call[:3] for call in self.calls]

    def trained(self, key):
        return [call[4] for call in self.calls if call[:2] == ("train", key)]


def random_logits(learner, n, round):
    """Two networks that agree on most images."""
    rng = torch.Generator().manual_seed(100 * n + round)
    return 4 * torch.randn(n, 3, generator=rng) + 0.5 * torch.randn(2, n, 3, generator=rng)


def images_of(data):
    return data.images[np.arange(len(data))][:, 0, 0, 0].tolist()
