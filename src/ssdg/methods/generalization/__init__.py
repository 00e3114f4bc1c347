"""Domain generalization methods: labeled images only, of one domain or, with pseudo-labels, of several."""

from . import rsc

__all__ = ["rsc"]
