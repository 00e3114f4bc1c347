"""docs/web.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from ssdg.web.bounds import MB, Limits
from ssdg.web.manifest import COLUMNS
from ssdg.web.refusal import REASONS

PAGE = (Path(__file__).parents[2] / "docs" / "web.md").read_text(encoding="utf-8")


def test_every_reason_and_column_is_told() -> None:
    assert [(f"`{word}`", meaning) for word, meaning in REASONS.items()] == re.findall(
        r"^\| (`[a-z-]+`) \| ([^|]+) \|$", PAGE[PAGE.index("| Reason |") :], re.MULTILINE
    )
    table = PAGE[PAGE.index("| Column |") : PAGE.index("Columns that others add")]
    first_cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[1:]
    assert re.findall(r"`(\w+)`", " ".join(first_cells)) == list(COLUMNS)


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    assert f"`--max-mb` ({limits.file_bytes // MB})" in PAGE
    assert f"`--timeout` ({limits.file_seconds:g} s" in PAGE
    assert f"`--max-minutes` ({limits.total_seconds / 60:g})" in PAGE
    assert f"`--max-total-mb` ({limits.total_bytes // MB:,})" in PAGE
    assert f"`--delay` seconds ({limits.delay:g})" in PAGE
    assert f"at most {limits.redirects}, each checked" in PAGE
