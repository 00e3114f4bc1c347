"""Safetensors files: tensors and JSON, whole or absent, with no pickled code."""

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
from ..files import atomic_path

Meta = dict[str, Any]
MAX_HEADER = 100_000_000  # bytes, the limit of the format itself


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: Meta) -> None:
    """Write tensors and JSON as one safetensors file, atomically."""
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(ready, temporary, metadata={"meta": json.dumps(meta)})
        except SafetensorError as error:  # a full disk, which the library does not tell as an OSError
            raise OSError(errno.EIO, str(error), str(path)) from None


def load_tensors(path: Path, begin: str = "") -> tuple[dict[str, Tensor], Meta]:
    """Read what `save_tensors` wrote, the tensors whose names begin so."""
    with _open(path) as file:
        names = [name for name in file.keys() if name.startswith(begin)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}, json.loads(file.metadata()["meta"])


def fill(into: dict[str, Tensor], given: dict[str, Tensor], path: Path) -> None:
    """Copy tensors by name; keep the memory layout of the receiver. Names and shapes must fit."""
    wrong = sorted(
        {n for n in into.keys() | given.keys() if n not in into or n not in given}
        | {n for n in into.keys() & given.keys() if into[n].shape != given[n].shape}
    )
    if wrong:
        raise UserError(
            f"{path} does not fit this network ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''}); "
            "it was made with other settings: give the backbone and classes it was trained with"
        )
    with torch.no_grad():
        for name, tensor in into.items():
            tensor.copy_(given[name])


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} cannot be read ({error}); delete it and run the same command again")


def read_meta(path: Path) -> Meta | None:
    """The `meta` of a checkpoint, or None when there is no file."""
    try:
        with path.open("rb") as file:  # one look at one file, even while another process replaces it
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, MAX_HEADER)))
        return dict(json.loads(header["__metadata__"]["meta"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from None
