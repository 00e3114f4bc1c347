"""A+B is A for every unlabeled domain, then B on all of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from recording import LABELED, SEA, SKY, TASK, Recorder, images_of, random_logits
from safetensors.torch import load_file

from runs import same_weights, train_here
from ssdg.artifact.load import load_model
from ssdg.config import resolve
from ssdg.errors import UserError
from ssdg.methods import METHODS, find_method
from ssdg.methods.compose import compose

PAIR = compose(find_method("mcd"), METHODS["mixstyle"])


def test_every_domain_gets_a_labeler_then_the_second_method_learns_all() -> None:
    trainer = Recorder(random_logits)
    PAIR.fit(TASK, trainer, trainer.build, PAIR.settings())
    assert trainer.order() == [
        ("train", "apl/sea", 1),
        ("label", "apl/sea", 1),
        ("train", "apl/sky", 1),
        ("label", "apl/sky", 1),
        ("train", "main", 1),
    ]
    (sea,), (sky,) = trainer.trained("apl/sea"), trainer.trained("apl/sky")
    assert (sea["labeled"], sea["unlabeled"]) == (LABELED, SEA)
    assert (sky["labeled"], sky["unlabeled"]) == (LABELED, SKY)
    (main,) = trainer.trained("main")
    union = main["labeled"]
    assert images_of(union) == [*images_of(LABELED), *images_of(SEA), *images_of(SKY)]
    pseudo = np.concatenate([trainer.labels[f"apl/{name}", 1].y for name in ("sea", "sky")])
    assert union.y.tolist() == [*LABELED.y, *pseudo]
    assert union.domain.tolist() == [0] * 3 + [1] * 4 + [2] * 3
    assert union.trusted.tolist() == [True] * 3 + [False] * 7
    assert "unlabeled" not in main
    assert main["product"]
    assert trainer.builds[-1].options["num_domains"] == 3


def test_a_domain_that_is_rejected_entirely_leaves_no_gap() -> None:
    """An open-set labeler may reject all of `sea`: then `sky` is domain 1 of two, and not domain 2."""

    class RejectingRecorder(Recorder):
        def label(self, key, learner, pool, rule, **more):  # type: ignore[no-untyped-def]
            labels = super().label(key, learner, pool, rule, **more)
            return replace(labels, keep=np.full(len(pool), key == "apl/sky"))

    trainer = RejectingRecorder(random_logits)
    pair = compose(find_method("mcd"), METHODS["mixstyle"])
    pair.fit(TASK, trainer, trainer.build, pair.settings())
    (main,) = trainer.trained("main")
    assert main["labeled"].domain.tolist() == [0] * 3 + [1] * 3
    assert trainer.builds[-1].options["num_domains"] == 2


def test_settings_of_both_reach_their_stages() -> None:
    config = {"method": "mcd+mixstyle", "labeled": "x", "lr": 0.5, "labeler": {"lr": 0.25, "inner_steps": 3}}
    settings = resolve(config, kind="none", size=32).settings
    trainer = Recorder(random_logits)
    PAIR.fit(TASK, trainer, trainer.build, settings)
    assert {(b.settings.lr, getattr(b.settings, "inner_steps", None)) for b in trainer.builds} == {
        (0.25, 3),
        (0.5, None),
    }
    with pytest.raises(UserError, match=r"did you mean 'labeler\.inner_steps'"):
        resolve({**config, "labeler": {"inner_step": 3}}, kind="none", size=32)


def test_any_pair_composes_when_it_is_asked_for() -> None:
    assert find_method("mcd+rsc").learner is METHODS["rsc"].learner
    assert "mcd+rsc" not in METHODS  # finding it does not register it
    for name, message in (("mcd+source-only", "DG method 'source-only'"), ("rsc+mcd", "labeling method 'rsc'")):
        with pytest.raises(UserError, match=message):
            find_method(name)


def test_its_labelers_are_those_of_the_first_cycle_of_eid(world: Path, cache: Path, tmp_path: Path) -> None:
    """Bit for bit, so that a benchmark can share them."""
    train_here(world, cache, tmp_path / "pair", "mcd+mixstyle")
    train_here(world, cache, tmp_path / "eid", "eid", cycles=1)
    for stage in ("1-apl-sketch", "1-apl-neon"):
        a, b = (load_file(tmp_path / run / "stages" / f"{stage}.safetensors") for run in ("pair", "eid"))
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_model_is_that_of_the_second_method(world: Path, cache: Path, tmp_path: Path) -> None:
    train_here(world, cache, tmp_path / "run", "mcd+mixstyle")
    card = json.loads((tmp_path / "run" / "model" / "model.json").read_text())
    assert (card["method"], card["learner"], card["num_domains"]) == ("mcd+mixstyle", "mixstyle", 3)
    assert load_model(tmp_path / "run", "cpu").logits(np.zeros((2, 32, 32, 3), np.uint8)).shape == (1, 2, 3)
    train_here(world, cache, tmp_path / "alone", "mixstyle")
    assert not same_weights(tmp_path / "run", tmp_path / "alone")
