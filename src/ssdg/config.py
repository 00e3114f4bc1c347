"""The typed configuration of a run: presets, a YAML file, key=value overrides, and errors that suggest the fix."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from .data.sets import AugmentKind, DataKind, ResizeMode, Setting, WebLabel
from .errors import UserError, brief, unknown
from .files import file_name
from .methods import find_method
from .methods.api import Method, Settings, reject_bool
from .overrides import Flat as Flat
from .overrides import merge as merge
from .overrides import parse_overrides as parse_overrides

PRESETS: dict[str, str] = {
    "best": "the strongest recipe for minutes of a CPU: randomized views, self-labels, and pretrained features",
    "paper": "exactly the paper's text and values",
    "release": "the choices of the authors' release where it differs, except for its label leak",
    "fast": "the paper's networks with at most a fifth of its forward passes: short stages, warm-up and decay",
    "quick": "small networks and short schedules for two cores",
}
SMALL_CNNS = ("digits-cnn", "character-cnn")  # for 32 px, without pretrained weights
# What `fast` changes for every method.
FAST: Flat = {"batch": 64, "lr": 0.01, "lr_shape": "hump", "epochs": 6}
# What `quick` changes for every method, by kind of data.
QUICK: dict[DataKind, Flat] = {
    "none": {"backbone": "digits-cnn", "weights": "none", "batch": 64, "lr": 0.03, "epochs": 16},
    "photo": {
        "backbone": "efficientnet-lite0",
        "weights": "imagenet",
        "size": 96,
        "batch": 32,
        "lr": 0.01,
        "epochs": 5,
    },
}
# What `quick` adds if photos meet a pretrained EfficientNet-Lite: training all of it in so few steps destroys its
# features. Heads start from a probe, so they need no higher rate than the layers behind stage 5.
QUICK_TAIL: Flat = {"freeze": "stage5", "head": "probe", "lr": 0.001, "lr_shape": "hump"}
# What `best` changes on top of `quick`, for every method: the same views, trunk and schedule. Smaller photographs are
# enlarged to 192 px, because pretrained features expect objects of the size they have in ImageNet: a linear probe of
# 96 px images gains ten points (docs/results/best-office.md).
BEST: dict[DataKind, Flat] = {
    "none": {
        "backbone": "character-cnn",
        "augment": "character-views",
        "lr": 0.1,
        "lr_shape": "hump",
        "epochs": 48,
    },
    "photo": {"augment": "photo-views", "size": 192, "batch": 64, "epochs": 8},
}


class RunConfig(BaseModel):
    """Everything that decides the numbers of a run. `settings` belongs to the method."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: str = "eid"
    preset: Literal["best", "paper", "release", "fast", "quick"] = "paper"
    seed: int = Field(0, ge=0, description="seed of all randomness")
    data: str | None = Field(
        None, description="a benchmark's folder or zip, 'digits', 'web-digits'; empty for custom folders"
    )
    labeled: str = Field(description="domain (with data) or folder")
    unlabeled: tuple[str, ...] | None = Field(None, description="domains or folders; empty: all other domains")
    web: tuple[str, ...] | None = Field(None, description="crawls: folders sorted by keyword, or domains")
    web_label: WebLabel = Field("ignored", description="how the keywords of crawls are used")
    target: str | None = Field(None, description="domain or folder of the unseen domain")
    setting: Setting = Field("ssdg", description="ssdg: the target is unseen; uda: it is the unlabeled domain")
    discover_domains: int | Literal["auto"] | None = Field(
        None, description="split the unlabeled images by style into this many domains; auto chooses the number"
    )
    plugin: str | None = Field(None, description="a Python file with custom methods")
    plugin_digest: str | None = Field(None, description="digest of the plugin's content; set by ssdg")
    backbone: str = "resnet18"
    weights: str = Field("imagenet", description="none, imagenet or a file")
    warm_epochs: int = Field(0, ge=0, description="epochs on the labeled domain that every backbone starts from")
    warm_lr: float = Field(0.05, gt=0, description="learning rate of the warm start")
    warm_batch: int | None = Field(None, ge=2, description="labeled images per step of the warm start; empty: batch")
    size: int = Field(224, ge=8, le=1024, description="pixels; images are resized to size × size")
    resize: ResizeMode = Field(
        "squash",
        description="images that are not square: squash (change the aspect ratio), crop (keep the central square) or "
        "pad (fill up with the image's mean color)",
    )
    augment: AugmentKind = Field(
        "photo",
        description="changes of training images: photo (shift, mirror), none, or randomized views of photographs "
        "(photo-views) or of characters (character-views)",
    )
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    inference: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="precision of frozen trunks and of labeling and evaluation, where bf16 is used only if a sample "
        "keeps its predictions; auto: bf16 where the hardware is fast at it",
    )
    freeze: str = Field(
        "none",
        description="none, the last stage of the backbone that is not trained (stage1, stage2, ...), or all; the "
        "maps of frozen layers are computed once and stored",
    )
    views: int = Field(
        0, ge=0, le=64, description="randomized views stored next to each plain image, if layers are frozen"
    )
    batch_norm: Literal["train", "eval"] = Field(
        "train", description="statistics of trained batch norms: train (of the batch) or eval (those of the weights)"
    )
    head: Literal["random", "probe"] = Field(
        "random", description="start of linear heads: random, or a probe of the pretrained features plus random"
    )
    settings: SerializeAsAny[Settings]

    _reject_bool = field_validator("seed", "size", "warm_epochs", "warm_lr", "warm_batch", "views", mode="before")(
        reject_bool
    )

    @field_validator("discover_domains", mode="before")
    @classmethod
    def _parse_domains(cls, value: Any) -> Any:
        """Accept a number that the command line passes as text."""
        parsed = int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value) else value
        if parsed not in (None, "auto") and (isinstance(parsed, bool) or not isinstance(parsed, int) or parsed < 1):
            raise ValueError("expected auto, or a number of domains of at least 1")
        return parsed

    @model_validator(mode="after")
    def _check_warm_start(self) -> RunConfig:
        extra = list(self.settings.extra_backbones())
        if self.warm_epochs and extra:
            raise ValueError(f"warm_epochs starts all networks from one backbone; give {extra[0]} or warm_epochs")
        return self

    @model_validator(mode="after")
    def _check_frozen(self) -> RunConfig:
        method = find_method(self.method)
        if method.freeze not in (None, self.freeze):
            raise ValueError(f"method '{method.name}' trains no layer of the backbone; give freeze={method.freeze}")
        if self.views and not self._is_frozen:
            raise ValueError("views are stored for frozen layers only; give freeze=all or a stage, or views=0")
        if self._is_frozen and "none" in self._frozen_weights and not self.warm_epochs:
            raise ValueError(
                "frozen layers stay random with weights=none; give weights=imagenet or a file, or train them first "
                "with warm_epochs"
            )
        if self.head == "probe" and self.weights == "none":
            raise ValueError("head=probe needs pretrained weights; give weights=imagenet or a file, or head=random")
        if self.freeze != "none":
            self._check_needs_of_views(method)
        return self

    @property
    def _is_frozen(self) -> bool:
        """Whether any network has frozen layers."""
        nested = type(self.settings).nested_methods(dict(self.settings))
        return self.freeze != "none" or any(inner.freeze for inner in nested.values())

    @property
    def _frozen_weights(self) -> list[str]:
        """The weights that networks with frozen layers start from, if there are such networks."""
        extra = [weights or self.weights for _, weights in self.settings.extra_backbones().values()]
        return extra if extra and self.freeze == "none" else [self.weights, *extra]

    def _check_needs_of_views(self, method: Method) -> None:
        if "pixels" in method.needs:
            raise ValueError(
                f"method '{method.name}' changes the pixels of every batch, and a frozen trunk's maps are computed "
                "once; give freeze=none, or a method that changes maps, such as mixstyle"
            )
        if not self.views and {"second", "strong"} & {*method.needs}:
            raise ValueError(
                f"method '{method.name}' compares two views of an image, and only the plain one is stored; "
                "give views=1 or more"
            )

    @property
    def hash(self) -> str:
        """Hash of the configuration, the same in any process and wherever the data are.

        Only the last part of a path counts; the contents of the data are the problem's fingerprint.
        """
        values = strip_folders(self.model_dump(mode="json"), self.settings.path_fields)
        values = drop_later_defaults(values)
        has_trunk = self._is_frozen or self.head == "probe"
        has_effect = has_trunk or self.precision != "bf16"  # else all forward passes are in bf16
        if not has_effect or values["inference"] in ("auto", self.precision):  # as before the key existed
            del values["inference"]
        if self.settings.revision > 1:
            values["revision"] = self.settings.revision
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def flat(self) -> Flat:
        """Return run keys and method keys side by side, as a YAML file has them."""
        values = self.model_dump(mode="json")
        return {**{k: v for k, v in values.items() if k != "settings"}, **values["settings"]}


