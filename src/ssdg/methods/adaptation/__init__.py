"""Domain adaptation methods: labeled source, unlabeled target."""

from . import mcd

__all__ = ["mcd"]
