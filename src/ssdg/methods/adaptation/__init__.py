"""Domain adaptation methods: labeled source, unlabeled target."""

from . import dan, jan, mcd

__all__ = ["dan", "jan", "mcd"]
