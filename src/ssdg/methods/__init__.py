"""Training methods, one file each, in a registry. Importing this package registers all of them."""

from . import source_only
from .adaptation import mcd
from .api import METHODS, Method, find_method, register
from .eid import cycle

__all__ = ["METHODS", "Method", "cycle", "find_method", "mcd", "register", "source_only"]
