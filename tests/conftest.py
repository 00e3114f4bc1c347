"""Fixtures that many tests share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from runs import train_here
from ssdg.cli import call
from waiting import PATIENCE
from worlds import write_world


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Two test processes on two cores: one thread each."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _own_config_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands remember plugins in the user's config folder; those of tests do not."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark root of four tiny domains. Read only: write to a copy."""
    return write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image cache that the tests of one process share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def evolved(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two cycles of eid. Read only: write to a copy."""
    folder = tmp_path_factory.mktemp("evolved")
    train_here(world, cache, folder, "eid", labeler={"epochs": 1, "batch": 4, "lr": 0.01})
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium; without it the tests that need it are skipped."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=PATIENCE * 1000)
        yield browser
        browser.close()


@pytest.fixture
def complaint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Run a command that must be refused; returns what it said."""
    monkeypatch.setenv("COLUMNS", "400")

    def refused(*words: object) -> str:
        capsys.readouterr()
        code = call([str(word) for word in words])
        told = capsys.readouterr().err
        assert code == 2, told
        assert told.startswith("error: ")
        assert told.count("\n") == 1, "one sentence on one line"
        assert "Traceback" not in told
        return told

    return refused
