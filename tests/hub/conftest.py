"""Fixtures of the tests of published files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from web.servers import Site, served


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def site() -> Iterator[Site]:
    with served() as opened:
        yield opened