RUN_KEYS = tuple(name for name in RunConfig.model_fields if name != "settings")
PATH_KEYS = ("data", "labeled", "target", "weights", "plugin")  # and the lists `unlabeled` and `web`


# Settings added after version 0.1, with the values that change nothing. At these they are not part of a hash, so that
# runs started before they existed can be resumed.
LATER_DEFAULTS: Flat = {"trunk_rate": 1.0, "nesterov": False, "clean_rejected": True, "bottleneck": 0}
LATER_DEFAULTS |= {"networks": 2, "average_decay": 0.99, "first_labels": "self", "start_epochs": 0}
LATER_DEFAULTS |= {"first_share": 0.3, "last_share": 0.9, "memory": 0.5, "label_views": 0, "trust": 0.0}
LATER_DEFAULTS |= {"freeze": "none", "views": 0, "batch_norm": "train", "head": "random", "resize": "squash"}
FROZEN_BOTTLENECK = 256  # bottleneck= of adaptation methods, if all layers are frozen: what is left to adapt


def drop_later_defaults(values: Flat) -> Flat:
    """Return the settings without later additions at their defaults, nested settings included."""
    rest = {key: value for key, value in values.items() if LATER_DEFAULTS.get(key, ...) != value}
    return {key: drop_later_defaults(value) if isinstance(value, dict) else value for key, value in rest.items()}


