"""Randomness derived from names: the same parts give the same stream, in any process and order."""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive_seed(*parts: object) -> int:
    """Return a 63-bit seed that depends on every part and on their order."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_rng(*parts: object) -> np.random.Generator:
    """Return a NumPy generator seeded by `parts`."""
    return np.random.Generator(np.random.PCG64(derive_seed(*parts)))


def torch_rng(*parts: object) -> torch.Generator:
    """Return a CPU torch generator seeded by `parts`."""
    return torch.Generator().manual_seed(derive_seed(*parts))
