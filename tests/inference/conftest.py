"""An exported model and images for it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from PIL import Image

from exported import write_colors


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_colors(tmp_path_factory.mktemp("model") / "model.onnx")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred images of random colors in folders, some of them broken. Read only."""
    folder, rng = tmp_path_factory.mktemp("photos"), random.Random(0)
    for number in range(200):
        path = folder / f"{number % 7}" / f"{number:03}, x.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (9, 9), tuple(rng.randrange(256) for _ in range(3))).save(path)
        if number % 20 == 3:
            path.write_bytes(b"broken")
    return folder
