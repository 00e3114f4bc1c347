"""Fixtures of the tests of web data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Site, served


@pytest.fixture
def site() -> Iterator[Site]:
    with served() as opened:
        yield opened
