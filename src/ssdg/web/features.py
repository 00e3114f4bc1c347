"""Features of a crawl's images, from one or more backbones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..data.augment import to_float
from ..data.cache import load_images
from ..data.progress import shown
from ..data.sources import Item
from ..errors import UserError

Features = NDArray[np.float32]  # (images, features), rows of length 1
Extract = Callable[[Sequence[Item]], Features]
_BATCH = 64


@dataclass(frozen=True)
class BackboneFeatures:
    """Called with images, gives their features side by side from every backbone, each of length 1 before."""

    backbones: Sequence[nn.Module]
    size: int  # px, of a side
    cache: Path
    device: torch.device

    def __call__(self, items: Sequence[Item]) -> Features:
        """One row for each item, in order; the items are known to be whole."""
        found = load_images(items, self.size, self.cache, title="crawl")
        if found.unreadable:
            path, why = found.unreadable[0]
            raise UserError(f"'{path}' changed while the audit ran ({why}); run the command again")
        rows = []
        with shown("features", None) as tell:
            for start in range(0, len(found.images), _BATCH):
                images = found.images[np.arange(start, min(start + _BATCH, len(found.images)))]
                rows.append(self._features(images))
                tell(start + len(images), len(items))
        features = np.empty((len(items), rows[0].shape[1] if rows else 1), np.float32)
        features[found.item] = np.concatenate(rows) if rows else features
        return features

    def _features(self, images: NDArray[np.uint8]) -> Features:
        x = to_float(torch.from_numpy(images).to(self.device))
        with torch.inference_mode():
            parts = [nn.functional.normalize(net.eval()(x).float(), dim=1) for net in self.backbones]
        joined: Features = (torch.cat(parts, dim=1) / len(parts) ** 0.5).cpu().numpy()
        return joined
