"""Small estimators, and arrays of the tiny world with numbers for labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ssdg import SSDG
from worlds import CLASSES, TINTS, picture

NUMBERS = {"bar": 10, "disc": 3, "ring": -1}  # in no order of their names or values
Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def arrays(domain: str, per_class: int = 6) -> Arrays:
    rng = np.random.default_rng(sum(map(ord, domain)))
    images = [picture(name, TINTS[domain], rng) for name in CLASSES for _ in range(per_class)]
    return np.stack(images), np.repeat([NUMBERS[name] for name in CLASSES], per_class)


def small(cache: Path, method: str = "mcd", epochs: int = 1, **more: Any) -> SSDG:
    settings = {"epochs": epochs, "batch": 4, "lr": 0.01, **more.pop("settings", {})}
    params = {"backbone": "digits-cnn", "weights": "none", "size": 32, "device": "cpu", "cache": cache}
    return SSDG(method, **{**params, **more}, settings=settings)
