"""Safetensors files: tensors and JSON metadata, written atomically, with no pickled code."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import UserError
from ..files import atomic_path, open_file, parse_json, require_regular

Meta = dict[str, Any]
MAX_HEADER = 100_000_000  # bytes, the limit of the format itself


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: Meta) -> None:
    """Write tensors and JSON as one safetensors file, atomically."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata={"meta": json.dumps(meta)})
        except SafetensorError as error:  # a full disk, which the library does not raise as an OSError
            raise OSError(errno.EIO, str(error), str(path)) from None


def load_tensors(path: Path, prefix: str = "") -> tuple[dict[str, Tensor], Meta]:
    """Read a file of `save_tensors`: the tensors whose names start with `prefix`, and the JSON."""
    with _open(path) as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}, parse_json(file.metadata()["meta"])


def copy_tensors(source: dict[str, Tensor], destination: dict[str, Tensor], path: Path) -> None:
    """Copy tensors by name, in the memory layout of the destination; names and shapes must match."""
    wrong = sorted(
        name
        for name in destination.keys() | source.keys()
        if name not in destination or name not in source or destination[name].shape != source[name].shape
    )
    if wrong:
        raise UserError(
            f"{path} does not fit this network ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''}); "
            "it was saved with different settings; give the backbone and classes it was trained with"
        )
    with torch.no_grad():
        for name, tensor in destination.items():
            tensor.copy_(source[name])


def read_meta(path: Path) -> Meta | None:
    """Return the `meta` of a checkpoint, or None if there is no file."""
    try:
        with open_file(path) as file:  # one open file, even while another process replaces it
            length = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(min(length, MAX_HEADER)))
        return dict(parse_json(header["__metadata__"]["meta"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable_error(path, error) from None


def _open(path: Path) -> Any:
    try:
        return safe_open(require_regular(path), framework="pt")
    except (SafetensorError, OSError) as error:
        raise _unreadable_error(path, error) from None


def _unreadable_error(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} cannot be read ({error}); delete it and run the same command again")
