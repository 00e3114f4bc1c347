"""The paper's three strategies for web-labels, observed by a recording Trainer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from recording import LABELED, SEA, SKY, TASK, Recorder, images_of, random_logits

from builders import TinyBackbone
from ssdg.errors import UserError
from ssdg.methods import METHODS, find_method
from ssdg.methods.adaptation.osbp import Osbp
from ssdg.methods.api import Sizes
from ssdg.methods.eid.cycle import fit
from ssdg.methods.eid.labeling import Rejecting, known_rule
from ssdg.methods.eid.settings import EidSettings

WEB = np.array([2, 0, 1, 1])  # of sea


def with_web(strategy):
    return replace(TASK, web={"sea": WEB}, web_label=strategy)


def run(task, **settings):
    recorder = Recorder(random_logits)
    fit(task, recorder, recorder.build, EidSettings(**settings))
    return recorder


def test_retained_labels_are_used_in_every_cycle_without_a_labeler():
    recorder = run(with_web("retained"), cycles=2)
    assert {built.key for built in recorder.builds} == {"apl/sky", "dcg"}
    for cycle, args in enumerate(recorder.trained("dcg"), start=1):
        expected = [*WEB, *recorder.labels["apl/sky", cycle].y]
        assert args["pseudo"].y.tolist() == expected
        assert images_of(args["pseudo"]) == images_of(SEA) + images_of(SKY)
        assert not args["pseudo"].trusted.any()


def test_with_retained_labels_alone_a_cycle_is_dcg():
    task = replace(with_web("retained"), unlabeled={"sea": SEA})
    assert run(task, cycles=2).order() == [("train", "dcg", 1), ("train", "dcg", 2)]


def test_refined_labels_are_the_pseudo_labels_of_the_first_cycle_only():
    recorder = run(replace(with_web("refined"), unlabeled={"sea": SEA}), cycles=2)
    order = [("train", "dcg", 1), ("label", "eid", 1), ("train", "apl/sea", 2), ("label", "apl/sea", 2)]
    assert recorder.order() == [*order, ("train", "dcg", 2), ("label", "eid", 2)]
    first, second = (args["pseudo"] for args in recorder.trained("dcg"))
    assert first.y.tolist() == WEB.tolist()
    assert second.y.tolist() == recorder.labels["apl/sea", 2].y.tolist()


def test_ignored_labels_are_not_in_the_task():
    """The strategy has no effect: without web-labels a crawl is an unlabeled domain."""
    assert TASK.web == {}
    assert run(TASK, cycles=1).order() == run(replace(TASK, web_label="ignored"), cycles=1).order()


@pytest.mark.parametrize(
    ("name", "strategies"),
    [
        ("eid", ("ignored", "retained", "refined")),
        ("mixstyle", ("ignored", "retained")),
        ("source-only", ("ignored", "retained")),
        ("mixmatch", ("ignored",)),
        ("mcd", ("ignored",)),
        ("mcd+mixstyle", ("ignored",)),
    ],
)
def test_strategies_of_the_methods(name, strategies):
    assert find_method(name).web_labels == strategies


def test_only_ours_refines():
    assert [name for name, method in METHODS.items() if "refined" in method.web_labels] == ["eid"]


def test_a_dg_method_learns_retained_labels_as_a_further_domain():
    recorder, method = Recorder(random_logits), find_method("mixstyle")
    method.fit(with_web("retained"), recorder, recorder.build, method.settings())
    (args,) = recorder.trained("main")
    labeled = args["labeled"]
    assert images_of(labeled) == images_of(LABELED) + images_of(SEA)
    assert labeled.y.tolist() == [*LABELED.y, *WEB]
    assert labeled.domain.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert labeled.trusted.tolist() == [True] * 3 + [False] * 4
    assert recorder.builds[0].options["num_domains"] == 2


def test_an_image_is_rejected_where_no_known_class_is_likelier_than_unknown():
    probs = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.3, 0.6], [0.4, 0.2, 0.4]], dtype=torch.float64)
    y, keep = known_rule(probs.log().unsqueeze(0))
    assert y.tolist() == [0, 1, 0]
    assert keep.tolist() == [True, False, True]


def test_networks_are_averaged_before_an_image_is_rejected():
    votes = torch.tensor([[[0.7, 0.0, 0.3]], [[0.0, 0.1, 0.9]]]).clamp(min=1e-9).log()
    y, keep = known_rule(votes)  # means 0.35, 0.05, 0.6
    assert (y.item(), keep.item()) == (0, False)


class OpenRecorder(Recorder):
    """Recorder whose labelers are open-set learners; `unknown` is the logit of that class for every image."""

    def __init__(self, unknown):
        def logits(learner, n, round):
            votes = random_logits(learner, n, round)
            if not isinstance(learner, Rejecting):
                return votes
            return torch.cat([votes[:1], torch.full((1, n, 1), unknown)], -1)

        super().__init__(logits)

    def build(self, key, learner, settings, **options):
        built = super().build(key, learner, settings, **options)
        return Osbp(TinyBackbone, Sizes(3), settings) if learner is Osbp else built


def test_rejected_images_take_no_part_in_dcg():
    recorder = OpenRecorder(2.0)
    fit(TASK, recorder, recorder.build, EidSettings(cycles=1, apl="osbp"))
    (args,) = recorder.trained("dcg")
    masks = [recorder.labels[f"apl/{name}", 1].keep for name in ("sea", "sky")]
    expected = [*np.array(images_of(SEA))[masks[0]], *np.array(images_of(SKY))[masks[1]]]
    assert 0 < len(expected) < len(SEA) + len(SKY)
    assert images_of(args["pseudo"]) == expected
    assert args["pseudo"].y.max() < 3


@pytest.mark.parametrize("clean_rejected", [True, False])
def test_rejected_images_enter_the_clean_set_only_if_they_may(clean_rejected):
    recorder = OpenRecorder(3.0)
    settings = EidSettings(cycles=1, apl="osbp", clean_rate=1.0, clean_rejected=clean_rejected)
    fit(TASK, recorder, recorder.build, settings)
    is_known = np.concatenate([recorder.labels[f"apl/{name}", 1].keep for name in ("sea", "sky")])
    is_clean = recorder.labels["eid", 1].keep
    assert is_clean[is_known].any()
    assert is_clean[~is_known].any() == clean_rejected


def test_rejecting_everything_is_reported():
    recorder = OpenRecorder(1e4)
    with pytest.raises(UserError, match=r"osbp rejected every unlabeled image in cycle 1; .* apl=mcd"):
        fit(TASK, recorder, recorder.build, EidSettings(cycles=1, apl="osbp"))
