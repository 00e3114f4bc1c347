"""Domain adaptation methods: labeled source, unlabeled target."""

from . import cdan, dann, mcd, mme, osbp

__all__ = ["cdan", "dann", "mcd", "mme", "osbp"]
