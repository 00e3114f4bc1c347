"""A changed byte in a checkpoint, in labels or in the model is noticed, and never used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from leftovers import leave
from runs import same_weights, train_here
from ssdg.artifact.load import load_model
from ssdg.artifact.tensors import is_intact, load_tensors, read_meta, save_tensors
from ssdg.engine.stage_cache import StageCache
from ssdg.errors import UserError
from ssdg.files import locked


def flip(path: Path, position: int) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.unlink()  # which other hard links do not follow
    path.write_bytes(content)


@pytest.fixture
def folder(evolved: Path, tmp_path: Path) -> Path:
    """A run of two cycles whose result is missing, so that it is resumed."""
    copy = Path(shutil.copytree(evolved, tmp_path / "run"))
    (copy / "result.json").unlink()
    return copy


def resume(world: Path, cache: Path, folder: Path) -> None:
    train_here(world, cache, folder, "eid", labeler={"epochs": 1, "batch": 4, "lr": 0.01})


@pytest.mark.parametrize("position", [-1, -1000, 200])
@pytest.mark.parametrize("kind", ["stages", "labels"])
def test_a_flipped_byte_is_one_sentence_and_the_stage_can_be_repeated(
    kind: str, position: int, folder: Path, evolved: Path, world: Path, cache: Path
) -> None:
    path = sorted((folder / kind).iterdir())[0]
    flip(path, position)
    if kind == "labels" and position == -1:
        position = 200  # the last byte of a zip is the length of its comment
        flip(path, position)
    with pytest.raises(UserError, match=r"damaged.*delete it and run the same command again"):
        resume(world, cache, folder)
    path.unlink()
    resume(world, cache, folder)
    assert same_weights(folder, evolved)


@pytest.mark.parametrize("position", [-1, -5000])
def test_a_flipped_byte_in_a_model(position: int, folder: Path) -> None:
    flip(folder / "model" / "model.safetensors", position)
    with pytest.raises(UserError, match="checksum"):
        load_model(folder, "cpu")


def test_metadata_has_a_checksum_too(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.ones(3)}, {"step": 1234})
    assert read_meta(path) == {"step": 1234}
    path.write_bytes(path.read_bytes().replace(b"1234", b"1235"))
    with pytest.raises(UserError, match="checksum of its metadata"):
        read_meta(path)
    assert not is_intact(path)


def test_files_of_earlier_versions_have_none(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(3)}, path, metadata={"meta": json.dumps({"step": 1})})
    assert read_meta(path) == {"step": 1}
    assert load_tensors(path)[0]["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_type_and_shape(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    save_tensors(tmp_path / "x", {"a": torch.ones(shape, dtype=dtype)}, {})
    assert is_intact(tmp_path / "x")


def test_the_shelf_has_nothing_of_killed_processes(tmp_path: Path) -> None:
    leave(tmp_path / "name.safetensors")
    for name in ("dead", "living"):
        (tmp_path / f"{name}.lock").touch()
    with locked(tmp_path / "living.lock"):
        StageCache(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["living.lock"]


def test_a_damaged_shared_stage_is_dropped(tmp_path: Path) -> None:
    shared = StageCache(tmp_path / "shelf")
    save_tensors(tmp_path / "shelf" / "name.safetensors", {"a": torch.ones(30)}, {})
    assert shared.fetch("name", tmp_path / "first")
    flip(tmp_path / "shelf" / "name.safetensors", -3)
    assert not shared.fetch("name", tmp_path / "second")
    assert not (tmp_path / "shelf" / "name.safetensors").exists()
