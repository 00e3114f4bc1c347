"""The one check that every loss needs."""

from __future__ import annotations

from torch import Tensor


def require_rows(values: Tensor, name: str) -> None:
    """Refuse an empty batch, whose mean would be NaN and spread silently."""
    if values.shape[0] == 0:
        raise ValueError(f"{name} needs at least one sample; the batch is empty")
