"""The YAML reader of settings and suite files: bounded in size, depth and nodes, with one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from .errors import UserError, one_line
from .files import open_file

MAX_BYTES = 2**18  # settings and suite files take a few thousand
MAX_DEPTH = 32
MAX_NODES = 10_000  # with every alias counted as a copy
MAX_SCALAR = 10_000  # characters
MAX_BITS = 63  # of an integer


class YamlError(ValueError):
    """Text that is not YAML, or exceeds a limit; the message is the reason on one line."""


class _Loader(yaml.SafeLoader):
    """A safe loader without integers that no setting can hold."""


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    value = yaml.SafeLoader.construct_yaml_int(loader, node)
    if value.bit_length() > MAX_BITS:
        raise YamlError(f"an integer has more than {MAX_BITS} bits")
    return value


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text; raise `YamlError` if it is invalid or exceeds a limit."""
    try:
        _check_limits(text)
        return yaml.load(text, _Loader)
    except YamlError:
        raise
    except Exception as error:  # PyYAML's constructors raise almost any exception on a malformed scalar
        raise YamlError(_reason(error)) from None


def load_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping; any problem is a `UserError`."""
    try:
        with open_file(path) as file:
            content = file.read(MAX_BYTES + 1)
        values = parse_yaml(content.decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give a YAML file of settings") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text in UTF-8; give a YAML file of settings") from None
    except YamlError as error:
        raise UserError(f"{path} cannot be read as YAML settings: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} holds no settings; it must be a mapping such as 'method: eid'")
    return values


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        line = f" on line {error.problem_mark.line + 1}" if error.problem_mark else ""
        return one_line(f"{error.problem or error.context}{line}")
    if isinstance(error, yaml.YAMLError):
        return one_line(str(error))
    return one_line(f"a value does not match its type: {type(error).__name__}: {error}")


def _check_limits(text: str) -> None:
    """Reject text whose value would be large, before any of it is built.

    The parser yields flat events, so neither deep nesting nor a few aliases of aliases cost anything here.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise YamlError(f"it is larger than {MAX_BYTES:,} bytes")
    counts = [0]  # nodes of every open collection, the outermost first
    anchors: list[str | None] = [None]
    sizes: dict[str, int] = {}  # nodes behind each anchor
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            anchors.append(event.anchor)
            if len(counts) > MAX_DEPTH + 1:
                raise YamlError(f"it is nested more than {MAX_DEPTH} levels deep")
            continue
        anchor = None
        if isinstance(event, yaml.CollectionEndEvent):
            size, anchor = counts.pop(), anchors.pop()
        elif isinstance(event, yaml.ScalarEvent):
            size, anchor = 1, event.anchor
            if len(event.value) > MAX_SCALAR:
                raise YamlError(f"a value is longer than {MAX_SCALAR:,} characters")
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in anchors:
                raise YamlError(f"the alias '{one_line(str(event.anchor))}' refers to itself")
            size = sizes.get(str(event.anchor), 1)  # an undefined alias is reported later
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        counts[-1] += size
        if counts[-1] > MAX_NODES:
            raise YamlError(f"it has more than {MAX_NODES:,} values")
