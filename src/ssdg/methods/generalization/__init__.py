"""Domain generalization methods: labeled images of one domain or, with pseudo-labels, of several."""

from . import daeldg, ddaig, dgvgs, l2d, mixstyle, rsc

__all__ = ["daeldg", "ddaig", "dgvgs", "l2d", "mixstyle", "rsc"]
