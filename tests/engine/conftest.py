"""Fixtures for the tests of the engine."""

from __future__ import annotations

import pytest
import torch

from ssdg.models.backbones import build_backbone


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A weight file of the digits CNN, in place of pretrained ones."""
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("weights") / "cnn.pth"
    torch.save(build_backbone("digits-cnn").state_dict(), path)
    return str(path)
