"""Domain generalization methods: labeled images only, of one domain or, with pseudo-labels, of several."""

from . import mixstyle, rsc

__all__ = ["mixstyle", "rsc"]
