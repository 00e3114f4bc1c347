"""Rewrite the tables of settings.md from the code: `python docs/make_settings.py`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ssdg.config import PRESETS, RunConfig, resolve
from ssdg.methods import METHODS
from ssdg.methods.api import Method, Settings

PAGE = Path(__file__).with_name("settings.md")
SIZES = {"photo": 224, "none": 32}  # image sizes of photos and digits in the catalog
FIRST = "eid"
# Descriptions that the code lacks.
NOTES = {
    "method": "method to train; `ssdg methods` lists them",
    "preset": "source of the other defaults",
    "backbone": "`resnet18`, `resnet34`, `resnet50`, `resnet101`, `digits-cnn`, `efficientnet-lite0`, "
    "`efficientnet-lite1`, `efficientnet-lite2`, `timm:NAME`, `hf:NAME`",
    "precision": "`auto`: bf16 if the hardware is fast at it and the backbone benefits, else fp32",
    "momentum": "momentum of SGD",
    "weight_decay": "weight decay of SGD",
}
# Defaults that depend on the data.
DATA_DEFAULTS = {"size": "from the data: 224, digits 32", "augment": "from the data: photo, digits none"}
UNUSED = object()  # marks settings of a group that a preset does not use
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def page(text: str) -> str:
    """Return the page with every table between markers regenerated."""
    for name, content in tables().items():
        start, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{PAGE.name} has no markers {start} ... {end}")
        text = pattern.sub(f"{start}\n{content}\n{end}".replace("\\", r"\\"), text)
    return text


def tables() -> dict[str, str]:
    """Return every table by the name of its markers."""
    methods = sorted(METHODS.values(), key=lambda m: (m.name != FIRST, m.name))
    plain = [m for m in methods if m.family != "DA+DG"]
    by_name = {"run": fields_table(RunConfig, skip={"settings", "plugin_digest"}), "presets": preset_lines()}
    by_name["common"] = fields_table(Settings)
    by_name["methods"] = "\n\n".join(f"### `{m.name}`\n\n{m.summary}.\n\n{own_table(m)}" for m in plain)
    by_name["changes"] = "\n\n".join(f"### `{m.name}`\n\n{changes_table(m)}" for m in methods)
    return by_name


def own_table(method: Method) -> str:
    """Return the settings that the method adds, or for which it has another default."""
    same = {
        name
        for name, field in Settings.model_fields.items()
        if method.settings.model_fields[name].default == field.default
    }
    own = [name for name in method.settings.model_fields if name not in same]
    return fields_table(method.settings, skip=same) if own else "No additional settings."


def preset_lines() -> str:
    """Return one line per preset."""
    return "\n".join(f"- `{name}`: {summary}." for name, summary in PRESETS.items())


def fields_table(model: type[BaseModel], skip: frozenset[str] | set[str] = frozenset()) -> str:
    """Return name, default, range and description of every field."""
    rows = [
        (f"`{name}`", DATA_DEFAULTS.get(name, default_of(field)), range_of(field), description_of(name, field))
        for name, field in model.model_fields.items()
        if name not in skip
    ]
    return table(("Key", "Default", "Allowed", "Description"), rows)


def default_of(field: FieldInfo) -> str:
    """Return the default as written in YAML, or that the field is required."""
    if field.default is PydanticUndefined and field.default_factory is None:
        return "required"
    if field.default_factory is not None:
        return "its defaults"
    return format_value(field.default)


def range_of(field: FieldInfo) -> str:
    """Return types, choices and limits."""
    limits = [f"{SIGNS[key]} {getattr(m, key)}" for m in field.metadata for key in SIGNS if hasattr(m, key)]
    return ", ".join([type_of(field.annotation), *limits])


def type_of(kind: Any) -> str:
    """Describe a type in words."""
    if get_origin(kind) is Literal:
        return " / ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join("empty" if part is NoneType else type_of(part) for part in get_args(kind))
    if get_origin(kind) is tuple:
        return "list"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "group"
    return {int: "integer", float: "number", bool: "true / false", str: "string", Any: "group"}[kind]


def description_of(name: str, field: FieldInfo) -> str:
    """Return the description in the code, or the note here."""
    return field.description or NOTES[name]


def changes_table(method: Method) -> str:
    """Return what the other presets change relative to `paper`."""
    photos = ["paper", *(preset for preset in PRESETS if preset != "paper")]
    columns = [(preset, "photo") for preset in photos] + [("quick", "none"), ("best", "none")]
    values = [resolved(method, preset, kind) for preset, kind in columns]
    digits = resolved(method, "paper", "none")
    keys = dict.fromkeys(key for value in values for key in value if key != "preset")
    rows = []
    for key in keys:
        cells = [value.get(key, UNUSED) for value in values]
        is_changed = len({str(cell) for cell in cells[:-2]}) > 1 or any(c != digits.get(key) for c in cells[-2:])
        if is_changed:
            rows.append((f"`{key}`", *(format_value(cell) if cell is not UNUSED else "-" for cell in cells)))
    heads = [f"`{preset}`, {'digits' if kind == 'none' else 'photos'}" for preset, kind in columns]
    return table(("Key", *heads), rows)


def resolved(method: Method, preset: str, kind: Any) -> dict[str, Any]:
    """Return all settings of a run on this kind of data, those of the labeler as `labeler.key`."""
    settings = {"method": method.name, "preset": preset, "labeled": "x"}
    flat = resolve(settings, kind=kind, size=SIZES[kind]).flat()
    inner = flat.pop("labeler", {})
    return flat | {f"labeler.{key}": value for key, value in inner.items()}


def format_value(value: Any) -> str:
    """Format a value as in YAML."""
    if value is None:
        return "empty"
    value = list(value) if isinstance(value, tuple) else value
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
