"""Tiny sets, batches and networks that tests share."""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from ssdg.data.sets import Batch, ImageTable, LabeledBatch, LabeledSet, UnlabeledBatch, UnlabeledSet
from ssdg.data.streams import Pipeline
from ssdg.methods.api import Progress, Sizes


def flat_images(values, size=4):
    """Image i has the one colour `values[i]` (0..255), so that a batch tells which images it holds."""
    pixels = np.asarray(values, np.uint8)[:, None, None, None]
    return ImageTable.from_array(np.ascontiguousarray(np.broadcast_to(pixels, (len(values), size, size, 3))))


def labeled_set(values, y, domain=0, trusted=True, size=4):
    n = len(values)
    return LabeledSet(flat_images(values, size), np.asarray(y), np.full(n, domain), np.full(n, trusted))


def unlabeled_set(values, domain=1, size=4):
    return UnlabeledSet(flat_images(values, size), np.full(len(values), domain))


# Two sets in which class and colour tell each other.
BASE = labeled_set([10, 20, 30, 40], [0, 1, 2, 3])
CLEAN = labeled_set([110, 120, 130, 140], [4, 5, 6, 7], domain=1, trusted=False)
COLOURS = torch.tensor([10, 20, 30, 40, 110, 120, 130, 140]) / 255  # by class
PLAIN = Pipeline("none", torch.device("cpu"), num_classes=8)


def values_of(x):
    """The colours of flat images (B, 3, H, W)."""
    return (x.mean((1, 2, 3)) * 255).round().int().tolist()


class TinyBackbone(nn.Module):
    """Three 1x1 convolutions with tanh between and the mean over positions; smooth, with or without batch norm."""

    num_features = 5
    min_size = 1
    prefers_bf16 = False

    def __init__(self, norm=False):
        super().__init__()
        widths = (3, 4, 4, 5)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 1), nn.BatchNorm2d(o) if norm else nn.Identity(), nn.Tanh())
            for i, o in pairwise(widths)
        )

    @property
    def style_stages(self):
        return tuple(self.stages)

    def maps(self, x):
        for stage in self.stages:
            x = stage(x)
        return x

    def pool(self, maps):
        return maps.mean((2, 3))

    def forward(self, x):
        return self.pool(self.maps(x))


def random_images(n, seed, size=3):
    return torch.rand(n, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labeled_batch(x, y, trusted=True):
    return LabeledBatch(x, y, torch.zeros(len(x), dtype=torch.long), torch.full((len(x),), trusted))


def unlabeled_batch(x):
    return UnlabeledBatch(x, torch.ones(len(x), dtype=torch.long))


def soft_labels(n, num_classes=3):
    return torch.rand(n, num_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).softmax(1)


# A labeled and an unlabeled batch that tests of methods share.
X, U = random_images(6, 0), random_images(5, 1)
HARD, SOFT = torch.tensor([0, 1, 2, 2, 1, 0]), soft_labels(6)
LABELS = {"hard": HARD, "soft": SOFT}


def batch(y=HARD, u=U):
    return Batch(labeled_batch(X, y), unlabeled=unlabeled_batch(u))


def built(learner, settings, norm=False, *, sizes=None, make_backbone=None):
    """A learner on a tiny backbone, of three classes, always of the same weights, in float64 and training mode."""
    torch.manual_seed(0)
    made = learner(make_backbone or (lambda: TinyBackbone(norm)), sizes or Sizes(3), settings)
    made.nets.double().train()
    return made


def state(nets):
    """Weights and running statistics; the count of passes means nothing to a norm of fixed momentum."""
    return without_counts(nets.state_dict())


def without_counts(values):
    return {name: value for name, value in values.items() if "num_batches" not in name}


def at_epoch(epoch, epochs=10):
    return Progress(round=1, epoch=epoch, epochs=epochs, step=epoch, steps=epochs)


class PlainSGD:
    """v <- m v + (g + w p), p <- p - lr v (Sutskever's momentum as PyTorch has it), by hand."""

    def __init__(self, parameters, settings):
        self.parameters = list(parameters)
        self.settings = settings
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    def descend(self, loss):
        grads = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for p, v, g in zip(self.parameters, self.velocity, grads, strict=True):
                v.mul_(self.settings.momentum).add_(g + self.settings.weight_decay * p)
                p.sub_(self.settings.lr * v)


def plain_cross_entropy(logits, y):
    """Mean of -log p of the class, or of -sum_k y_k log p_k, sample by sample."""
    probs = logits.exp() / logits.exp().sum(1, keepdim=True)
    if y.ndim == 1:
        losses = [-probs[i, y[i]].log() for i in range(len(y))]
    else:
        losses = [-sum(y[i, k] * probs[i, k].log() for k in range(y.shape[1])) for i in range(len(y))]
    return sum(losses) / len(losses)
