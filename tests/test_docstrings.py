"""The examples in the docstrings of the public API run and print what they say."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ssdg
from ssdg.cli import call
from ssdg.methods import METHODS, Method


def run_examples(*objects: Any) -> None:
    """Run the examples of these objects one after another, also those that `python -m doctest` would skip."""
    for value in objects:
        assert value.__doc__ is not None
        text = value.__doc__.replace("  # doctest: +SKIP", "")
        test = doctest.DocTestParser().get_doctest(text, {}, value.__name__, None, 0)
        assert test.examples, value
        output: list[str] = []
        doctest.DocTestRunner().run(test, out=output.append)
        assert not output, "".join(output)


@pytest.mark.parametrize("name", ["run", "open_run", "load_model", "load_onnx", "start_machine", "Model"])
def test_functions_tell_their_parameters_and_results(name: str) -> None:
    text = getattr(ssdg, name).__doc__
    assert "Parameters\n" in text or "Attributes\n" in text
    if name != "Model":
        assert all(f"{part}\n" in text for part in ("Returns", "Raises"))


def test_examples_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From settings to a run, a loaded model and an exported file."""
    monkeypatch.chdir(tmp_path)
    functions: tuple[Callable[..., Any], ...] = (ssdg.open_run, ssdg.run, ssdg.load_model)
    run_examples(*functions)
    pytest.importorskip("onnxruntime")
    assert call(["export", "runs/first", "--format", "onnx", "-o", "model.onnx"]) == 0
    run_examples(ssdg.load_onnx)


def test_examples_of_classes() -> None:
    known = dict(METHODS)
    try:
        run_examples(ssdg.SSDG, Method)
    finally:
        METHODS.clear()
        METHODS.update(known)
