"""The typed configuration of a run: presets, a YAML file, key=value overrides, refusals that repair themselves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from .data.sets import Setting, WebLabel
from .errors import UserError, unknown
from .methods import find_method
from .methods.api import Method, Settings, no_switch

Kind = Literal["photo", "none"]  # the augmentation of the data: photos are shifted and flipped, digits are not
Flat = dict[str, Any]

PRESETS: dict[str, str] = {
    "paper": "exactly the paper's text and values",
    "release": "the choices of the authors' release where it differs, its label leak excepted",
    "fast": "the paper's networks with at most a fifth of its network passes: short stages, rates that rise and fall",
    "quick": "small networks and short schedules for two cores",
}
# What `fast` changes for every method.
FAST: Flat = {"batch": 64, "lr": 0.01, "lr_shape": "hump", "epochs": 6}
# What `quick` changes for every method, by the kind of data.
QUICK: dict[Kind, Flat] = {
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


class RunConfig(BaseModel):
    """All that decides a run's numbers. `settings` belongs to the method."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: str = "eid"
    preset: Literal["paper", "release", "fast", "quick"] = "paper"
    seed: int = Field(0, ge=0, description="of everything random")
    data: str | None = Field(
        None, description="a benchmark's folder or zip, 'digits', 'web-digits'; empty for own folders"
    )
    labeled: str = Field(description="domain (with data) or folder")
    unlabeled: tuple[str, ...] | None = Field(None, description="domains or folders; empty: all the others")
    web: tuple[str, ...] | None = Field(None, description="crawls: folders sorted by keyword, or domains")
    web_label: WebLabel = Field("ignored", description="what becomes of the keywords of crawls")
    target: str | None = Field(None, description="domain or folder of the unseen domain")
    setting: Setting = Field("ssdg", description="ssdg: the target is never seen; uda: it is the unlabeled domain")
    discover_domains: int | Literal["auto"] | None = Field(
        None, description="split the unlabeled images by style into so many domains; auto finds how many"
    )
    plugin: str | None = Field(None, description="a Python file with methods of your own")
    plugin_digest: str | None = Field(None, description="of the plugin's content; set by ssdg")
    backbone: str = "resnet18"
    weights: str = Field("imagenet", description="none, imagenet or a file")
    warm_epochs: int = Field(0, ge=0, description="epochs on the labeled domain that every backbone starts from")
    warm_lr: float = Field(0.05, gt=0, description="learning rate of the warm start")
    warm_batch: int | None = Field(None, ge=2, description="labeled images per step of the warm start; empty: batch")
    size: int = Field(224, ge=8, le=1024, description="pixels; images are resized to size × size")
    augment: Kind = "photo"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    settings: SerializeAsAny[Settings]

    _numbers = field_validator("seed", "size", "warm_epochs", "warm_lr", "warm_batch", mode="before")(no_switch)

    @field_validator("discover_domains", mode="before")
    @classmethod
    def _domains(cls, given: Any) -> Any:
        """A number may come as a word of the command line."""
        value = int(given) if isinstance(given, str) and re.fullmatch(r"-?\d{1,9}", given) else given
        if value not in (None, "auto") and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError("give auto, or a number of domains from 1 on")
        return value

    @model_validator(mode="after")
    def _one_backbone_to_warm(self) -> RunConfig:
        if self.warm_epochs and getattr(self.settings, "apl_backbone", None) is not None:
            raise ValueError("warm_epochs starts all networks from one backbone; give apl_backbone or warm_epochs")
        return self

    @property
    def hash(self) -> str:
        """Equal for equal configurations, in any process and wherever the data lie (their contents are the
        problem's fingerprint): of a path only the last part counts.
        """
        text = json.dumps(last_parts(self.model_dump(mode="json")), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def flat(self) -> Flat:
        """Run keys and method keys side by side, as a YAML file holds them."""
        values = self.model_dump(mode="json")
        return {**{k: v for k, v in values.items() if k != "settings"}, **values["settings"]}


def last_parts(values: Flat) -> Flat:
    """The settings with no more than the last part of every path, the method's own included."""
    paths = ("data", "labeled", "target", "weights", "apl_weights", "plugin")
    short: Flat = {key: last_part(values[key]) for key in paths if values.get(key) is not None}
    for key in ("unlabeled", "web"):
        if values.get(key) is not None:
            short[key] = [last_part(path) for path in values[key]]
    if "settings" in values:
        short["settings"] = last_parts(values["settings"])
    return {**values, **short}


def last_part(path: str) -> str:
    """The name of a file or folder without where it lies."""
    return Path(path).name


RUN_KEYS = tuple(name for name in RunConfig.model_fields if name != "settings")


WEB_CLEAN_RATE = 0.6  # of crawls, in the paper


def resolve(given: Flat, *, kind: Kind, size: int, has_crawl: bool = False) -> RunConfig:
    """Defaults, then the preset, then what was given. `kind`, `size` and `has_crawl` are the data's own."""
    method = find_method(str(given.get("method", "eid")))
    preset = str(given.get("preset", "paper"))
    if preset not in PRESETS:
        raise unknown("preset", preset, list(PRESETS))
    for key in given:
        check_key(key, given[key], method)
    values: Flat = {"augment": kind, "size": size}
    values = merge(values, _spread({"fast": FAST, "quick": QUICK[kind]}.get(preset, {}), method))
    for name in (preset, f"{preset} {kind}"):
        values = merge(values, method.presets.get(name, {}))
        if "apl" in method.settings.model_fields:  # the labeler's own presets: rates at which it is stable
            values = merge(values, {"labeler": _labeler_method(method, given).presets.get(name, {})})
    if has_crawl and "clean_rate" in method.settings.model_fields:
        values["clean_rate"] = WEB_CLEAN_RATE
    return _validated(merge(values, given), method)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Flat:
    """`over` on top of `base`, nested mappings included."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def parse_overrides(words: Iterable[str]) -> Flat:
    """`a.b=1` words as nested mappings; values are YAML."""
    values: Flat = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise UserError(f"'{word}' is not a setting; write key=value, for example epochs=5")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"the value of '{word}' is not valid YAML; quote it") from None
        for part in reversed(key.split(".")):
            value = {part: value}
        values = merge(values, value)
    return values


def read_yaml(path: Path) -> Flat:
    """The settings in a YAML file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).replace("\n", " ")
        raise UserError(f"{path} cannot be read as YAML settings: {reason}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} holds no settings; it must be a mapping such as 'method: eid'")
    return values


