"""Every method has a page that states its cost correctly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from passes import count_passes
from ssdg.engine.batches import make_stream
from ssdg.methods import METHODS
from ssdg.methods.api import Progress
from test_contract import product_of

PAGES = Path(__file__).parent.parent.parent / "docs" / "methods"
PASSES = re.compile(r"^\| Passes per step \| ([\d.]+) forward, ([\d.]+) backward \|", re.MULTILINE)
PLAIN = sorted(name for name, method in METHODS.items() if method.family in ("DA", "DG", "SSL"))


@pytest.mark.parametrize("method", PLAIN)
def test_the_passes_on_the_page_are_those_of_a_step(method: str, world: Path, cache: Path) -> None:
    """With a backbone without batch norm, in the middle of training, at the default settings."""
    text = (PAGES / f"{method}.md").read_text(encoding="utf-8")
    match = PASSES.search(text)
    assert match, "the page needs a line '| Passes per step | a forward, b backward |'"
    learner, inputs, pipeline = product_of(method, world, cache)
    torch.manual_seed(0)
    batch = make_stream(inputs, 6, 7, pipeline).draw(0)
    forward, backward = count_passes(learner, batch, Progress(1, 5, 10, 50, 100))
    assert (float(match[1]), float(match[2])) == pytest.approx((forward, backward), abs=0.05)
