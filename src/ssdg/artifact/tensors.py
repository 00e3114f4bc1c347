"""Safetensors files: tensors and JSON metadata, written atomically, with checksums and no pickled code."""

from __future__ import annotations

import errno
import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import UserError, one_line
from ..files import atomic_path, open_file, parse_json, require_regular

Meta = dict[str, Any]
MAX_HEADER = 100_000_000  # bytes, the limit of the format itself
CHECKSUMS = "crc32"  # key in the JSON: a checksum by tensor, and that of the rest of the JSON under ""


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: Meta) -> None:
    """Write tensors and JSON as one safetensors file, atomically."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    checksums = {name: checksum(tensor) for name, tensor in contiguous.items()}
    meta = {**meta, CHECKSUMS: {**checksums, "": _text_checksum(meta)}}
    with atomic_path(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata={"meta": json.dumps(meta)})
        except SafetensorError as error:  # a full disk, which the library does not raise as an OSError
            raise OSError(errno.EIO, str(error), str(path)) from None


def load_tensors(path: Path, prefix: str = "") -> tuple[dict[str, Tensor], Meta]:
    """Read a file of `save_tensors`: the tensors whose names start with `prefix`, and the JSON.

    A byte that changed since is an error; files of earlier versions have no checksums.
    """
    with _open(path) as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        tensors = {name: file.get_tensor(name) for name in names}
        try:
            meta, checksums = split_meta((file.metadata() or {})["meta"])
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable_error(path, error) from None
    if name := changed_tensor(tensors, checksums):
        raise _unreadable_error(path, f"the checksum of {name} does not match")
    return tensors, meta


def checksum(tensor: Tensor) -> int:
    """Return a checksum of the values, type and shape of a contiguous tensor on the CPU."""
    head = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, zlib.crc32(head))


def changed_tensor(tensors: dict[str, Tensor], checksums: dict[str, int]) -> str:
    """Return the name of the first tensor that differs from its checksum, or "" if none does."""
    changed = (name for name, tensor in tensors.items() if checksums and checksums.get(name) != checksum(tensor))
    return next(changed, "")


def _text_checksum(meta: Meta) -> int:
    return zlib.crc32(json.dumps(meta).encode())


def split_meta(text: str) -> tuple[Meta, dict[str, int]]:
    """Return the JSON of `save_tensors` and the checksums in it, if any; raise `ValueError` if it has changed."""
    meta = dict(parse_json(text))
    checksums = dict(meta.pop(CHECKSUMS, {}))
    if checksums and checksums.get("") != _text_checksum(meta):
        raise ValueError("the checksum of its metadata does not match")
    return meta, checksums


def is_intact(path: Path) -> bool:
    """Return whether a file of `save_tensors` can be read and matches its checksums."""
    try:
        load_tensors(path)
    except UserError:
        return False
    return True


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
        return split_meta(header["__metadata__"]["meta"])[0]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable_error(path, error) from None


def _open(path: Path) -> Any:
    try:
        return safe_open(require_regular(path), framework="pt")
    except (SafetensorError, OSError) as error:
        raise _unreadable_error(path, error) from None


def _unreadable_error(path: Path, reason: object) -> UserError:
    return UserError(f"{path} is damaged ({one_line(str(reason))}); delete it and run the same command again")
