"""Settings: presets hold the values they promise, files and words mean what they say."""

from __future__ import annotations

from typing import Any

import pytest

from ssdg.config import PRESETS, DataKind, merge, parse_overrides, resolve
from ssdg.errors import UserError
from ssdg.methods import METHODS

BASE = {"labeled": "photo", "target": "sketch"}


def resolved(kind: DataKind = "photo", size: int = 224, **given: Any):  # type: ignore[no-untyped-def]
    return resolve({**BASE, **given}, kind=kind, size=size)


def test_preset_paper_is_the_papers_section_implementation_details() -> None:
    config = resolved()
    assert (config.backbone, config.weights, config.size, config.augment) == ("resnet18", "imagenet", 224, "photo")
    told = config.flat()
    paper = {"apl": "mcd", "mix": "mixup", "cycles": 3, "clean_rate": 0.4, "delta": 0.5, "style_alpha": 0.5}
    shared = {"batch": 128, "lr": 1e-3, "lr_shape": "fixed", "weight_decay": 5e-4, "momentum": 0.9}
    shared |= {"trunk_rate": 1.0, "nesterov": False}
    assert {k: told[k] for k in paper | shared} == paper | shared
    assert told["epochs"] == 15
    assert told["labeler"] == {**shared, "epochs": 30, "iterations": None, "inner_steps": 4, "bottleneck": 0}
    assert (told["dual"], told["style"], told["diversity"], told["warm_epochs"]) == (True, True, True, 0)


def test_digits_are_small_and_not_augmented() -> None:
    config = resolved(kind="none", size=32)
    assert (config.size, config.augment, config.backbone) == (32, "none", "resnet18")


def test_preset_release_differs_where_the_release_does() -> None:
    paper, release = resolved().flat(), resolved(preset="release").flat()
    changed = {k: release[k] for k in release if release[k] != paper[k]}
    assert changed == {
        "preset": "release",
        "union": True,
        "any_pair": True,
        "clean_choice": "per-class",
        "first_only": True,
        "style_alpha": 0.1,
        "style_probability": 0.5,
        "style_detach": True,
    }


def test_what_is_given_beats_the_preset_key_by_key() -> None:
    told = resolved(preset="quick", kind="none", size=32, labeler={"epochs": 7}).flat()
    assert told["labeler"]["epochs"] == 7
    assert told["labeler"]["inner_steps"] == 1  # the preset's


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["photo", "none"])
def test_a_written_configuration_resolves_to_itself(method: str, preset: str, kind: DataKind) -> None:
    warm = {"warm_epochs": 1} if METHODS[method].freeze else {}  # digits-cnn has no trained layers to freeze
    config = resolved(kind=kind, size=32, method=method, preset=preset, **warm)
    again = resolve(config.flat(), kind="photo", size=224)
    assert again == config
    assert again.hash == config.hash


def test_hash_depends_on_settings_and_not_on_where_the_data_lie() -> None:
    here, there = (resolved(data=f"/{disk}/pacs").hash for disk in ("a", "b"))
    assert here == there
    assert here != resolved(data="/a/office").hash
    assert here != resolved(data="/a/pacs", seed=1).hash
    assert here != resolved(data="/a/pacs", labeler={"lr": 0.5}).hash


def test_words_become_nested_settings() -> None:
    words = ["labeler.epochs=3", "labeler.lr=1e-2", "style=false", "mix=x+u"]
    told = resolved(**parse_overrides(words)).flat()
    assert (told["labeler"]["epochs"], told["labeler"]["lr"]) == (3, 0.01)
    assert (told["style"], told["mix"]) == (False, "x+u")


def test_merge_goes_into_groups() -> None:
    assert merge({"a": 1, "b": {"c": 1, "d": 1}}, {"b": {"c": 2}}) == {"a": 1, "b": {"c": 2, "d": 1}}


def test_a_warm_start_needs_one_backbone() -> None:
    with pytest.raises(UserError, match="apl_backbone or warm_epochs"):
        resolved(warm_epochs=2, apl_backbone="resnet50")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["photo", "none"])