def check_key(key: str, value: Any, method: Method) -> None:
    """Refuse a key that neither the run nor the method has."""
    names = [*RUN_KEYS, *method.settings.model_fields]
    if key not in names:
        raise unknown(f"setting of method '{method.name}'", str(key), sorted(names))
    if key == "labeler" and not isinstance(value, Mapping):
        raise UserError(f"labeler={value} is not a group of settings; write for example labeler.epochs=5")


def _spread(values: Flat, method: Method) -> Flat:
    """Give a labeler inside the method the same batch and rate."""
    if "labeler" not in method.settings.model_fields:
        return values
    inner = {k: v for k, v in values.items() if k in Settings.model_fields}
    return {**values, "labeler": inner}


def _validated(values: Flat, method: Method) -> RunConfig:
    run = {k: v for k, v in values.items() if k in RUN_KEYS}
    own = {k: v for k, v in values.items() if k not in RUN_KEYS}
    try:
        return RunConfig(**run, settings=method.settings.model_validate(own))
    except ValidationError as error:
        raise UserError(_sentence(error, own, method)) from None


def _sentence(error: ValidationError, own: Flat, method: Method) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":  # unknown keys of the run and the method are refused before
        names = sorted(labeler_settings(method, own).model_fields)
        return str(unknown("setting", key, [f"labeler.{name}" for name in names]))
    if first["type"] == "missing":
        return f"'{key}' is missing; give --{key}"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{key}={first['input']!r} is not allowed: {reason}" if key else reason


def labeler_settings(method: Method, own: Flat) -> type[Settings]:
    """The settings that stand in the group `labeler`: of one method in A+B, of the method named by `apl` in eid."""
    kind: Any = method.settings.model_fields["labeler"].annotation
    if isinstance(kind, type) and issubclass(kind, Settings):
        return kind
    return _labeler_method(method, own).settings


def _labeler_method(method: Method, given: Flat) -> Method:
    """The method that `apl` names."""
    return find_method(str(given.get("apl", method.settings.model_fields["apl"].default)), family="DA")
