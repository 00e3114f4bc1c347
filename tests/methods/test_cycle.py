"""The order of Algorithm 1, observed by a recording Trainer."""

import numpy as np
import pytest
import torch
from recording import LABELED, SEA, SKY, TASK, Recorder, images_of, random_logits

from ssdg.data.sets import MixedSet
from ssdg.methods.adaptation.mcd import Mcd
from ssdg.methods.eid.averaged import build_networks
from ssdg.methods.eid.cycle import fit
from ssdg.methods.eid.settings import RELEASE, EidSettings


def run(**settings):
    recorder, cfg = Recorder(random_logits), EidSettings(**settings)
    return recorder, cfg, fit(TASK, recorder, recorder.build, cfg)


def test_a_cycle_is_apl_per_domain_then_dcg_then_eid():
    recorder, *_ = run(cycles=2)
    calls = [
        ("train", "apl/sea"),
        ("label", "apl/sea"),
        ("train", "apl/sky"),
        ("label", "apl/sky"),
        ("train", "dcg"),
        ("label", "eid"),
    ]
    assert recorder.order() == [(*call, cycle) for cycle in (1, 2) for call in calls]


def test_three_cycles_are_the_default():
    recorder, *_ = run()
    assert [call[2] for call in recorder.calls if call[1] == "dcg"] == [1, 2, 3]


def test_the_product_is_the_dual_networks():
    recorder, _, product = run(cycles=1)
    assert product.kind is build_networks
    assert product.key == "dcg"
    assert [args.get("product", False) for *_, args in recorder.calls] == [False] * 4 + [True, False]


@pytest.mark.parametrize("key", ["apl/sea", "apl/sky", "dcg"])
def test_the_learning_rate_falls_with_the_square_of_the_cycle(key):
    recorder, *_ = run(cycles=3)
    assert [args["lr_scale"] for args in recorder.trained(key)] == pytest.approx([1, 1 / 4, 1 / 9])


def test_each_labeler_learns_and_labels_its_own_domain():
    recorder, cfg, _ = run(cycles=2)
    for kind, key, _round, learner, args in recorder.calls:
        if key.startswith("apl/"):
            assert learner.key == key
            assert learner.kind is Mcd
            assert args["unlabeled" if kind == "train" else "pool"] is TASK.unlabeled[key[4:]]
        if key.startswith("apl/") and kind == "train":
            assert args["settings"] is cfg.labeler


def test_dcg_learns_the_labeled_domain_and_the_pseudo_labels_of_this_cycle():
    recorder, cfg, _ = run(cycles=2)
    for cycle, args in enumerate(recorder.trained("dcg"), start=1):
        assert args["labeled"] is LABELED  # not the intermediate domain
        assert args["settings"] == cfg.dcg
        pseudo = args["pseudo"]
        assert images_of(pseudo) == images_of(SEA) + images_of(SKY)
        expected = [recorder.labels[f"apl/{name}", cycle].y for name in ("sea", "sky")]
        assert pseudo.y.tolist() == np.concatenate(expected).tolist()
        assert pseudo.domain.tolist() == [1] * 4 + [2] * 3
        assert not pseudo.trusted.any()


def test_labelers_start_from_the_labeled_domain_and_continue_from_the_intermediate_one():
    recorder, *_ = run(cycles=3)
    for name in ("sea", "sky"):
        first, second, third = (args["labeled"] for args in recorder.trained(f"apl/{name}"))
        assert first is LABELED
        assert isinstance(second, MixedSet)
        for cycle, source in ((1, second), (2, third)):
            clean = recorder.labels["eid", cycle]
            assert source.base is LABELED
            assert images_of(source.clean) == np.array(images_of(TASK.pool))[clean.keep].tolist()
            assert source.clean.y.tolist() == clean.y[clean.keep].tolist()


def test_networks_carry_on_between_cycles():
    recorder, *_ = run(cycles=3)
    assert [b.key for b in recorder.builds] == ["apl/sea", "apl/sky", "dcg"]
    learners = {id(call[3]) for call in recorder.calls}
    assert learners == {id(b) for b in recorder.builds}


def test_reinit_builds_anew_for_every_cycle():
    recorder, _, product = run(cycles=3, reinit=True)
    assert len(recorder.builds) == 9
    assert len({b.key for b in recorder.builds}) == 9  # other keys, other initial weights
    used = [call[3] for call in recorder.calls if call[:2] == ("train", "dcg")]
    assert len({id(learner) for learner in used}) == 3
    assert used[-1] is product
    labelers = [call[3] for call in recorder.calls if call[1] == "apl/sea"]
    assert [id(a) for a in labelers[::2]] == [id(b) for b in labelers[1::2]]
    assert len({id(a) for a in labelers}) == 3


def test_the_labelers_may_have_a_backbone_of_their_own():
    recorder, *_ = run(cycles=1, apl_backbone="resnet50", apl_weights="imagenet")
    sea, _, dcg = recorder.builds
    assert sea.options == {"backbone": "resnet50", "weights": "imagenet", "freeze": None}
    assert dcg.options == {}


def test_settings_of_the_labeler_reach_it():
    recorder, *_ = run(cycles=1, labeler={"inner_steps": 2, "lr": 0.5})
    assert recorder.builds[0].settings.inner_steps == 2
    assert recorder.trained("apl/sea")[0]["settings"].lr == 0.5


def test_release_preset_mixes_in_cycle_1_and_learns_the_union():
    recorder, *_ = run(cycles=2, **RELEASE)
    first, second = (args["labeled"] for args in recorder.trained("apl/sea"))
    assert isinstance(first, MixedSet)
    assert first.any_pair
    assert len(first.clean) == 0
    assert len(second.clean) > 0
    assert all(args["union"] for args in recorder.trained("dcg"))
    assert not any(args["union"] for args in run(cycles=1)[0].trained("dcg"))


def test_a_cycle_without_a_clean_image_leaves_the_labeled_domain_as_source():
    def at_odds(learner, n, round):
        logits = random_logits(learner, n, round)[0]
        return torch.stack([logits, -logits])

    recorder = Recorder(at_odds)
    fit(TASK, recorder, recorder.build, EidSettings(cycles=2))
    assert not recorder.labels["eid", 1].keep.any()
    source = recorder.trained("apl/sea")[1]["labeled"]
    assert source is LABELED
