"""Settings as nested mappings: merging them, and parsing `key=value` arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .bounded_yaml import MAX_DEPTH, YamlError, parse_yaml
from .errors import UserError, truncate

Flat = dict[str, Any]  # settings of the run and the method side by side, as a YAML file has them


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Flat:
    """Return `over` on top of `base`, nested mappings included."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def parse_overrides(args: Iterable[str]) -> Flat:
    """Parse `a.b=1` arguments into nested mappings; values are YAML."""
    values: Flat = {}
    for arg in args:
        key, equals, text = arg.partition("=")
        if not equals or not key or key.count(".") >= MAX_DEPTH:
            raise UserError(f"'{truncate(arg)}' is not a setting; write key=value, for example epochs=5")
        try:
            value = parse_yaml(text)
        except YamlError as error:
            raise UserError(f"the value of '{truncate(arg)}' is not valid YAML ({error}); quote it") from None
        for part in reversed(key.split(".")):
            value = {part: value}
        values = merge(values, value)
    return values
