"""Training methods, one file each, in a registry. Importing this package registers all of them."""

from . import adaptation, generalization, semi, source_only
from .api import METHODS, Method, find_method, register
from .compose import pair
from .eid import cycle

# The pairs of the paper's tables; any other is composed when it is asked for.
for name in ("mcd+mixstyle", "mcd+ddaig", "cdan-e+daeldg"):
    register(pair(name))

__all__ = [
    "METHODS",
    "Method",
    "adaptation",
    "cycle",
    "find_method",
    "generalization",
    "pair",
    "register",
    "semi",
    "source_only",
]
