"""Randomness derived from names: the same words give the same stream, in any process and order."""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive_seed(*words: object) -> int:
    """A 63-bit seed that depends on every word and on their order."""
    text = "\x1f".join(str(word) for word in words)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_rng(*words: object) -> np.random.Generator:
    """A NumPy generator for these words."""
    return np.random.Generator(np.random.PCG64(derive_seed(*words)))


def torch_rng(*words: object) -> torch.Generator:
    """A CPU torch generator for these words."""
    return torch.Generator().manual_seed(derive_seed(*words))
