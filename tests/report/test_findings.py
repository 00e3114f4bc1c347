"""Findings about a whole run: each by a run made so that it shows, and by one just short of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import write_run
from made_findings import advice_of, audit, epochs, numbers

from ssdg.report.findings import findings
from ssdg.report.run_folder import Run, read_run
from ssdg.schema import Epoch, ProbeScores, Scores


def test_a_healthy_run_has_none(healthy: Run) -> None:
    assert findings(healthy) == []


def test_a_run_that_has_not_ended(healthy: Run) -> None:
    run = replace(healthy, result=None)
    assert numbers(run) == {"The run is not finished.": "8 epochs so far"}
    assert advice_of(run) == "If it is not running, resume it: ssdg resume FOLDER."


def test_networks_that_have_not_learned_the_labeled_domain(healthy: Run) -> None:
    weak = replace(healthy, epochs=epochs(1.0, validation=[60.0, 70.0, 65.0]))
    assert numbers(weak) == {
        "The networks have not learned the labeled domain.": "accuracy 65.0 % on its held-out images"
    }
    assert advice_of(weak) == "Train longer (epochs=4)."
    random = with_config(weak, **{**healthy.config, "backbone": "resnet18"})
    assert advice_of(random) == "Train longer (epochs=4). Start from pretrained weights (weights=imagenet)."
    assert numbers(replace(healthy, epochs=epochs(1.0, validation=[80.0]))) == {}


def test_a_last_cycle_below_the_first(healthy: Run) -> None:
    def run(*ends: float) -> Run:
        rows = [Epoch(key="dcg", round=n, epoch=1, target=[0.0, end]) for n, end in enumerate(ends, 1)]
        return replace(healthy, epochs=tuple(rows))

    expected = "55.0 % after cycle 1, 50.0 % after cycle 2"
    assert numbers(run(55.0, 50.0)) == {"The last cycle ends below the first on the unseen domain.": expected}
    assert numbers(run(55.0, 54.0)) == {}


def test_a_loss_that_still_falls(healthy: Run) -> None:
    falling = replace(healthy, epochs=epochs(3.0, 2.0, 1.0))
    assert numbers(falling) == {"The loss is still falling in the last epoch.": "50 % of its fall in this cycle"}
    assert advice_of(falling) == "Train longer (epochs=4)."
    assert numbers(replace(healthy, epochs=epochs(3.0, 1.1, 1.0))) == {}


def with_config(run: Run, **config: Any) -> Run:
    return replace(run, file=run.file.model_copy(update={"config": config}))


def test_an_advice_names_only_settings_that_the_run_can_change(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("clean-set", 1, "sketch", kept_accuracy=41.0),))

    def advice(**config: Any) -> str:
        return advice_of(with_config(run, **config))

    assert advice(lr=0.1) == ""
    assert advice(clean_rate=0.4) == "Select fewer images (clean_rate=0.2)."
    assert advice(clean_rate=0.4, cycles=1) == "Select fewer images (clean_rate=0.2)."
    assert advice(clean_rate=0.4, labeler={"lr": 1}, cycles=2) == (
        "Select fewer images (clean_rate=0.2), or use fewer cycles (cycles=1)."
    )
    assert advice(clean_rate=0.4, labeler={"epochs": 1}, cycles=2) == (
        "Select fewer images (clean_rate=0.2), train the labelers longer (labeler.epochs=2), "
        "or use fewer cycles (cycles=1)."
    )
    assert advice(labeler=None) == ""
    assert advice(last_share=0.9) == ""


def test_an_advice_names_no_setting_of_a_clean_set_that_the_run_lacks(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("pseudo-labels", 1, "sketch", accuracy=41.0),))
    assert advice_of(with_config(run, clean_rate=0.4, cycles=3)) == "Use fewer cycles (cycles=2)."
    assert advice_of(with_config(run, clean_rate=0.4, last_share=0.9)) == "Select fewer images (last_share=0.45)."


def test_warnings_come_first(healthy: Run) -> None:
    run = replace(healthy, result=None, audits=(audit("clean-set", 1, "sketch", kept_accuracy=41.0),))
    assert [finding["level"] for finding in findings(run)] == ["warning", "hint"]


def with_result(run: Run, **changes: Any) -> Run:
    assert run.result is not None
    return replace(run, result=run.result.model_copy(update=changes))


def with_probe(run: Run, **scores: float) -> Run:
    return with_result(run, probe=ProbeScores(**scores))


PROBE = "The run is less accurate on {} than a linear probe of the pretrained features."


def test_a_run_below_the_probe_on_the_target(healthy: Run) -> None:
    below = with_probe(healthy, target=65.0, validation=0.0)
    assert numbers(below) == {PROBE.format("the unseen domain"): "64.0 %, probe 65.0 %"}
    assert "--method probe" in advice_of(below)
    assert numbers(with_probe(healthy, target=63.0, validation=0.0)) == {}


def test_a_run_below_the_probe_on_held_out_images(healthy: Run) -> None:
    """Held-out images need no hidden label, so the target does not decide whether they are compared."""
    text = PROBE.format("held-out labeled images")
    assert numbers(with_probe(healthy, target=63.0, validation=93.5)) == {text: "92.0 %, probe 93.5 %"}
    blind = with_result(healthy, target=None)
    assert numbers(with_probe(blind, validation=93.5)) == {text: "92.0 %, probe 93.5 %"}
    assert numbers(with_probe(healthy, validation=93.0)) == {}  # a point may be chance


def test_the_probe_of_a_running_run_is_read_from_its_file(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    (folder / "probe.json").write_text(json.dumps({"validation": 95.0}))
    assert numbers(read_run(folder))[PROBE.format("held-out labeled images")] == "92.0 %, probe 95.0 %"


def test_a_wide_gap_between_held_out_images_and_the_target(healthy: Run) -> None:
    def run(target: float) -> Run:
        return with_result(healthy, target=Scores(final={"mean": target}, last_five={}, epochs_averaged=1))

    text = "The accuracy on the unseen domain is far below that on held-out labeled images."
    assert numbers(run(61.0)) == {text: "61.0 % and 92.0 %, a gap of 31.0 points"}
    assert "--unlabeled" in advice_of(run(61.0))
    assert numbers(run(62.0)) == {}
    assert numbers(with_result(healthy, target=None)) == {}


@pytest.mark.parametrize(("setting", "role"), [("ssdg", "unseen"), ("uda", "target")])
def test_the_gap_names_the_role_of_the_target(healthy: Run, setting: str, role: str) -> None:
    run = with_config(healthy, **{**healthy.config, "setting": setting})
    (text,) = numbers(with_result(run, target=Scores(final={"mean": 5.0}, last_five={}, epochs_averaged=1)))
    assert f"the {role} domain" in text
