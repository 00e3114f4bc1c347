"""What tests of adversarial methods share: players who move at once."""

import torch


def descend_together(*players):
    """Every (optimizer, loss) moves down its own loss, all of them from where they stand now."""
    gradients = [torch.autograd.grad(loss, plain.parameters, retain_graph=True) for plain, loss in players]
    for (plain, _), grads in zip(players, gradients, strict=True):
        plain.descend(sum((g * p).sum() for g, p in zip(grads, plain.parameters, strict=True)))
