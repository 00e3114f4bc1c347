"""What tests of adversarial methods share: a labeled and an unlabeled batch, and players who move at once."""

import torch

from builders import labeled_batch, random_images, unlabeled_batch
from ssdg.data.sets import Batch

X, U = random_images(6, 0), random_images(5, 1)
HARD = torch.tensor([0, 1, 2, 2, 1, 0])
SOFT = torch.rand(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).softmax(1)
LABELS = {"hard": HARD, "soft": SOFT}


def batch(y=HARD, u=U):
    return Batch(labeled_batch(X, y), unlabeled=unlabeled_batch(u))


def descend_together(*players):
    """Every (optimizer, loss) moves down its own loss, all of them from where they stand now."""
    gradients = [torch.autograd.grad(loss, plain.parameters, retain_graph=True) for plain, loss in players]
    for (plain, _), grads in zip(players, gradients, strict=True):
        plain.descend(sum((g * p).sum() for g, p in zip(grads, plain.parameters, strict=True)))


def state(nets):
    """Weights and running statistics; the count of passes means nothing to a norm of fixed momentum."""
    return {name: value for name, value in nets.state_dict().items() if "num_batches" not in name}
