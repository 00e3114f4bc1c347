"""Training methods, one file each, in a registry. Importing this package registers all of them."""

from . import adaptation, generalization, semi, source_only
from .api import METHODS, Method, find_method, register
from .eid import cycle

__all__ = [
    "METHODS",
    "Method",
    "adaptation",
    "cycle",
    "find_method",
    "generalization",
    "register",
    "semi",
    "source_only",
]
