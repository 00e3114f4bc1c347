"""docs/web.md says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from ssdg.cli.web import crawl
from ssdg.data.sources.manifest import COLUMNS
from ssdg.web.crawl.politeness import Limits
from ssdg.web.untrusted import REASONS

PAGE = (Path(__file__).parents[3] / "docs" / "web.md").read_text(encoding="utf-8")


def test_every_reason_and_column_is_documented() -> None:
    assert [(f"`{word}`", meaning) for word, meaning in REASONS.items()] == re.findall(
        r"^\| (`[a-z-]+`) \| ([^|]+) \|$", PAGE[PAGE.index("| Reason |") :], re.MULTILINE
    )
    table = PAGE[PAGE.index("| Column |") : PAGE.index("Additional columns")]
    first_cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[1:]
    assert re.findall(r"`(\w+)`", " ".join(first_cells)) == list(COLUMNS)


def test_the_limits_are_those_of_the_command() -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(crawl).parameters.items()}
    assert f"`--max-mb` ({defaults['max_mb']:g})" in PAGE
    assert f"`--timeout` ({defaults['timeout']:g} s" in PAGE
    assert f"`--max-minutes` ({defaults['max_minutes']:g})" in PAGE
    assert f"`--max-total-mb` ({defaults['max_total_mb']:,.0f})" in PAGE
    assert f"`--delay` seconds ({defaults['delay']:g})" in PAGE
    assert f"`--min-side` ({defaults['min_side']} pixels)" in PAGE
    assert f"at most {Limits().redirects}, each checked" in PAGE
