"""Findings about pseudo-labels and clean sets: each by labels that show it, and by labels just short of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_findings import advice_of, audit, labels, numbers

from ssdg.report.curves import label_curves
from ssdg.report.run_folder import Run
from ssdg.schema import LabelKind

EVEN = [0] * 10 + [1] * 10 + [2] * 10


def test_labels_that_are_mostly_wrong(healthy: Run) -> None:
    def run(kind: LabelKind, **accuracy: float) -> Run:
        return replace(healthy, audits=(audit(kind, 1, "sketch", **accuracy),))

    text = "More than half of the labels in the clean set of sketch are wrong."
    assert numbers(run("clean-set", kept_accuracy=41.26)) == {text: "accuracy 41.3 % in cycle 1"}
    assert numbers(run("clean-set", kept_accuracy=50.0, accuracy=10.0)) == {}
    text = "More than half of the pseudo-labels of sketch are wrong."
    assert numbers(run("pseudo-labels", accuracy=49.0)) == {text: "accuracy 49.0 % in cycle 1"}
    assert numbers(run("pseudo-labels", accuracy=50.0)) == {}


@pytest.mark.parametrize(("kind", "name"), [("pseudo-labels", "pseudo-labels"), ("clean-set", "clean set")])
def test_one_class_that_dominates(healthy: Run, kind: LabelKind, name: str) -> None:
    """Three classes: two thirds are twice an even share; more than that is too many."""
    crowd = labels(kind, 2, "sketch", [0, 2, *[1] * 7], keep=[*[True] * 8, False])
    expected = "75.0 % in cycle 2; an even share is 33.3 %"
    assert numbers(replace(healthy, labels=crowd)) == {f"Class house dominates the {name} of sketch.": expected}
    assert numbers(replace(healthy, labels=labels(kind, 2, "sketch", [0, 2, 1, 1, 1, 1]))) == {}


def test_a_class_without_labels(healthy: Run) -> None:
    findings = numbers(replace(healthy, labels=labels("pseudo-labels", 2, "art", [0, 0, 1])))
    assert findings == {"No image of art has the pseudo-label horse.": "1 of 3 classes in cycle 2"}
    selected = labels("pseudo-labels", 2, "art", [0, 0, 1, 2], keep=[True, True, True, False])
    assert list(numbers(replace(healthy, labels=selected))) == [
        "No selected image of art has the pseudo-label horse."
    ]
    clean = labels("clean-set", 2, "art", [0, 0, 1])
    findings = numbers(replace(healthy, labels=clean))
    assert findings == {"The clean set of art has no images of class horse.": "1 of 3 classes in cycle 2"}
    assert (
        numbers(replace(healthy, labels=labels("clean-set", 2, "art", [0, 1]))) == {}
    )  # two of three classes at best


def test_a_class_with_hardly_any_labels(healthy: Run) -> None:
    """An even share of 60 labels is 20: fewer than 4 are few."""
    few = [0] * 28 + [1] * 29 + [2] * 3
    findings = numbers(replace(healthy, labels=labels("pseudo-labels", 2, "art", few)))
    assert findings == {
        "Few images of art have the pseudo-label horse.": "3 of class horse in cycle 2; an even share is 20"
    }
    run = replace(healthy, labels=labels("clean-set", 2, "art", few))
    text = "The clean set of art has few images of class horse."
    assert numbers(run) == {text: "3 of class horse in cycle 2; an even share is 20"}
    enough = [0] * 28 + [1] * 28 + [2] * 4
    assert numbers(replace(healthy, labels=labels("clean-set", 2, "art", enough))) == {}


def test_a_class_that_the_pseudo_labels_miss_is_reported_once(healthy: Run) -> None:
    both = labels("pseudo-labels", 2, "art", [0, 0, 1]) + labels("clean-set", 2, "art", [0, 1, 1])
    assert list(numbers(replace(healthy, labels=both))) == ["No image of art has the pseudo-label horse."]


def test_the_advice_on_unbalanced_labels_is_a_setting(healthy: Run) -> None:
    run = replace(healthy, labels=labels("clean-set", 2, "art", [0, 0, 1]))
    config = {"clean_choice": "whole", "warm_epochs": 0}
    run = replace(run, file=run.file.model_copy(update={"config": config}))
    assert advice_of(run).endswith(
        "Select the same number of every class (clean_choice=balanced), "
        "or train longer before the first cycle (warm_epochs=10)."
    )


def test_labels_whose_accuracy_falls(healthy: Run) -> None:
    def run(kind: LabelKind, field: str, *values: float) -> Run:
        rows = [audit(kind, cycle, "art", **{field: value}) for cycle, value in enumerate(values, 1)]
        return replace(healthy, audits=tuple(rows))

    text = "Pseudo-labels of art get worse from cycle to cycle."
    expected = "accuracy 66.0 % in cycle 1, 62.0 % in cycle 2"
    assert numbers(run("pseudo-labels", "accuracy", 66.0, 62.0)) == {text: expected}
    expected = "accuracy 70.0 % in cycle 2, 65.0 % in cycle 3"
    assert numbers(run("pseudo-labels", "accuracy", 60.0, 70.0, 65.0)) == {text: expected}
    assert numbers(run("pseudo-labels", "accuracy", 62.0, 61.0)) == {}
    assert numbers(run("pseudo-labels", "accuracy", 62.0, 66.0)) == {}
    text = "The clean set of art gets worse from cycle to cycle."
    expected = "accuracy 90.0 % in cycle 1, 84.0 % in cycle 2"
    assert numbers(run("clean-set", "kept_accuracy", 90.0, 84.0)) == {text: expected}
    assert numbers(run("clean-set", "kept_accuracy", 90.0, 85.0)) == {}


def rounds(run: Run, *accuracies: float) -> Run:
    """Return the run with a round of self-training per accuracy in cycle 1, and another labeler in cycle 2."""
    first = [
        audit("pseudo-labels", 1, "art", accuracy=accuracy).model_copy(
            update={"stage": f"round {number}", "title": f"self-training, round {number}"}
        )
        for number, accuracy in enumerate(accuracies[:-1], 1)
    ]
    later = audit("pseudo-labels", 2, "art", accuracy=accuracies[-1])
    return replace(run, audits=(*first, later.model_copy(update={"stage": "networks", "title": "self-labels"})))


def test_labels_that_later_ones_replace_are_not_reported(healthy: Run) -> None:
    assert numbers(rounds(healthy, 20.0, 40.0, 60.0, 61.0)) == {}
    text = "More than half of the pseudo-labels of art are wrong."
    assert numbers(rounds(healthy, 20.0, 40.0, 45.0)) == {text: "accuracy 45.0 % in cycle 2"}


def test_labels_that_are_worse_than_those_of_another_labeler_before(healthy: Run) -> None:
    text = "Pseudo-labels of art get worse from cycle to cycle."
    expected = "accuracy 66.0 % in cycle 1, 62.0 % in cycle 2"
    assert numbers(rounds(healthy, 70.0, 66.0, 62.0)) == {text: expected}


def test_labelings_in_a_row_are_one_curve(healthy: Run) -> None:
    (figure,) = [f for f in label_curves(rounds(healthy, 20.0, 66.0, 62.0)) if f["title"] == "Pseudo-label accuracy"]
    assert figure["series"] == [{"name": "art", "values": [20.0, 66.0, 62.0]}]
    first = ["cycle 1, self-training, round 1", "cycle 1, self-training, round 2"]
    assert figure["names"] == [*first, "cycle 2, self-labels"]
    assert figure["x"] == "labeling (all cycles)"


def test_longer_training_is_not_advised_where_it_has_no_effect(healthy: Run) -> None:
    config = {"weights": "imagenet", "warm_epochs": 0, "iterations": 25, "labeler": {"epochs": 1, "max_iter": 100}}
    file = healthy.file.model_copy(update={"config": config})
    run = replace(healthy, file=file, labels=labels("pseudo-labels", 1, "art", [0] * 15 + [1] * 15))
    assert "Use longer epochs (iterations=50)." in advice_of(run)


DRIFT = "The pseudo-labels of art may be getting worse from cycle to cycle."


def without_truth(run: Run, *cycles: tuple[Any, ...]) -> Run:
    return replace(run, audits=(), labels=tuple(part for cycle in cycles for part in cycle))


def test_agreement_that_falls_where_the_truth_is_unknown(healthy: Run) -> None:
    def votes(num_differing: int) -> list[list[int]]:
        return [EVEN, [(y + 1) % 3 if n < num_differing else y for n, y in enumerate(EVEN)]]

    def run(*differing: int) -> Run:
        cycles = [labels("pseudo-labels", c, "art", EVEN, votes=votes(n)) for c, n in enumerate(differing, 1)]
        return without_truth(healthy, *cycles)

    expected = "agreement of the votes 90.0 % in cycle 1, 80.0 % in cycle 2"
    assert numbers(run(3, 6)) == {DRIFT: expected}
    assert numbers(run(3, 4)) == {}
    assert numbers(run(6, 3)) == {}


def test_classes_that_collapse_where_the_truth_is_unknown(healthy: Run) -> None:
    """Shares of 1/2, 1/3, 1/6 have an entropy of 1.011: exp gives 2.75 classes, 8 % below three."""
    narrow = [0] * 18 + [1] * 9 + [2] * 3
    first, last = labels("pseudo-labels", 1, "art", EVEN), labels("pseudo-labels", 2, "art", narrow)
    expected = "effective number of classes 3.0 in cycle 1, 2.5 in cycle 2"
    assert numbers(without_truth(healthy, first, last)) == {DRIFT: expected}
    mild = labels("pseudo-labels", 2, "art", [0] * 15 + [1] * 10 + [2] * 5)
    assert numbers(without_truth(healthy, first, mild)) == {}


def test_labels_that_do_not_settle_where_the_truth_is_unknown(healthy: Run) -> None:
    def moved(num: int) -> list[int]:
        return [*EVEN[num:], *EVEN[:num]]  # a rotation changes `num` labels at each of three borders

    def run(*shifts: int) -> Run:
        return without_truth(
            healthy, *(labels("pseudo-labels", c, "art", moved(shift)) for c, shift in enumerate(shifts, 1))
        )

    expected = "changed labels 10.0 % in cycle 2, 20.0 % in cycle 3"
    assert numbers(run(0, 1, 3)) == {DRIFT: expected}
    assert numbers(run(0, 2, 3)) == {}
    assert numbers(run(0, 3)) == {}  # one change cannot be compared


def test_a_known_truth_decides_over_indirect_signs(healthy: Run) -> None:
    narrow = [0] * 18 + [1] * 9 + [2] * 3
    parts = labels("pseudo-labels", 1, "art", EVEN) + labels("pseudo-labels", 2, "art", narrow)
    audits = tuple(audit("pseudo-labels", cycle, "art", accuracy=60.0 + cycle) for cycle in (1, 2))
    assert numbers(replace(healthy, labels=parts, audits=audits)) == {}


def test_networks_that_do_not_agree(healthy: Run) -> None:
    split = labels("clean-set", 1, "art", [0, 1, 2], votes=[[0, 1, 2], [0, 2, 1]])
    findings = numbers(replace(healthy, labels=split))
    assert findings == {"The networks agree on less than half of art.": "33.3 % in cycle 1"}
    half = labels("clean-set", 1, "art", [0, 1, 2, 0], votes=[[0, 1, 2, 0], [0, 1, 1, 1]])
    assert numbers(replace(healthy, labels=half)) == {}


def test_images_of_no_class_that_stay(healthy: Run) -> None:
    def run(kept: int) -> Run:
        return replace(healthy, audits=(audit("clean-set", 3, "art", ood=40, ood_kept=kept),))

    assert numbers(run(30)) == {"Most images of no known class stay in the clean set of art.": "30 of 40 in cycle 3"}
    assert numbers(run(20)) == {}


def test_web_labels_that_are_broken(healthy: Run) -> None:
    def run(broken: int) -> Run:
        return replace(healthy, audits=(audit("clean-set", 2, "art", web_wrong=9, repaired=3, broken=broken),))

    expected = "1,200 broken, 3 repaired in cycle 2"
    assert numbers(run(1200)) == {"The labels of art break more web-labels than they repair.": expected}
    assert numbers(run(3)) == {}


def test_the_advice_on_web_labels_depends_on_what_is_done_with_them(healthy: Run) -> None:
    run = replace(healthy, audits=(audit("clean-set", 2, "art", web_wrong=9, repaired=3, broken=12),))

    def advice(**config: Any) -> str:
        return advice_of(replace(run, file=run.file.model_copy(update={"config": config})))

    assert advice(web_label="ignored").startswith("The keywords are more accurate. Refine them (--web-label refined)")
    assert advice(web_label="refined", epochs=2) == (
        "The networks override keywords too early. Use the keywords (--web-label retained). Train longer (epochs=4)."
    )