@pytest.mark.parametrize("first_labels", ["self", "mcd", "self-training"])
def test_networks_that_label_themselves_resolve_in_every_preset(
    preset: str, kind: DataKind, first_labels: str
) -> None:
    """What the presets set for labelers goes to that of the first labels, or nowhere."""
    given: dict[str, Any] = {"preset": preset, "apl": "self", "first_labels": first_labels}
    warm = {"warm_epochs": 1} if first_labels == "self-training" else {}  # digits-cnn has no trained layers to freeze
    config = resolved(kind=kind, size=32, **given, **warm)
    fields = config.settings.model_dump()
    if first_labels == "self":
        assert fields["labeler"] == {}
    else:
        assert type(config.settings.nested()["labeler"]) is METHODS[first_labels].settings
        usual = resolved(kind=kind, size=32, preset=preset, apl=first_labels, **warm)
        assert fields["labeler"] == usual.settings.model_dump()["labeler"]
    again = resolve(config.flat(), kind="photo", size=224)
    assert again == config
    assert again.hash == config.hash


@pytest.mark.parametrize("key", ["labeler.epochs=3", "labeler.nonsense=3", "labeler=5", "labeler=", "labeler=[]"])
@pytest.mark.parametrize("preset", PRESETS)
def test_networks_that_label_themselves_have_no_labeler_to_set(key: str, preset: str) -> None:
    with pytest.raises(UserError, match="the networks label themselves and labeler has no effect") as refusal:
        resolved(preset=preset, apl="self", first_labels="self", **parse_overrides([key]))
    assert "\n" not in str(refusal.value)
    assert "first_labels=mcd" in str(refusal.value)


@pytest.mark.parametrize("key", ["apl_backbone", "apl_weights"])
def test_networks_that_label_themselves_have_no_backbone_of_labelers(key: str) -> None:
    with pytest.raises(UserError, match=f"the networks label themselves and {key} has no effect"):
        resolved(apl="self", **{key: "resnet50"})
    assert resolved(apl="self", first_labels="mcd", **{key: "resnet50"}).flat()[key] == "resnet50"


def test_settings_of_the_first_labels_are_those_of_their_method() -> None:
    told = resolved(apl="self", first_labels="self-training", labeler={"rates": [0.5]}).flat()
    assert told["labeler"]["rates"] == [0.5]
    with pytest.raises(UserError, match=r"did you mean 'labeler\.rates'"):
        resolved(apl="self", first_labels="self-training", labeler={"rate": [0.5]})


@pytest.mark.parametrize("key", ["apl", "first_labels"])
@pytest.mark.parametrize("kind", ["photo", "none"])
def test_an_unknown_labeler_is_told_all_choices(key: str, kind: DataKind) -> None:
    for given in ({key: "nonsense"}, {"apl": "self", key: "nonsense"}):
        with pytest.raises(UserError, match=r"unknown labeling method 'nonsense'.* osbp, self, self-training$"):
            resolved(kind=kind, **given)
    with pytest.raises(UserError, match="did you mean 'self'"):
        resolved(**{"apl": "self", key: "selv"})


@pytest.mark.parametrize(
    "values",
    [
        {"networks": 0},
        {"networks": 3},
        {"average_decay": 1},
        {"first_share": 0},
        {"last_share": 1.1},
        {"memory": 1},
        {"memory": -0.1},
        {"label_views": 65},
        {"trust": -0.1},
        {"start_epochs": -1},
    ],
)
def test_settings_of_networks_that_label_themselves_have_ranges(values: dict[str, Any]) -> None:
    (key,) = values
    with pytest.raises(UserError, match=f"^{key}=.* is not allowed"):
        resolved(apl="self", **values)


# As computed before networks could label themselves.
EARLIER: list[tuple[dict[str, Any], str]] = [
    ({"preset": "quick", "kind": "none", "size": 32}, "e941ef99b627fe4f"),
    ({"preset": "quick", "size": 96, "views": 4}, "a9dee37602fe539c"),
    ({"preset": "fast", "apl": "self-training", "views": 4}, "cc8d79d291b438c5"),
    ({"preset": "release", "apl_backbone": "resnet50"}, "635231a90aa40e32"),
    ({"apl": "osbp", "clean_rejected": False, "labeler": {"lr": 0.5}}, "0f638a4f2f7f5b68"),
]


@pytest.mark.parametrize(("given", "expected"), EARLIER)
def test_runs_with_labelers_have_the_hash_they_had(given: dict[str, Any], expected: str) -> None:
    assert resolved(**given).hash == expected


def test_the_hash_depends_on_every_setting_of_networks_that_label_themselves() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"networks": 1},
        {"average_decay": 0.9},
        {"first_labels": "mcd"},
        {"start_epochs": 1},
        {"first_share": 0.2},
        {"last_share": 0.8},
        {"memory": 0.0},
        {"label_views": 4},
        {"trust": 1.0},
    ]
    assert len({resolved(apl="self", **change).hash for change in changes} | {resolved().hash}) == len(changes) + 1


