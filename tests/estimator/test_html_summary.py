"""The summary that notebooks show: what it says, and that it cannot inject markup."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import numpy as np

from estimators import arrays, small
from ssdg import SSDG


def text_of(estimator: SSDG) -> str:
    """The summary without tags, one row per line."""
    rows = estimator._repr_html_().replace("</tr>", "\n").replace("</th>", ": ").replace("<table", "\n<table")
    return unescape(re.sub(r"<[^>]*>", "", rows))


def test_before_fit() -> None:
    estimator = SSDG("mcd", preset="quick", out="runs/{id}", settings={"lr": 0.1})
    expected = "SSDG (not fitted)\nMethod: mcd\nPreset: quick\nSettings: {'lr': 0.1}\nRun: runs/{id}\n"
    assert text_of(estimator) == expected


def test_after_fit_and_after_loading(cache: Path, tmp_path: Path) -> None:
    estimator = small(cache, "source-only", preset="quick", out=tmp_path / "run")
    estimator.fit(*arrays("photo"), target=arrays("night"))
    held_out = estimator.result_["validation"]["final"]["mean"]
    target = estimator.result_["target"]["final"]["mean"]
    lines = text_of(estimator).splitlines()
    assert lines[:4] == ["SSDG (fitted)", "Method: source-only", "Preset: quick", "Classes: 3 (-1, 3, 10)"]
    assert lines[4].startswith(f"Held-out accuracy: {held_out:.1f} % on ")
    assert lines[5:] == [f"Target accuracy: {target:.1f} %", f"Run: {tmp_path / 'run'}"]
    estimator.save(tmp_path / "model")
    loaded = SSDG.load(tmp_path / "model", device="cpu")
    assert text_of(loaded).splitlines() == [*lines[:-1], f"Run: {tmp_path / 'model'}"]


def test_labels_and_parameters_are_escaped_and_short(cache: Path) -> None:
    x, y = arrays("photo", per_class=4)
    labels = np.array([f"<script>{number % 12}</script>" + "long" * 50 for number in range(len(y))])
    estimator = small(cache, "source-only").fit(x, labels)
    html = estimator._repr_html_()
    assert "<script" not in html
    assert "12 (&lt;script&gt;0" in html
    assert "…)" in html
    assert len(html) < 3500
    assert f"Run (temporary): {estimator.run_}" in text_of(estimator)
    assert "<b>" not in SSDG("<b>", out="</td><b>", settings={"<b>": "<b>"})._repr_html_()
