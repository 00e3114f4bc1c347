"""The page in a browser: what is drawn, what hovering and filters do, and that nothing leaves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import write_run

Report = Callable[..., Path]
Opened = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def test_the_head_tells_what_was_trained_and_what_came_out(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    assert page.inner_text("h2") == "eid: labeled photo, unlabeled sketch and art, unseen nightdone"
    table = page.inner_text(".summary table")
    assert "unseen night, last epoch\t60.00\t62.00\t64.00" in table
    summary = page.inner_text(".summary")
    assert "1 min 15 s, 1,000 images, 13 images/s" in summary
    assert "Hidden labels were read by the auditor only." in summary
    assert "ssdg train --out 'a run'" in summary


def test_hovering_a_curve_tells_its_values(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    chart = page.locator("figure", has_text="Accuracy on night").locator(".plot svg")
    chart.hover(position={"x": 60, "y": 60})
    assert page.inner_text("#tip").splitlines() == ["cycle 1, epoch 1", "network 1: 60", "network 2: 62", "mean: 62"]
    chart.focus()
    chart.press("ArrowRight")
    assert page.inner_text("#tip").splitlines()[0] == "cycle 1, epoch 2"
    chart.press("Escape")
    assert page.is_hidden("#tip")


def test_a_curve_can_be_hidden(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    figure = page.locator("figure", has_text="Accuracy on night")
    assert figure.locator(".plot .curve").count() == 3
    figure.get_by_role("button", name="network 2").click()
    assert figure.locator(".plot .curve").count() == 2
