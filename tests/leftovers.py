"""What a killed process leaves of an atomic write."""

from __future__ import annotations

from pathlib import Path


def leave(path: Path, content: bytes = b"cut sh") -> Path:
    """Leave the folder that `atomic_path(path)` of a killed process leaves; return it."""
    folder = path.with_name(f".{path.name}.abcd_123.tmp")
    folder.mkdir(parents=True)
    (folder / ".ssdg-lock").touch()
    (folder / path.name).write_bytes(content)
    return folder
