"""`--batch auto` by free memory and image size, by a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssdg.errors import UserError
from ssdg.inference.classifier import auto_batch, free_memory, parse_batch

GB = 1 << 30


@pytest.mark.parametrize(
    ("free", "size", "batch"),
    [
        (16 * GB, 224, 64),  # 4 GB by 64 · 224² · 12 bytes: 111
        (64 * GB, 224, 128),  # the most
        (2 * GB, 224, 8),  # 13
        (GB // 16, 224, 1),  # not even one: one
        (0, 32, 1),
        (GB, 32, 128),
        (16 * GB, 1024, 4),  # 5
    ],
)
def test_by_hand(free: int, size: int, batch: int) -> None:
    assert auto_batch(free, size) == batch


def test_what_may_be_asked_for() -> None:
    assert parse_batch("auto") is None
    assert parse_batch(7) == 7
    for batch in (0, -3, 65_537, 10**400):
        with pytest.raises(UserError, match="is not a batch size"):
            parse_batch(batch)


def test_free_memory_heeds_the_machine_and_the_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    assert free_memory(tmp_path, meminfo) == 5000 * 1024
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(tmp_path, meminfo) == 5000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert free_memory(tmp_path, meminfo) == 4000
    assert free_memory(tmp_path / "none", tmp_path / "none") == GB
    assert free_memory() > 0
