"""The cycle with `apl=self`: order of requests, schedule, shares and memory, observed by a recording Trainer."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from recording import LABELED, SEA, SKY, TASK, Recorder, images_of, random_logits

from builders import PLAIN, labeled_set, unlabeled_set
from ssdg.data.sets import Inputs, PseudoLabels, Task
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


SELF_TRAINING = [
    ("train", "probe/round1", 1),
    ("label", "probe/sea/round1", 1),
    ("label", "probe/sky/round1", 1),
    ("train", "probe/round2", 1),
    ("label", "first/sea", 1),
    ("label", "first/sky", 1),
]


def test_first_labels_by_self_training():
    recorder, cfg, product = run(first_labels="self-training", cycles=2, label_views=3, labeler={"rates": (0.5,)})
    assert recorder.order() == [
        *SELF_TRAINING,
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


def test_networks_that_have_started_label_together_with_the_first_labels():
    recorder, *_ = run(first_labels="self-training", start_epochs=1, cycles=2, labeler={"rates": (0.5,)})
    cycles = [call for number in (1, 2) for call in cycle_of(number, "sea", "sky")]
    assert recorder.order() == [("train", "start", 1), *SELF_TRAINING, *cycles]


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


@pytest.mark.parametrize(("settings", "expected"), [({}, 0.6), ({"start_epochs": 1}, 0.45)])
def test_started_networks_and_first_labels_count_half(settings, expected):
    """The labeler says 0.6 of class 0, the networks 0.3; without a start they have learned nothing to say."""

    def logits(learner, n, round):
        return logits_of([0.6 if learner.key.startswith("apl") else 0.3] * n)

    recorder, *_ = run(SMALL, logits, cycles=1, first_labels="mcd", **settings)
    learned = recorder.trained("dcg")[0]["labeled"]
    assert {*learned.y[~learned.trusted].tolist()} == {0 if expected > 0.5 else 1}


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


# Trust: 60 images of 3 classes by one network; the views of the last ones have another class.


def with_changed_views(num_changed, num_views=1, n=60):
    logits = ranked_logits(None, n, 1)[:1]
    view = logits.clone()
    view[:, n - num_changed :] = view[:, n - num_changed :].roll(1, -1) * 0.1  # another class, with less confidence
    return torch.cat([logits, *[view] * num_views])


@pytest.mark.parametrize(
    ("trust", "num_changed", "expected"),
    [
        (0.0, 30, 16),  # 0.8 of a fair share of 20
        (1.0, 30, 8),  # · 0.5
        (2.0, 30, 4),  # · 0.25
        (2.0, 0, 16),
        (2.0, 60, 1),  # none agrees: the least there is
        (1.0, 15, 12),  # · 0.75
    ],
)
@pytest.mark.parametrize("num_views", [1, 3])
def test_fewer_images_are_selected_where_views_disagree(trust, num_changed, expected, num_views):
    y, keep = RememberingShare(0.8, trust=trust)(with_changed_views(num_changed, num_views))
    counts = {k: int(keep[y == k].sum()) for k in range(3)}
    assert counts == dict.fromkeys(range(3), expected)


@pytest.mark.parametrize(("has_keyword", "expected"), [(True, 48), (False, 12)])
def test_keywords_that_settle_what_views_disagree_on_restore_trust(has_keyword, expected):
    """Views change half of the predictions, all of them unsure ones, for which a keyword that fits decides."""
    keywords = np.arange(60) % 3 if has_keyword else np.full(60, -1)
    y, keep = RememberingShare(0.8, trust=2.0, keywords=keywords)(with_changed_views(30))
    assert int(keep.sum()) == expected  # 0.8 of all, or a quarter of these
    assert y.tolist() == (np.arange(60) % 3).tolist()


def test_networks_that_disagree_are_not_views_that_do():
    """Two networks of the plain image: their mean is what a view is compared with, and there is none."""
    logits = with_changed_views(30)
    _, distrusted = RememberingShare(0.8, trust=2.0)(logits)
    _, trusted = RememberingShare(0.8, trust=2.0, num_networks=2)(logits)
    assert (int(distrusted.sum()), int(trusted.sum())) == (12, 48)


def test_the_trust_of_a_run_is_that_of_its_settings():
    task = Task(("a", "b", "c"), LABELED, {"sea": BIG_SEA})
    counts = {}
    for trust in (0.0, 2.0):
        settings = {"networks": 1, "cycles": 1, "first_share": 0.8, "trust": trust}
        recorder, *_ = run(task, lambda *_: with_changed_views(30), **settings)
        counts[trust] = int(recorder.labels["apl/sea", 1].keep.sum())
    assert counts == {0.0: 48, 2.0: 12}


def test_keywords_change_labels():
    """Images 0 to 2 are sure and match their keyword: q = 2/3, odds 4. Image 3 is 0.4 and 0.35: keyword 1 wins."""
    probs = torch.tensor([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9], [0.4, 0.35, 0.25]])
    keywords = np.array([0, 1, 2, 1])
    assert RememberingShare(1.0)(probs.log()[None])[0].tolist() == [0, 1, 2, 0]
    assert RememberingShare(1.0, keywords=keywords)(probs.log()[None])[0].tolist() == [0, 1, 2, 1]
    assert RememberingShare(1.0, keywords=np.full(4, -1))(probs.log()[None])[0].tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(("changed_view", "expected"), [(0.45, 0), (0.7, 1)])
def test_keywords_count_more_where_views_disagree(changed_view, expected):
    """Image 2 is 0.75 of class 0, and its keyword 1 has odds 2: 3 to 2, but √3 to 2 if half of the views agree."""
    first, second = [0.99, 0.01, 0.9, *[0.9 - changed_view] * 3], [0.99, 0.01, 0.6, *[changed_view] * 3]
    of_class_0 = torch.tensor([first, second])
    logits = torch.stack([of_class_0, 1 - of_class_0], -1).log()
    y, _ = RememberingShare(1.0, keywords=np.array([0, 1, 1, -1, -1, -1]))(logits)
    assert y[2] == expected


def test_keywords_are_not_remembered():
    """They are weighed anew in every cycle; a mixture with what was remembered would count them twice."""
    before, now = np.array([[0.6, 0.4]], np.float32), np.array([[0.2, 0.8]], np.float32)
    rule = RememberingShare(1.0, 0.5, remembered=before, keywords=np.array([0]))
    np.testing.assert_allclose(rule.update(now), [[0.4, 0.6]], rtol=1e-6)


def first_labels_of(keep, votes, probs):
    n = len(keep)
    return PseudoLabels(np.zeros(n, np.int64), np.array(keep), np.ones(n, np.float32), np.array(votes), probs)


def test_choose_selects_only_what_the_first_labeler_did():
    """Half of a fair share of four: the most confident image of each class, 0 and 3; the labeler rejected 3."""
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.1, 0.9]], np.float32)
    votes = [[0, 0, 1, 1]]
    rule = RememberingShare(0.5, remembered=probs)
    everything = rule.choose(first_labels_of([True] * 4, votes, probs))
    assert (everything.y.tolist(), np.flatnonzero(everything.keep).tolist()) == ([0, 0, 1, 1], [0, 3])
    rest = rule.choose(first_labels_of([True, True, True, False], votes, probs))
    assert np.flatnonzero(rest.keep).tolist() == [0]
    assert rest.probs is probs  # the rest of the labels is as it was


def test_choose_trusts_views_that_agree_with_the_plain_image():
    """A fair share of six images and two classes is three; two of six views agree, and 3 · 1/3 is one."""
    first = np.array([0.9, 0.8, 0.7, 0.3, 0.2, 0.1], np.float32)
    probs = np.stack([first, 1 - first], 1)
    labels = first_labels_of([True] * 6, [[0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 1]], probs)
    kept = [RememberingShare(1.0, trust=trust, remembered=probs).choose(labels).keep for trust in (0.0, 1.0)]
    assert [np.flatnonzero(keep).tolist() for keep in kept] == [[0, 1, 2, 3, 4, 5], [0, 5]]


# Web-labels of sea; sky is no crawl.
KEYWORDS = np.array([2, 0, -1, 1])


def crawl(strategy, **settings):
    web = {} if strategy == "ignored" else {"sea": KEYWORDS}
    task = replace(TASK, web=web, web_label=strategy)
    return run(task, **{"cycles": 2, "first_share": 1.0, "last_share": 1.0, **settings})[0]


def sea_of(stage):
    learned = stage["labeled"]
    rows = np.flatnonzero(learned.domain == 1)
    return dict(zip(np.array(images_of(learned))[rows].tolist(), learned.y[rows].tolist(), strict=True))


@pytest.mark.parametrize("first_labels", ["self", "mcd", "self-training"])
def test_retained_keywords_are_the_labels_of_every_cycle(first_labels):
    recorder = crawl("retained", first_labels=first_labels)
    for stage in recorder.trained("dcg"):
        assert sea_of(stage) == {50: 2, 51: 0, 53: 1}  # image 52 has no keyword
        assert not stage["labeled"].trusted[3:].any()
    assert not any("sea" in key for _, key, _ in recorder.order())
    assert ("label", "apl/sky", 2) in recorder.order()


@pytest.mark.parametrize("first_labels", ["self", "mcd"])
def test_refined_keywords_are_weighed_in_every_cycle(first_labels):
    """All images look like class 0 by a little. The most confident one has no keyword: keywords have odds 2."""

    def nearly_equal(learner, n, round):
        probs = torch.tensor([0.4, 0.3, 0.3]).repeat(1, n, 1)
        probs[0, 2] = torch.tensor([0.46, 0.27, 0.27])
        return probs.log()

    settings = {"logits": nearly_equal, "first_labels": first_labels, "networks": 1}
    refined, ignored = (crawl(strategy, **settings).trained("dcg") for strategy in ("refined", "ignored"))
    assert [sea_of(stage) for stage in refined] == [{50: 2, 51: 0, 52: 0, 53: 1}] * 2
    assert [set(sea_of(stage).values()) for stage in ignored] == [{0}] * 2


def test_ignored_keywords_do_not_reach_training():
    """A crawl whose keywords are ignored is an unlabeled domain."""
    with_crawl, without = crawl("ignored"), run(TASK, cycles=2, first_share=1.0, last_share=1.0)[0]
    assert with_crawl.order() == without.order()
    for first, second in zip(with_crawl.trained("dcg"), without.trained("dcg"), strict=True):
        assert first["labeled"].y.tolist() == second["labeled"].y.tolist()
