"""The cycle with `apl=self`: order of requests, schedule, shares and memory, observed by a recording Trainer."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from recording import LABELED, SEA, SKY, TASK, Recorder, images_of, random_logits

from builders import PLAIN, labeled_set, unlabeled_set
from ssdg.data.sets import Inputs, Task
from ssdg.engine.batches import make_stream
from ssdg.methods.adaptation.mcd import Mcd
from ssdg.methods.api import ALL_VIEWS
from ssdg.methods.eid.averaged import AveragedNetworks, build_networks
from ssdg.methods.eid.cycle import fit
from ssdg.methods.eid.dual import DualNetworks
from ssdg.methods.eid.self_labeling import RememberingShare
from ssdg.methods.eid.settings import EidSettings
from ssdg.methods.frozen.probe import Probe


def run(task=TASK, logits=random_logits, **settings):
    recorder, cfg = Recorder(logits), EidSettings(apl="self", **settings)
    return recorder, cfg, fit(task, recorder, recorder.build, cfg)


def cycle_of(number, *names):
    return [*[("label", f"apl/{name}", number) for name in names], ("train", "dcg", number)]


def test_networks_start_on_the_labeled_domain_then_label_and_learn_in_cycles():
    recorder, cfg, product = run(start_epochs=2, cycles=3, epochs=5)
    cycles = [call for number in (1, 2, 3) for call in cycle_of(number, "sea", "sky")]
    assert recorder.order() == [("train", "start", 1), *cycles]
    assert [(built.key, built.kind, built.options) for built in recorder.builds] == [("dcg", build_networks, {})]
    assert all(call[3] is product for call in recorder.calls)
    (start,) = recorder.trained("start")
    assert start["labeled"] is LABELED
    assert not start["balanced"]
    assert start["settings"] == cfg.dcg.model_copy(update={"epochs": 2})
    assert not start.get("product")
    assert all(stage["settings"] == cfg.dcg and stage["product"] for stage in recorder.trained("dcg"))


def test_without_a_start_the_networks_label_as_they_are_built():
    recorder, *_ = run(start_epochs=0, cycles=1)
    assert recorder.order() == cycle_of(1, "sea", "sky")


def test_first_labels_by_self_training():
    recorder, cfg, product = run(
        first_labels="self-training", start_epochs=1, cycles=2, label_views=3, labeler={"rates": (0.5,)}
    )
    assert recorder.order() == [
        ("train", "start", 1),
        ("train", "probe/round1", 1),
        ("label", "probe/sea/round1", 1),
        ("label", "probe/sky/round1", 1),
        ("train", "probe/round2", 1),
        ("label", "first/sea", 1),
        ("label", "first/sky", 1),
        ("train", "dcg", 1),  # on the first labels: the networks have learned none yet
        *cycle_of(2, "sea", "sky"),
    ]
    assert [(built.key, built.kind) for built in recorder.builds] == [("dcg", build_networks), ("apl", Probe)]
    assert recorder.builds[1].settings is cfg.labeler
    assert recorder.builds[1].options["freeze"] == "all"
    assert product is recorder.builds[0]
    assert not any(stage["product"] for stage in recorder.trained("probe/round2"))
    views = {call[1]: call[4]["views"] for call in recorder.calls if call[0] == "label"}
    assert (views["first/sea"], views["apl/sea"], views["apl/sky"]) == (ALL_VIEWS, 3, 3)


def test_first_labels_by_a_labeler_of_each_domain():
    recorder, cfg, _ = run(first_labels="mcd", cycles=2, apl_backbone="resnet50")
    first = [(verb, f"first/{name}", 1) for name in ("sea", "sky") for verb in ("train", "label")]
    assert recorder.order() == [*first, ("train", "dcg", 1), *cycle_of(2, "sea", "sky")]
    assert [(built.key, built.kind) for built in recorder.builds[1:]] == [("apl/sea", Mcd), ("apl/sky", Mcd)]
    assert all(built.options["backbone"] == "resnet50" for built in recorder.builds[1:])
    for name, pool in (("sea", SEA), ("sky", SKY)):
        (stage,) = recorder.trained(f"first/{name}")
        assert stage["labeled"] is LABELED
        assert stage["unlabeled"] is pool
        assert stage["settings"] is cfg.labeler
        assert not stage["product"]


@pytest.mark.parametrize("start_epochs", [0, 1, 7])
@pytest.mark.parametrize("cycles", [1, 2, 3, 6])
def test_stages_share_one_schedule_in_proportion_to_their_epochs(start_epochs, cycles):
    recorder, *_ = run(start_epochs=start_epochs, cycles=cycles, epochs=3)
    stages = recorder.trained("start") + recorder.trained("dcg")
    spans = [stage["span"] for stage in stages]
    assert spans[0][0] == 0
    assert spans[-1][1] == 1
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    whole = start_epochs + 3 * cycles
    lengths = [start_epochs / whole] * bool(start_epochs) + [3 / whole] * cycles
    assert [end - start for start, end in spans] == pytest.approx(lengths)
    assert not any("lr_scale" in stage for stage in stages)  # the schedule decays, not the cycle


# Two domains in which image i is predicted as class i mod 3, the later ones with more confidence.
BIG_SEA, BIG_SKY = unlabeled_set(range(60), domain=1), unlabeled_set(range(100, 130), domain=2)
BIG = Task(("a", "b", "c"), LABELED, {"sea": BIG_SEA, "sky": BIG_SKY})


def ranked_logits(learner, n, round):
    logits = torch.zeros(2, n, 3)
    rows = torch.arange(n)
    logits[:, rows, rows % 3] = 1 + rows / 100
    return logits


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({"cycles": 3}, [0.3, 0.6, 0.9]),
        ({"cycles": 4}, [0.3, 0.5, 0.7, 0.9]),
        ({"cycles": 1}, [0.3]),
        ({"cycles": 2}, [0.3, 0.9]),
        ({"cycles": 3, "first_share": 0.8, "last_share": 0.2}, [0.8, 0.5, 0.2]),
        ({"cycles": 2, "first_share": 1.0, "last_share": 1.0}, [1.0, 1.0]),
    ],
)
def test_a_growing_share_of_every_class_and_domain(settings, shares):
    """A fair share of a class is 60 / 3 = 20 images of sea and 30 / 3 = 10 of sky."""
    recorder, *_ = run(BIG, ranked_logits, **settings)
    sets = [stage["labeled"] for stage in recorder.trained("dcg")]
    for share, joined in zip(shares, sets, strict=True):
        sea, sky = round(60 * share), round(30 * share)  # the most confident of all classes are the last ones
        expected = [*range(60 - sea, 60), *range(130 - sky, 130)]
        assert images_of(joined) == [10, 20, 30, *expected]
        assert joined.y.tolist() == [0, 1, 2, *[image % 3 for image in range(60 - sea, 60)], *[0, 1, 2] * (sky // 3)]
        assert joined.domain.tolist() == [0] * 3 + [1] * sea + [2] * sky
        assert joined.trusted.tolist() == [True] * 3 + [False] * (sea + sky)


def test_a_class_that_dominates_gets_no_more_than_its_share():
    """50 of 60 images are predicted as class 0, 10 as class 1, none as class 2; 0.3 of a fair share is 6."""

    def skewed(learner, n, round):
        logits = ranked_logits(learner, n, round).sort(-1, descending=True).values  # all are class 0
        logits[:, :10] = logits[:, :10].roll(1, -1)
        return logits

    recorder, *_ = run(Task(("a", "b", "c"), LABELED, {"sea": BIG_SEA}), skewed, cycles=1)
    joined = recorder.trained("dcg")[0]["labeled"]
    assert images_of(joined)[3:] == [4, 5, 6, 7, 8, 9, 54, 55, 56, 57, 58, 59]
    assert joined.y.tolist()[3:] == [1] * 6 + [0] * 6


def test_a_cycle_draws_equally_many_images_of_every_domain():
    recorder, *_ = run(BIG, ranked_logits, cycles=1)
    (stage,) = recorder.trained("dcg")
    assert stage["balanced"]
    assert stage.keys() & {"pseudo", "unlabeled"} == set()
    stream = make_stream(Inputs(stage["labeled"], balanced=stage["balanced"]), 9, 0, PLAIN)
    for step in range(4):
        drawn = stream.draw(step).labeled
        assert drawn.domain.bincount().tolist() == [3, 3, 3]  # of 3, 18 and 9 images
        assert torch.equal(drawn.trusted, drawn.domain == 0)


@pytest.mark.parametrize("setting", ["ssdg", "uda"])
def test_one_unlabeled_domain(setting):
    """In domain adaptation the networks are the labelers: they are trained in the last cycle, too, and shipped."""
    recorder, _, product = run(Task(("a", "b", "c"), LABELED, {"sea": SEA}, setting=setting), cycles=2)
    assert recorder.order() == [*cycle_of(1, "sea"), *cycle_of(2, "sea")]
    assert product is recorder.builds[0]
    assert [stage["product"] for stage in recorder.trained("dcg")] == [True, True]
    assert set(recorder.trained("dcg")[0]["labeled"].domain) == {0, 1}


# Memory. Two classes; probabilities of class 0, of four images in three cycles.
SMALL = Task(("a", "b"), labeled_set([1, 2], [0, 1]), {"sea": unlabeled_set([50, 51, 52, 53])})
PREDICTED = {1: (0.9, 0.4, 0.75, 0.2), 2: (0.2, 0.9, 0.6, 0.3), 3: (0.26, 0.2, 0.6, 0.9)}


def logits_of(probs):
    """Two networks whose probabilities of class 0 are above and below `probs`, which are the means."""
    p = torch.tensor(probs, dtype=torch.float64)
    gap = torch.tensor([[-0.05], [0.05]], dtype=torch.float64)
    return torch.stack([p + gap, 1 - p - gap], -1).log().float()


def predicted_logits(learner, n, round):
    return logits_of(PREDICTED[round])


def test_earlier_cycles_count_half():
    """Class 0, by image: 0.9, 0.55, 0.405; 0.4, 0.65, 0.425; 0.75, 0.675, 0.6375; 0.2, 0.25, 0.575."""
    recorder, *_ = run(SMALL, predicted_logits, cycles=3, first_share=0.5, last_share=0.5)
    labels = [recorder.labels["apl/sea", cycle] for cycle in (1, 2, 3)]
    assert [part.y.tolist() for part in labels] == [[0, 1, 0, 1], [0, 0, 0, 1], [1, 1, 0, 0]]
    # Half of a fair share of two: the most confident image of each class. What cycles 2 and 3 predict by themselves
    # would select image 1 of class 0, and images 1 and 3.
    kept = [np.flatnonzero(part.keep).tolist() for part in labels]
    assert kept == [[0, 3], [2, 3], [0, 2]]


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (0.0, [[0, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0]]),
        # Class 0, by image: 0.9, 0.69, 0.561; 0.4, 0.55, 0.445; 0.75, 0.705, 0.6735; 0.2, 0.23, 0.431.
        (0.7, [[0, 1, 0, 1], [0, 0, 0, 1], [0, 1, 0, 1]]),
    ],
)
def test_the_weight_of_earlier_cycles_can_be_set(memory, expected):
    recorder, *_ = run(SMALL, predicted_logits, cycles=3, memory=memory)
    assert [recorder.labels["apl/sea", cycle].y.tolist() for cycle in (1, 2, 3)] == expected


@pytest.mark.parametrize(("first_labels", "expected"), [("mcd", 0), ("self", 1)])
def test_the_first_labels_are_remembered(first_labels, expected):
    """In cycle 2 the networks say 0.2 of class 0: with 0.9 of the labeler it is 0.55, with 0.3 of theirs 0.25."""

    def logits(learner, n, round):
        return logits_of([0.9 if learner.key.startswith("apl") else {1: 0.3, 2: 0.2}[round]] * n)

    recorder, *_ = run(SMALL, logits, cycles=2, first_labels=first_labels)
    assert recorder.labels["apl/sea", 2].y[0] == expected


def test_the_first_cycle_learns_the_most_confident_first_labels():
    """Half of a fair share of four images and two classes: the most confident image of either class."""

    def logits(learner, n, round):
        return logits_of([0.9, 0.6, 0.2, 0.4])

    recorder, *_ = run(SMALL, logits, cycles=1, first_labels="mcd", first_share=0.5)
    (stage,) = recorder.trained("dcg")
    learned = stage["labeled"]
    pseudo = ~learned.trusted
    assert learned.y[pseudo].tolist() == [0, 1]
    pool = images_of(SMALL.unlabeled["sea"])
    assert [images_of(learned)[row] for row in np.flatnonzero(pseudo)] == [pool[0], pool[2]]


def test_domains_do_not_share_their_memory():
    """Predictions of sea fall from 0.9 to 0.2, those of sky rise from 0.2 to 0.9: both remember 0.55."""

    def logits(learner, n, round):
        is_sea = n == 4
        return logits_of([0.9 if is_sea == (round == 1) else 0.2] * n)

    sky = unlabeled_set([60, 61, 62], domain=2)
    task = Task(SMALL.classes, SMALL.labeled, {"sea": SMALL.unlabeled["sea"], "sky": sky})
    recorder, *_ = run(task, logits, cycles=2)
    assert recorder.labels["apl/sea", 1].y.tolist() == [0] * 4
    assert recorder.labels["apl/sky", 1].y.tolist() == [1] * 3
    assert recorder.labels["apl/sea", 2].y.tolist() == [0] * 4
    assert recorder.labels["apl/sky", 2].y.tolist() == [0] * 3


def test_probabilities_are_averaged_over_networks_and_views_before_they_are_remembered():
    """The mean of 0.99, 0.3 and 0.3 is 0.53, though two of three votes are against it; with 0.4 remembered, 0.465."""
    votes = torch.tensor([[[0.99, 0.01]], [[0.3, 0.7]], [[0.3, 0.7]]]).log()
    y, keep = RememberingShare(1.0, 0.5)(votes)
    assert (y.tolist(), keep.tolist()) == ([0], [True])
    y, _ = RememberingShare(1.0, 0.5, remembered=np.array([[0.4, 0.6]], np.float32))(votes)
    assert y.tolist() == [1]
    remembered = RememberingShare(1.0, 0.25, remembered=np.array([[0.4, 0.6]], np.float32)).update(
        np.array([[0.8, 0.2]], np.float32)
    )
    np.testing.assert_allclose(remembered, [[0.7, 0.3]], rtol=1e-6)


@pytest.mark.parametrize(("apl", "kind"), [("self", AveragedNetworks), ("mcd", DualNetworks)])
def test_the_product_depends_on_apl(apl, kind, monkeypatch):
    built = []
    monkeypatch.setattr(f"ssdg.methods.eid.averaged.{kind.__name__}", lambda *args: built.append(args))
    build_networks("backbone", "sizes", EidSettings(apl=apl))
    assert built == [("backbone", "sizes", EidSettings(apl=apl))]
