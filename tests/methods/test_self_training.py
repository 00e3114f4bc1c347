"""Self-training: in every round, the most confident images of every class and domain."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from recording import LABELED, SEA, SKY, TASK, Recorder, images_of, random_logits

from runs import train_here
from ssdg.data.sets import LabeledSet, MixedSet
from ssdg.methods.api import ALL_VIEWS
from ssdg.methods.eid.averaged import build_networks
from ssdg.methods.eid.cycle import fit as fit_eid
from ssdg.methods.eid.labeling import joined
from ssdg.methods.eid.settings import EidSettings
from ssdg.methods.frozen.probe import Probe
from ssdg.methods.frozen.self_training import FairShare, SelfTrainingSettings, fit

POOLS = {"sea": SEA, "sky": SKY}


def log(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows).log()


def test_networks_and_views_vote_by_mean_probability() -> None:
    first = log((0.9, 0.1), (0.6, 0.4), (0.4, 0.6), (0.2, 0.8))
    second = log((0.7, 0.3), (0.1, 0.9), (0.5, 0.5), (0.3, 0.7))
    # means of class 0: 0.8, 0.35, 0.45, 0.25; half of a fair share of 4 / 2 is one image of each class
    y, keep = FairShare(0.5)(torch.stack([first, second]))
    assert y.tolist() == [0, 1, 1, 1]
    assert keep.tolist() == [True, False, False, True]
    y, keep = FairShare(1.0)(torch.stack([first, second]))
    assert keep.tolist() == [True, True, False, True]
    assert FairShare(1.0)(first[None])[0].tolist() == [0, 0, 1, 1]  # one view alone votes otherwise


@pytest.mark.parametrize("rates", [(), (0.0,), (0.5, 1.1), (-0.2,), (float("nan"),)])
def test_rates_are_fractions(rates: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError):
        SelfTrainingSettings(rates=rates)


def test_rates_may_be_any_fractions_in_any_order() -> None:
    assert SelfTrainingSettings(rates=(1.0, 0.01)).rates == (1.0, 0.01)
    assert SelfTrainingSettings().rates == (0.2, 0.4, 0.6, 0.8)


def test_a_round_learns_the_source_and_what_the_last_one_selected() -> None:
    recorder, settings = Recorder(random_logits), SelfTrainingSettings(rates=(0.5, 1.0))
    product = fit(TASK, recorder, recorder.build, settings)  # type: ignore[arg-type]
    labelings = [[("label", f"probe/{name}", number) for name in POOLS] for number in (1, 2)]
    assert recorder.order() == [
        ("train", "probe", 1),
        *labelings[0],
        ("train", "probe", 2),
        *labelings[1],
        ("train", "probe", 3),
    ]
    assert product is recorder.builds[0]
    assert product.kind is Probe  # type: ignore[attr-defined]
    rounds = recorder.trained("probe")
    assert rounds[0]["labeled"] is LABELED
    for number in (1, 2):
        union = rounds[number]["labeled"]
        picked = {name: recorder.labels[f"probe/{name}", number] for name in POOLS}
        selected = [image for name, pool in POOLS.items() for image in np.array(images_of(pool))[picked[name].keep]]
        assert images_of(union) == [*images_of(LABELED), *selected]
        pseudo = np.concatenate([labels.y[labels.keep] for labels in picked.values()])
        assert union.y.tolist() == [*LABELED.y, *pseudo]
        assert union.trusted.tolist() == [True] * len(LABELED) + [False] * len(selected)
    assert all(stage["whole"] and stage["product"] for stage in rounds)
    assert all(call[4]["views"] for call in recorder.calls if call[0] == "label")


def test_a_higher_rate_selects_more() -> None:
    recorder = Recorder(lambda learner, n, round: random_logits(learner, 30, 1)[:, :n])
    settings = SelfTrainingSettings(rates=(0.1, 0.5, 1.0))
    fit(TASK, recorder, recorder.build, settings)  # type: ignore[arg-type]
    sizes = [len(stage["labeled"]) for stage in recorder.trained("probe")]
    assert all(a <= b for a, b in pairwise(sizes))
    assert sizes[0] < sizes[-1]


def test_no_set_is_larger_than_the_limit() -> None:
    recorder, settings = Recorder(random_logits), SelfTrainingSettings(rates=(1.0,), max_images=4)
    fit(TASK, recorder, recorder.build, settings)  # type: ignore[arg-type]
    sizes = [len(stage["labeled"]) for stage in recorder.trained("probe")]
    assert sizes == [3, 4]


def test_one_labeler_of_eid_learns_all_domains_together() -> None:
    recorder, cfg = Recorder(random_logits), EidSettings(apl="self-training", cycles=2, labeler={"rates": (0.5,)})
    fit_eid(TASK, recorder, recorder.build, cfg)  # type: ignore[arg-type]
    assert [(built.key, built.kind) for built in recorder.builds] == [("apl", Probe), ("dcg", build_networks)]
    assert recorder.builds[0].options["freeze"] == "all"
    cycle = [
        ("train", "probe/round1"),
        ("label", "probe/sea/round1"),
        ("label", "probe/sky/round1"),
        ("train", "probe/round2"),
        ("label", "apl/sea"),
        ("label", "apl/sky"),
        ("train", "dcg"),
        ("label", "eid"),
    ]
    assert recorder.order() == [(*call, number) for number in (1, 2) for call in cycle]
    votes = {call[1]: call[4]["views"] for call in recorder.calls if call[0] == "label"}
    assert votes == {
        "probe/sea/round1": ALL_VIEWS,
        "probe/sky/round1": ALL_VIEWS,
        "apl/sea": ALL_VIEWS,
        "apl/sky": ALL_VIEWS,
        "eid": 0,
    }
    (dcg, _) = recorder.trained("dcg")
    assert len(dcg["pseudo"]) == len(SEA) + len(SKY)  # every image is labeled in the end
    second = recorder.trained("probe/round1")[1]["labeled"]  # the clean set joins the source
    clean = recorder.labels["eid", 1]
    assert isinstance(second, LabeledSet)
    assert len(second) == len(LABELED) + clean.keep.sum()


def test_fresh_starts_build_a_new_labeler() -> None:
    recorder, cfg = Recorder(random_logits), EidSettings(apl="self-training", cycles=2, reinit=True)
    fit_eid(TASK, recorder, recorder.build, cfg)  # type: ignore[arg-type]
    assert [built.key for built in recorder.builds] == ["apl", "dcg", "apl/2", "dcg/2"]


def test_a_mixed_source_is_learned_unmixed() -> None:
    clean = LabeledSet(SEA.images, np.array([0, 1, 2, 0]), SEA.domain, np.zeros(4, bool))
    both = joined(MixedSet(LABELED, clean, "mixup", 1.0))
    assert images_of(both) == [*images_of(LABELED), *images_of(SEA)]
    assert joined(LABELED) is LABELED


@pytest.mark.parametrize("views", [0, 2])
def test_all_stored_views_vote_on_every_label(views: int, world: Path, cache: Path, tmp_path: Path) -> None:
    train_here(world, cache, tmp_path, "self-training", views=views, rates=(0.5,), epochs=1)
    files = sorted((tmp_path / "labels").glob("*.npz"))
    assert len(files) == 2  # one per unlabeled domain
    for file in files:
        with np.load(file) as labels:
            assert labels["votes"].shape == (1 + views, len(labels["y"]))
            counts = np.bincount(labels["y"][labels["keep"]], minlength=3)
            assert counts.max() <= np.ceil(0.5 * len(labels["y"]) / 3)
            assert all((counts > 0) == (np.bincount(labels["y"], minlength=3) > 0))
