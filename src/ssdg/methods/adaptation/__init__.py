"""Domain adaptation methods: labeled source, unlabeled target."""

from . import dann, mcd

__all__ = ["dann", "mcd"]