def strip_folders(values: Flat, path_fields: tuple[str, ...] = ()) -> Flat:
    """Return the settings with only the last part of every path; `path_fields` are the method's."""
    short: Flat = {key: file_name(values[key]) for key in (*PATH_KEYS, *path_fields) if values.get(key) is not None}
    for key in ("unlabeled", "web"):
        if values.get(key) is not None:
            short[key] = [file_name(path) for path in values[key]]
    if "settings" in values:
        short["settings"] = strip_folders(values["settings"], path_fields)
    return {**values, **short}


def resolve(values: Flat, *, kind: DataKind, size: int, has_crawl: bool = False) -> RunConfig:
    """Apply defaults, then the preset, then `values`. `kind`, `size` and `has_crawl` describe the data."""
    method, preset = check_names(values)
    common, sections = preset_parts(preset, kind, values, method)
    resolved: Flat = {"augment": kind, "size": size}
    nested = nested_methods(method, sections, values)
    resolved = merge(resolved, _spread(common, nested))
    for name in sections:
        resolved = merge(resolved, method.presets.get(name, {}))
        for group, inner in nested.items():
            own = {key: value for key, value in inner.presets.get(name, {}).items() if key not in RUN_KEYS}
            resolved = merge(resolved, {group: own})
    for group in method.settings.nested_methods({}).keys() - nested.keys():
        resolved.pop(group, None)  # what a preset sets for a group that is not used
    if has_crawl:
        resolved = merge(resolved, method.settings.crawl_defaults)
        resolved = merge(resolved, method.presets.get(f"{preset} crawl", {}))
    return _validate(with_frozen_defaults(merge(resolved, values), method), method)


def check_names(values: Flat) -> tuple[Method, str]:
    """Return the method and the preset; reject an unknown name of these or of a setting."""
    method = find_method(str(values.get("method", "eid")))
    preset = str(values.get("preset", "paper"))
    if preset not in PRESETS:
        raise unknown("preset", preset, list(PRESETS))
    for key in values:
        check_key(key, values, method)
    return method, preset