def test_a_dry_run_of_networks_that_label_themselves_is_short() -> None:
    """It reaches every phase: the start if there is one, and two cycles."""
    for start_epochs, expected in ((0, 0), (1, 1), (12, 1)):
        settings = resolved(apl="self", start_epochs=start_epochs).settings.shortened(batch=4, iterations=2)
        short = settings.model_dump()
        assert (short["start_epochs"], short["epochs"], short["cycles"]) == (expected, 1, 2)


# Preset `best`.


def test_best_for_photographs_has_pretrained_features_and_views() -> None:
    config = resolved(preset="best")
    assert (config.backbone, config.weights, config.freeze, config.size) == (
        "efficientnet-lite0",
        "imagenet",
        "stage5",
        192,
    )
    assert (config.augment, config.batch_norm) == ("photo-views", "eval")
    assert config.views > 0
    values = config.flat()
    assert (values["apl"], values["first_labels"], values["networks"]) == ("self", "self-training", 1)


def test_best_for_small_images_starts_on_the_labeled_domain() -> None:
    config = resolved(preset="best", kind="none", size=32)
    assert (config.backbone, config.weights, config.freeze, config.size) == ("character-cnn", "none", "none", 32)
    assert (config.augment, config.views, config.warm_epochs) == ("character-views", 0, 0)
    values = config.flat()
    assert (values["apl"], values["first_labels"], values["networks"]) == ("self", "self", 1)
    assert (values["diversity"], values["style"], values["dual"]) == (True, False, False)
    assert values["start_epochs"] > 0
    assert values["trust"] > 0


def test_best_for_photographs_without_weights_needs_no_probe() -> None:
    """Its first labels are its own, as for small images; the rest is for photographs."""
    config = resolved(preset="best", weights="none")
    assert (config.freeze, config.views, config.head) == ("none", 0, "random")
    assert (config.augment, config.size, config.backbone) == ("photo-views", 192, "efficientnet-lite0")
    values, small = config.flat(), resolved(preset="best", kind="none", size=32).flat()
    assert (values["first_labels"], values["labeler"]) == ("self", {})
    assert {key: values[key] for key in ("start_epochs", "cycles", "trust")} == {
        key: small[key] for key in ("start_epochs", "cycles", "trust")
    }
    assert (values["lr"], small["lr"]) == (0.03, 0.1)  # the small network has normalization layers


@pytest.mark.parametrize("kind", ["photo", "none"])
@pytest.mark.parametrize(
    "word",
    ["augment=photo", "size=64", "batch=7", "lr=0.5", "epochs=2", "cycles=1", "trust=0.5", "networks=2", "dual=true"],
)
def test_what_is_given_beats_preset_best(kind: DataKind, word: str) -> None:
    ((key, value),) = parse_overrides([word]).items()
    assert resolved(preset="best", kind=kind).flat()[key] != value
    values = resolve({**BASE, "preset": "best", key: value}, kind=kind, size=224).flat()
    assert values[key] == value


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("kind", ["photo", "none"])
def test_best_gives_every_method_the_same_views(kind: DataKind, method: str) -> None:
    warm = {"warm_epochs": 1} if METHODS[method].freeze and kind == "none" else {}
    config = resolved(preset="best", kind=kind, size=32, method=method, **warm)
    assert config.augment == {"photo": "photo-views", "none": "character-views"}[kind]
    assert config.size == {"photo": 192, "none": 32}[kind]
    for settings in config.settings.nested().values():
        assert settings.batch == config.settings.batch


def test_best_enlarges_small_photographs() -> None:
    assert resolve({**BASE, "preset": "best"}, kind="photo", size=96).size == 192
    assert resolve({**BASE, "preset": "best"}, kind="none", size=32).size == 32


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"preset": "quick", "method": "probe"}, "b15b725ae15b7a38"),
        ({"preset": "quick", "kind": "none", "size": 32, "method": "mcd"}, "3ceeb2b5d0b47f3f"),
        ({"preset": "fast", "method": "mixstyle"}, "eb5386eb6978d957"),
    ],
)
def test_preset_best_left_the_hashes_of_others_as_they_were(values: dict[str, Any], expected: str) -> None:
    assert resolved(**values).hash == expected
