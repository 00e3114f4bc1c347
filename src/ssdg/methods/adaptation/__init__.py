"""Domain adaptation methods: labeled source, unlabeled target."""

from . import cdan, dan, dann, jan, mcd, mme, osbp

__all__ = ["cdan", "dan", "dann", "jan", "mcd", "mme", "osbp"]
