"""Every finding by a run made so that it, and nothing like it, shows; with the number that triggered it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from folders import write_run

from ssdg.report.findings import findings
from ssdg.report.run_folder import Labels, Run, read_run
from ssdg.schema import Audit, Epoch, LabelKind, ProbeScores


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(write_run(tmp_path_factory.mktemp("healthy") / "run"))


def texts(run: Run) -> dict[str, str]:
    return {one["text"]: one["number"] for one in findings(run)}


def audit(kind: LabelKind, cycle: int, domain: str, **counts: float) -> Audit:
    values = {"key": "any", "round": cycle, "kind": kind, "title": "any"}
    return Audit.model_validate({**values, "domains": {domain: {"images": 100, "kept": 50, **counts}}})


def labels(
    kind: LabelKind,
    cycle: int,
    domain: str,
    y: list[int],
    votes: list[list[int]] | None = None,
    keep: list[bool] | None = None,
) -> tuple[Labels]:
    arrays = (
        np.array(y),
        np.array(keep or [True] * len(y)),
        np.full(len(y), 0.9, np.float32),
        np.array(votes or [y, y]),
    )
    return (Labels(kind, "any", "any", cycle, domain, *arrays),)


def epochs(*losses: float, **more: Any) -> tuple[Epoch, ...]:
    return tuple(Epoch(key="dcg", round=1, epoch=n, **{"loss": loss, **more}) for n, loss in enumerate(losses, 1))


def test_a_healthy_run_has_none(healthy: Run) -> None:
    assert findings(healthy) == []


def test_a_run_that_has_not_ended(healthy: Run) -> None:
    found = texts(replace(healthy, result=None))
    assert found["The run is not finished."] == "8 epochs so far"


def test_a_clean_set_that_is_mostly_wrong(healthy: Run) -> None:
    text = "More than half of the labels in the clean set of sketch are wrong."
    run = replace(healthy, audits=(audit("clean-set", 1, "sketch", kept_accuracy=41.26),))
    assert texts(run) == {text: "accuracy 41.3 % in cycle 1"}
    assert texts(replace(run, audits=(audit("clean-set", 1, "sketch", kept_accuracy=50.0),))) == {}


def test_one_class_that_dominates_the_clean_set(healthy: Run) -> None:
    """Three classes: two thirds are twice an even share; more than that is too many."""
    crowd = labels("clean-set", 2, "sketch", [0, 1, 1, 1, 1], keep=[True, True, True, True, False])
    found = texts(replace(healthy, labels=crowd))
    expected = "75.0 % in cycle 2; an even share is 33.3 %"
    assert found == {"Class house dominates the clean set of sketch.": expected}
    assert texts(replace(healthy, labels=labels("clean-set", 2, "sketch", [0, 1, 1]))) == {}


def test_a_class_without_pseudo_labels(healthy: Run) -> None:
    found = texts(replace(healthy, labels=labels("pseudo-labels", 2, "art", [0, 0, 1])))
    assert found == {"No image of art gets the pseudo-label horse.": "1 of 3 classes in cycle 2"}


def test_pseudo_labels_that_fall(healthy: Run) -> None:
    run = replace(healthy, audits=tuple(audit("pseudo-labels", n, "art", accuracy=70.0 - 4 * n) for n in (1, 2)))
    number = "accuracy 66.0 % in the first cycle, 62.0 % in the last"
    assert texts(run) == {"Pseudo-labels of art get worse from cycle to cycle.": number}
    assert texts(replace(run, audits=tuple(reversed(run.audits)))) == {}


def test_networks_that_do_not_agree(healthy: Run) -> None:
    split = labels("clean-set", 1, "art", [0, 1, 2], votes=[[0, 1, 2], [0, 2, 1]])
    found = texts(replace(healthy, labels=split))
    assert found == {"The networks agree on less than half of art.": "33.3 % in cycle 1"}


def test_networks_that_have_not_learned_the_labeled_domain(healthy: Run) -> None:
    found = texts(replace(healthy, epochs=epochs(1.0, validation=[60.0, 70.0, 65.0])))
    number = "accuracy 65.0 % on its held-out images"
    assert found == {"The networks have not learned the labeled domain.": number}


def test_a_last_cycle_below_the_first(healthy: Run) -> None:
    rows = tuple(Epoch(key="dcg", round=n, epoch=1, target=[0.0, 60.0 - 5 * n]) for n in (1, 2))
    told = {"The last cycle ends below the first on the unseen domain.": "55.0 % after cycle 1, 50.0 % after cycle 2"}
    assert texts(replace(healthy, epochs=rows)) == told


def test_a_loss_that_still_falls(healthy: Run) -> None:
    told = {"The loss is still falling in the last epoch.": "50 % of its fall in this cycle"}
    assert texts(replace(healthy, epochs=epochs(3.0, 2.0, 1.0))) == told
    assert texts(replace(healthy, epochs=epochs(3.0, 1.1, 1.0))) == {}


def test_images_of_no_class_that_stay(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("clean-set", 3, "art", ood=40, ood_kept=30),))
    assert texts(run) == {"Most images of no known class stay in the clean set of art.": "30 of 40 in cycle 3"}


def test_web_labels_that_are_broken(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("clean-set", 2, "art", web_wrong=9, repaired=3, broken=1200),))
    told = {"The labels of art break more web-labels than they repair.": "1,200 broken, 3 repaired in cycle 2"}
    assert texts(run) == told


def with_config(run: Run, **config: Any) -> Run:
    return replace(run, file=run.file.model_copy(update={"config": config}))


def test_an_advice_names_only_settings_that_the_run_has(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("clean-set", 1, "sketch", kept_accuracy=41.0),))

    def advice(**config: Any) -> str:
        return findings(with_config(run, **config))[0]["advice"]

    assert advice(lr=0.1) == ""
    assert advice(clean_rate=0.4) == "Select fewer images (clean_rate)."
    assert advice(clean_rate=0.4, labeler={"lr": 1}, cycles=2) == (
        "Select fewer images (clean_rate), or use fewer cycles (cycles)."
    )
    assert advice(clean_rate=0.4, labeler={"epochs": 1}, cycles=2) == (
        "Select fewer images (clean_rate), train the labelers longer (labeler.epochs), or use fewer cycles (cycles)."
    )


def test_the_advice_on_web_labels_depends_on_what_is_done_with_them(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("clean-set", 2, "art", web_wrong=9, repaired=3, broken=12),))
    ignored = findings(with_config(run, web_label="ignored"))[0]["advice"]
    assert ignored.startswith("The keywords are more accurate: refine them (--web-label refined)")
    refined = findings(with_config(run, web_label="refined", epochs=2))[0]["advice"]
    assert refined == (
        "The networks override keywords too early. "
        "Train longer (epochs), or trust the keywords (--web-label retained)."
    )


def test_warnings_come_first(healthy: Run) -> None:
    run = replace(healthy, result=None, audits=(audit("clean-set", 1, "sketch", kept_accuracy=41.0),))
    assert [one["level"] for one in findings(run)] == ["warning", "hint"]


def with_probe(run: Run, **scores: float) -> Run:
    assert run.result is not None
    return replace(run, result=run.result.model_copy(update={"probe": ProbeScores(**scores)}))


def test_a_run_below_the_probe(healthy: Run) -> None:
    assert healthy.result is not None
    assert healthy.result.target is not None
    accuracy = healthy.result.target.final["mean"]
    number = texts(with_probe(healthy, target=accuracy + 1, validation=0.0))
    expected = "The run is less accurate on the unseen domain than a linear probe of the pretrained features."
    assert number == {expected: f"{accuracy:.1f} %, probe {accuracy + 1:.1f} %"}
    assert texts(with_probe(healthy, target=accuracy - 1, validation=100.0)) == {}


def test_held_out_images_decide_where_the_target_has_no_labels(healthy: Run) -> None:
    assert healthy.result is not None
    blind = replace(healthy, result=healthy.result.model_copy(update={"target": None}))
    (text,) = texts(with_probe(blind, validation=99.5))
    assert text.startswith("The run is less accurate on held-out labeled images")
