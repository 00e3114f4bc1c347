"""Every finding by a run made so that it, and nothing like it, shows; with the number that triggered it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from folders import write_run

from ssdg.report.findings import findings
from ssdg.report.run_folder import Labels, Run, read_run
from ssdg.schema import Audit, Epoch


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(write_run(tmp_path_factory.mktemp("healthy") / "run"))


def texts(run: Run) -> dict[str, str]:
    return {one["text"]: one["number"] for one in findings(run)}


def audit(key: str, cycle: int, domain: str, **counts: float) -> Audit:
    return Audit(key=key, round=cycle, domains={domain: {"images": 100, "kept": 50, **counts}})


def labels(y: list[int], votes: list[list[int]] | None = None, keep: list[bool] | None = None) -> Labels:
    kept = np.array(keep or [True] * len(y))
    return Labels(np.array(y), kept, np.full(len(y), 0.9, np.float32), np.array(votes or [y, y]))


def epochs(*losses: float, **more: Any) -> tuple[Epoch, ...]:
    return tuple(Epoch(key="dcg", round=1, epoch=n, **{"loss": loss, **more}) for n, loss in enumerate(losses, 1))


def test_a_healthy_run_has_none(healthy: Run) -> None:
    assert findings(healthy) == []


def test_a_run_that_has_not_ended(healthy: Run) -> None:
    found = texts(replace(healthy, result=None))
    assert found["The run has not ended."] == "8 epochs so far"


def test_a_clean_set_that_is_mostly_wrong(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("eid", 1, "sketch", kept_accuracy=41.26),))
    assert texts(run) == {"More than half of the clean set of sketch is wrong.": "41.3 % right in cycle 1"}
    assert texts(replace(run, audits=(audit("eid", 1, "sketch", kept_accuracy=50.0),))) == {}


def test_one_class_that_crowds_the_clean_set(healthy: Run) -> None:
    """Three classes: two thirds are twice an even share; more than that is too many."""
    crowd = labels([0, 1, 1, 1, 1], keep=[True, True, True, True, False])
    found = texts(replace(healthy, labels={("eid", 2, "sketch"): crowd}))
    expected = "75.0 % of it in cycle 2, where an even share is 33.3 %"
    assert found == {"Class house crowds the clean set of sketch.": expected}
    assert texts(replace(healthy, labels={("eid", 2, "sketch"): labels([0, 1, 1])})) == {}


def test_a_class_without_pseudo_labels(healthy: Run) -> None:
    found = texts(replace(healthy, labels={("apl", 2, "art"): labels([0, 0, 1])}))
    assert found == {"No image of art gets the pseudo-label horse.": "1 of 3 classes in cycle 2"}


def test_pseudo_labels_that_fall(healthy: Run) -> None:
    run = replace(healthy, audits=tuple(audit("apl/art", n, "art", accuracy=70.0 - 4 * n) for n in (1, 2)))
    told = {"Pseudo-labels of art get worse from cycle to cycle.": "66.0 % right in the first, 62.0 % in the last"}
    assert texts(run) == told
    assert texts(replace(run, audits=tuple(reversed(run.audits)))) == {}


def test_networks_that_do_not_agree(healthy: Run) -> None:
    split = labels([0, 1, 2], votes=[[0, 1, 2], [0, 2, 1]])
    found = texts(replace(healthy, labels={("eid", 1, "art"): split}))
    assert found == {"The two networks agree on less than half of art.": "33.3 % in cycle 1"}


def test_networks_that_have_not_learned_the_labeled_domain(healthy: Run) -> None:
    found = texts(replace(healthy, epochs=epochs(1.0, validation=[60.0, 70.0, 65.0])))
    told = {"The networks have not learned the labeled domain itself.": "65.0 % of its held-out images are right"}
    assert found == told


def test_a_last_cycle_below_the_first(healthy: Run) -> None:
    rows = tuple(Epoch(key="dcg", round=n, epoch=1, target=[0.0, 60.0 - 5 * n]) for n in (1, 2))
    told = {"The last cycle ends below the first on the unseen domain.": "55.0 % after cycle 1, 50.0 % after cycle 2"}
    assert texts(replace(healthy, epochs=rows)) == told


def test_a_loss_that_still_falls(healthy: Run) -> None:
    told = {"The loss is still falling in the last epoch.": "50 % of what it fell in this cycle"}
    assert texts(replace(healthy, epochs=epochs(3.0, 2.0, 1.0))) == told
    assert texts(replace(healthy, epochs=epochs(3.0, 1.1, 1.0))) == {}


def test_images_of_no_class_that_stay(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("eid", 3, "art", ood=40, ood_kept=30),))
    assert texts(run) == {"Most images of no class stay in the clean set of art.": "30 of 40 in cycle 3"}


def test_web_labels_that_are_broken(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("eid", 2, "art", web_wrong=9, repaired=3, broken=1200),))
    told = {"The labels of art break more web-labels than they repair.": "1,200 broken, 3 repaired in cycle 2"}
    assert texts(run) == told


def test_warnings_come_first(healthy: Run) -> None:
    run = replace(healthy, result=None, audits=(audit("eid", 1, "sketch", kept_accuracy=41.0),))
    assert [one["level"] for one in findings(run)] == ["warning", "hint"]
