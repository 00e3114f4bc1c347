"""Domain generalization methods: labeled images only, of one domain or, with pseudo-labels, of several."""

from . import daeldg, ddaig

__all__ = ["daeldg", "ddaig"]
