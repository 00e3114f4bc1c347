"""Settings of frozen layers: their defaults, what is refused in one sentence, and hashes of runs without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runs import WORLD, train_here
from ssdg.config import RunConfig, resolve
from ssdg.data.sets import DataKind
from ssdg.engine.setup import open_run, with_precision
from ssdg.errors import UserError
from ssdg.methods import METHODS, find_method

BASE = {"labeled": "photo", "target": "sketch"}
SMALL: dict[str, Any] = {"backbone": "digits-cnn", "weights": "none", "size": 32}
ADAPTATION = sorted(name for name, method in METHODS.items() if method.family == "DA")


def resolved(kind: DataKind = "photo", size: int = 224, **given: Any) -> RunConfig:
    return resolve({**BASE, **given}, kind=kind, size=size)


def refusal(**given: Any) -> str:
    with pytest.raises(UserError) as error:
        resolved(**given)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("freeze", ["none", "stage2", "all"])
@pytest.mark.parametrize("method", ["source-only", "eid", "fixmatch"])
def test_views_and_batch_norm_follow_from_freeze(method: str, freeze: str) -> None:
    config = resolved(method=method, freeze=freeze)
    assert (config.views, config.batch_norm) == ((0, "train") if freeze == "none" else (5, "eval"))
    config = resolved(method=method, freeze=freeze, batch_norm="train" if freeze != "none" else "eval")
    assert config.batch_norm == ("train" if freeze != "none" else "eval")


def test_what_is_given_beats_the_defaults_of_frozen_layers() -> None:
    config = resolved(method="mcd", freeze="all", views=5, batch_norm="train", bottleneck=16)
    assert (config.views, config.batch_norm, config.settings.bottleneck) == (5, "train", 16)  # type: ignore[attr-defined]
    config = resolved(method="eid", freeze="all", labeler={"bottleneck": 0})
    assert config.settings.labeler.bottleneck == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ADAPTATION)
def test_adaptation_methods_get_a_layer_to_adapt_if_all_others_are_frozen(method: str) -> None:
    def bottleneck(**given: Any) -> tuple[int, int]:
        alone, labeler = resolved(method=method, **given), resolved(method="eid", apl=method, **given)
        return alone.settings.bottleneck, labeler.settings.labeler.bottleneck  # type: ignore[attr-defined]

    assert bottleneck(freeze="all") == (256, 256)
    assert bottleneck(freeze="stage2") == bottleneck() == (0, 0)


def test_the_labeler_of_a_pair_gets_a_layer_to_adapt() -> None:
    pair = resolved(method="mcd+mixstyle", freeze="all")
    assert pair.settings.labeler.bottleneck == 256  # type: ignore[attr-defined]
    assert "bottleneck" not in pair.flat()  # mixstyle has no such setting


def test_methods_without_trained_layers_are_frozen_as_a_whole() -> None:
    probe, rounds = resolved(method="probe"), resolved(method="self-training")
    assert (probe.freeze, probe.views, probe.batch_norm) == ("all", 0, "eval")
    assert (rounds.freeze, rounds.views, rounds.batch_norm) == ("all", 5, "eval")


@pytest.mark.parametrize("method", ["eid", "self-training+mixstyle"])
def test_a_frozen_labeler_leaves_the_product_unfrozen(method: str) -> None:
    config = resolved(method=method, **({"apl": "self-training"} if method == "eid" else {}))
    assert (config.freeze, config.views, config.batch_norm) == ("none", 5, "train")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_written_configuration_with_frozen_layers_resolves_to_itself(method: str) -> None:
    for freeze in ("stage2", "all"):
        if "pixels" in find_method(method).needs or find_method(method).freeze not in (None, freeze):
            continue
        config = resolved(method=method, freeze=freeze)
        again = resolve(config.flat(), kind="none", size=32)
        assert again == config
        assert again.hash == config.hash


RANDOM = "frozen layers stay random with weights=none; give weights=imagenet or a file, or train them first with "
RANDOM += "warm_epochs"


def test_freezing_random_layers_is_refused() -> None:
    assert refusal(freeze="stage2", weights="none") == RANDOM
    assert resolved(freeze="stage2", weights="none", warm_epochs=1).views == 5
    assert resolved(freeze="stage2", weights="some.pth").views == 5


def test_a_frozen_labeler_with_random_layers_is_refused() -> None:
    given: dict[str, Any] = {"method": "eid", "apl": "self-training"}
    assert refusal(**given, weights="none") == RANDOM
    assert refusal(method="self-training+mixstyle", weights="none") == RANDOM
    assert refusal(**given, apl_backbone="resnet50", apl_weights="none") == RANDOM
    assert resolved(**given, weights="none", warm_epochs=1).freeze == "none"


def test_a_frozen_labeler_with_trained_layers_of_its_own_is_accepted() -> None:
    given: dict[str, Any] = {"method": "eid", "apl": "self-training", "weights": "none"}
    given |= {"apl_backbone": "efficientnet-lite0", "apl_weights": "imagenet"}
    assert resolved(**given).views == 5  # only the labeler is frozen
    assert refusal(**given, freeze="stage2") == RANDOM


@pytest.mark.parametrize("method", ["ddaig", "l2d", "mcd+ddaig"])
def test_a_method_that_changes_pixels_is_refused(method: str) -> None:
    message = refusal(method=method, freeze="stage1")
    assert message.startswith(f"method '{method}' changes the pixels of every batch")
    assert "give freeze=none" in message


def test_views_without_frozen_layers_are_refused() -> None:
    expected = "views are stored for frozen layers only; give freeze=all or a stage, or views=0"
    assert refusal(views=2) == expected
    assert refusal(freeze="none", views=2) == expected


@pytest.mark.parametrize("method", ["probe", "self-training"])
@pytest.mark.parametrize("freeze", ["none", "stage2"])
def test_methods_without_trained_layers_refuse_other_boundaries(method: str, freeze: str) -> None:
    expected = f"method '{method}' trains no layer of the backbone; give freeze=all"
    assert refusal(method=method, freeze=freeze) == expected


@pytest.mark.parametrize("method", ["fixmatch", "mean-teacher", "mixmatch", "daeldg", "cdan-e+daeldg"])
def test_methods_that_compare_views_refuse_to_have_none(method: str) -> None:
    message = refusal(method=method, freeze="all", views=0)
    assert message.startswith(f"method '{method}' compares two views of an image, and only the plain one is stored")
    assert message.endswith("give views=1 or more")
    assert resolved(method=method, freeze="all", views=1).views == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"views": -1}, "views=-1"),
        ({"views": 65}, "less than or equal to 64"),
        ({"views": True}, "not true or false"),
        ({"batch_norm": "frozen"}, "'train' or 'eval'"),
        ({"inference": "fp16"}, "'auto', 'fp32' or 'bf16'"),
        ({"method": "self-training", "rates": []}, "rates=[]"),
        ({"method": "self-training", "rates": [0.5, 0]}, "every rate must be above 0 and at most 1"),
        ({"method": "self-training", "rates": [1.5]}, "every rate must be above 0 and at most 1"),
        ({"method": "probe", "c": 0}, "greater than 0"),
        ({"method": "probe", "max_iter": 0}, "greater than or equal to 1"),
        ({"method": "probe", "max_images": 0}, "greater than or equal to 1"),
    ],
)
def test_values_out_of_range(given: dict[str, Any], message: str) -> None:
    assert message in refusal(**{"freeze": "all", **given})


@pytest.mark.parametrize("stage", ["stage9", "stem", "2", "al"])
def test_an_unknown_stage_is_refused_before_training(stage: str, world: Path, cache: Path) -> None:
    settings = {**WORLD, "data": str(world), "method": "source-only", "freeze": stage, "warm_epochs": 1}
    with pytest.raises(UserError) as error:
        open_run(settings, cache, device="cpu")
    message = str(error.value)
    assert message.startswith(f"unknown stage of digits-cnn in freeze '{stage}'")
    assert message.endswith("choose from none, stage1, stage2, stage3, stage4, all")
    assert "\n" not in message


def test_the_command_line_refuses_with_one_line(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    where = [
        "train",
        "--preset",
        "paper",
        "--data",
        world,
        "--labeled",
        "photo",
        "--target",
        "night",
        "--cache",
        cache,
    ]
    words = [*where, "--out", tmp_path / "run", "--device", "cpu", "backbone=digits-cnn", "weights=none", "size=32"]
    assert "did you mean 'stage4'?" in complaint(*words, "freeze=stagee4", "warm_epochs=1")
    assert "frozen layers stay random" in complaint(*words, "freeze=all")
    assert "frozen layers only" in complaint(*words, "views=1")
    assert not (tmp_path / "run").exists()


WHOLE = {"freeze": "none"}  # quick of then
# As computed before layers could be frozen.
EARLIER: list[tuple[dict[str, Any], str]] = [
    ({}, "bbf3851460477031"),
    ({"method": "mcd"}, "0a618266d60a63aa"),
    ({"method": "mcd+mixstyle", "preset": "fast"}, "433a95dffd9bce36"),
    ({"method": "source-only", "preset": "quick", "precision": "fp32", **WHOLE}, "3c1d6017e33cb226"),
    ({"method": "fixmatch", "preset": "quick", "kind": "none", "size": 32}, "d9cfd9f060491d53"),
]


@pytest.mark.parametrize(("given", "expected"), EARLIER)
def test_runs_without_frozen_layers_have_the_hash_they_had(given: dict[str, Any], expected: str) -> None:
    assert resolved(**given).hash == expected
    defaults = {"freeze": "none", "views": 0, "batch_norm": "train", "inference": "auto", "head": "random"}
    assert resolved(**{**given, **defaults}).hash == expected


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_precision_of_inference_changes_the_hash_only_where_it_may_change_numbers(
    is_fast: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run in bf16 every forward pass is in bf16; one in fp32 may label and evaluate in bf16."""
    monkeypatch.setattr("ssdg.engine.setup.is_fast_at_bf16", lambda device: is_fast)
    config = resolved(**SMALL, kind="none", method="source-only", precision=precision)
    assert with_precision(config, "cpu").inference == ("bf16" if is_fast else "fp32")
    is_same = with_precision(config, "cpu").hash == config.hash
    assert is_same == (precision == "bf16" or not is_fast)


