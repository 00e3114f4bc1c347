"""Domain adaptation methods: labeled source, unlabeled target."""

from . import cdan, dann, mcd

__all__ = ["cdan", "dann", "mcd"]