def preset_parts(preset: str, kind: DataKind, values: Flat, method: Method) -> tuple[Flat, list[str]]:
    """Return what a preset sets for every method, and the names of what each method sets for it, in order.

    `best` builds on `quick`.
    """
    base = "quick" if preset == "best" else preset
    common: Flat = {"fast": FAST, "quick": QUICK[kind]}.get(base, {})
    sections = [base, f"{base} {kind}"]
    if base == "quick" and keeps_features({**common, **values}, method):
        common, sections = {**common, **QUICK_TAIL}, [*sections, "quick tail"]
    if preset == "best":
        common = {**common, **BEST[kind]}
        is_random = {**common, **values}["weights"] == "none"
        sections = [*sections, "best", "best random" if is_random else "best pretrained", f"best {kind}"]
    return common, sections


def nested_methods(method: Method, sections: Iterable[str], values: Flat) -> Mapping[str, Method]:
    """Return the methods whose settings are groups of this method's, given its presets and the values set so far."""
    chosen: Flat = {}
    for name in sections:
        chosen = merge(chosen, method.presets.get(name, {}))
    return method.settings.nested_methods(merge(chosen, values))


def keeps_features(values: Flat, method: Method) -> bool:
    """Return whether `quick` trains only the last layers: of a pretrained EfficientNet-Lite, if the method can.

    `freeze=none` trains the whole network instead, with random heads at a higher rate.
    """
    if values.get("freeze") == "none":
        return False
    is_lite = str(values.get("backbone")).startswith("efficientnet-lite") and values.get("weights") != "none"
    return is_lite and method.freeze is None and "pixels" not in method.needs


def with_frozen_defaults(values: Flat, method: Method) -> Flat:
    """Add the defaults that depend on `freeze`: views, batch-norm statistics, and a layer to adapt."""
    nested = method.settings.nested_methods(values)
    if method.freeze is not None:
        values = {"freeze": method.freeze, **values}
    is_frozen = values.get("freeze", "none") != "none"
    if not is_frozen and not any(inner.freeze for inner in nested.values()):
        return values
    values = {"views": method.default_views, **values}
    if is_frozen:
        values = {"batch_norm": "eval", **values}
    if values.get("freeze") == "all":
        for group, inner in nested.items():
            values[group] = with_bottleneck(values.get(group, {}), inner)
        values = with_bottleneck(values, method)
    return values


def with_bottleneck(values: Flat, method: Method) -> Flat:
    """Add a trained layer behind a backbone that is frozen as a whole, if the method has such a setting."""
    return {"bottleneck": FROZEN_BOTTLENECK, **values} if "bottleneck" in method.settings.model_fields else values


def check_key(key: str, values: Flat, method: Method) -> None:
    """Reject a key that neither the run nor the method has."""
    names = [*RUN_KEYS, *method.settings.model_fields]
    if key not in names:
        raise unknown(f"setting of method '{method.name}'", str(key), sorted(names))
    if key in method.settings.nested_methods(values) and not isinstance(values[key], Mapping):
        raise UserError(f"{key}={brief(values[key])} is not a group of settings; write for example {key}.epochs=5")


def _spread(values: Flat, groups: Iterable[str]) -> Flat:
    """Apply what a preset sets for every method to nested settings, too."""
    common = {k: v for k, v in values.items() if k in Settings.model_fields}
    return {**values, **dict.fromkeys(groups, common)}


def _validate(values: Flat, method: Method) -> RunConfig:
    run = {k: v for k, v in values.items() if k in RUN_KEYS}
    settings = {k: v for k, v in values.items() if k not in RUN_KEYS}
    try:
        return RunConfig(**run, settings=method.settings.model_validate(settings))
    except ValidationError as error:
        raise UserError(_error_message(error, settings, method)) from None


def _error_message(error: ValidationError, settings: Flat, method: Method) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":  # unknown keys of the run and the method are rejected before
        names = nested_keys(method, settings)
        return str(unknown("setting", key, sorted(names)))
    if first["type"] == "missing":
        return f"'{key}' is missing; give --{key}"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{key}={brief(first['input'])} is not allowed: {reason}" if key else reason


def nested_keys(method: Method, values: Flat) -> list[str]:
    """Return the keys of all nested settings as `group.key`."""
    nested = method.settings.nested_methods(values).items()
    return [f"{group}.{key}" for group, inner in nested for key in inner.settings.model_fields]
