"""Domain generalization methods: labeled images only, of one domain or, with pseudo-labels, of several."""

from . import dgvgs, mixstyle, rsc

__all__ = ["dgvgs", "mixstyle", "rsc"]
