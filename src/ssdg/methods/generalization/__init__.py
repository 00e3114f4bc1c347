"""Domain generalization methods: labeled images only, of one domain or, with pseudo-labels, of several."""

from . import dgvgs, l2d, mixstyle, rsc

__all__ = ["dgvgs", "l2d", "mixstyle", "rsc"]