def test_the_hash_depends_on_every_key_of_frozen_layers() -> None:
    base: dict[str, Any] = {"method": "source-only", "freeze": "all", "precision": "fp32", "inference": "fp32"}
    changes: list[dict[str, Any]] = [
        {},
        {"freeze": "stage4"},
        {"views": 2},
        {"batch_norm": "train"},
        {"inference": "bf16"},
    ]
    hashes = [resolved(**{**base, **change}).hash for change in changes]
    labeler = {"method": "eid", "apl": "self-training", "precision": "fp32"}
    probe = {"method": "source-only", "head": "probe", "precision": "fp32"}
    hashes += [resolved(**run, inference=name).hash for run in (labeler, probe) for name in ("fp32", "bf16")]
    assert len(set(hashes)) == len(changes) + 4


def test_adaptation_without_a_layer_to_adapt_is_refused(world: Path, cache: Path, tmp_path: Path) -> None:
    frozen = {"freeze": "all", "warm_epochs": 1, "bottleneck": 0}
    with pytest.raises(UserError, match="all layers that the method adapts are frozen; give bottleneck=256"):
        train_here(world, cache, tmp_path / "run", "mcd", **frozen)


def test_quick_trains_the_last_layers_of_pretrained_networks_on_photos_only() -> None:
    def tail(kind: DataKind = "photo", **given: Any) -> tuple[str, str, float]:
        config = resolved(kind, 96, preset="quick", **given)
        return config.freeze, config.head, config.settings.lr

    plain = ("none", "random", 0.01)
    assert tail() == tail(method="source-only") == tail(backbone="efficientnet-lite2") == ("stage5", "probe", 0.001)
    assert tail(kind="none", lr=0.01) == tail(method="l2d") == tail(method="mcd+ddaig") == plain
    assert tail(method="dann") == tail(method="osbp") == ("stage5", "probe", 0.01)  # new layers learn faster
    assert tail(backbone="resnet18") == tail(weights="none") == plain
    assert tail(freeze="stage3") == ("stage3", "probe", 0.001)
    assert tail(freeze="none") == plain
