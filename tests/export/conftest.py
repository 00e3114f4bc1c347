"""A run to be exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ssdg.artifact.load import Model, load_model


@pytest.fixture(scope="package")
def run(evolved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two networks with a temperature."""
    folder = shutil.copytree(evolved, tmp_path_factory.mktemp("export") / "run")
    card = json.loads((folder / "model" / "model.json").read_text())
    card["calibration"]["temperature"] = 1.5
    (folder / "model" / "model.json").write_text(json.dumps(card))
    return folder


@pytest.fixture(scope="package")
def model(run: Path) -> Model:
    return load_model(run, "cpu")
