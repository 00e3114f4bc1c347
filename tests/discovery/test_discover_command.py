"""`ssdg discover`: the domain of every image in a table, and a contact sheet."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ssdg.cli import call
from ssdg.data.streams import Pipeline
from ssdg.discovery.clusters import membership
from ssdg.discovery.discover import discover
from ssdg.discovery.domain_sheet import SIDE
from ssdg.discovery.mixed_folder import spread_samples
from ssdg.engine.setup import open_run
from ssdg.machine import start_machine
from ssdg.safe_csv import restore_cell

PER_STYLE = 30


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Smooth gray and noisy colored images in one folder, and two files that are no images; read only."""
    folder, rng = tmp_path_factory.mktemp("mixed") / "mixed", np.random.default_rng(0)
    (folder / "inner").mkdir(parents=True)
    rows, columns = np.mgrid[:32, :24]
    for number in range(PER_STYLE):
        smooth = np.clip(rng.uniform(20, 120) + rows * rng.uniform(1, 3) + columns * rng.uniform(1, 3), 0, 255)
        Image.fromarray(smooth.astype(np.uint8)).save(folder / f"smooth-{number}.png")
        noisy = rng.integers(0, rng.integers(120, 250), (32, 24, 3)).astype(np.uint8)
        Image.fromarray(noisy).save(folder / "inner" / f"noisy-{number}.png")
    (folder / "broken.png").write_bytes(b"no image")
    (folder / "empty.jpg").touch()
    return folder


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run_command(folder: Path, out: Path, cache: Path, *more: str) -> list[dict[str, str]]:
    args = ["discover", str(folder), "-o", str(out), "--cache", str(cache), "--device", "cpu", *more]
    assert call(args) == 0
    return read_table(out)


def test_the_table_and_the_sheet(
    mixed: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run_command(mixed, tmp_path / "domains.csv", cache)
    assert list(rows[0]) == ["path", "domain", "confidence"]
    assert len(rows) == 2 * PER_STYLE
    assert all(Path(row["path"]).is_file() for row in rows)
    kinds = Counter((Path(row["path"]).name.partition("-")[0], row["domain"]) for row in rows)
    assert sorted(kinds.values()) == [PER_STYLE, PER_STYLE], kinds
    assert {row["domain"] for row in rows} == {"mixed#1", "mixed#2"}
    assert all(0.5 < float(row["confidence"]) <= 1 for row in rows)
    captured = capsys.readouterr()
    assert "unreadable: broken.png: not an image in a known format" in captured.err
    assert "unreadable: empty.jpg: the file is empty" in captured.err
    assert "2 domains of 60 images written to" in captured.out
    assert "2 files could not be read" in captured.out
    with Image.open(tmp_path / "domains.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    colored = np.ptp(pixels, axis=2) > 60  # only noisy images have colors
    assert colored.sum() > SIDE * SIDE
    columns = np.flatnonzero(colored.any(1))
    assert np.ptp(columns) < pixels.shape[0] / 2 + SIDE, "the noisy images form one block"


def test_an_archive_has_the_domains_of_its_folder(mixed: Path, cache: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "mixed"), "zip", mixed))
    rows = run_command(archive, tmp_path / "from-zip.csv", cache)
    domains = {Path(row["path"]).name: (row["domain"], row["confidence"]) for row in rows}
    folder = {
        Path(row["path"]).name: (row["domain"], row["confidence"])
        for row in run_command(mixed, tmp_path / "from-folder.csv", cache)
    }
    assert domains == folder
    assert rows[0]["path"].startswith(f"{archive}/")


def test_the_domains_are_those_of_a_run(mixed: Path, cache: Path, tmp_path: Path) -> None:
    labeled = tmp_path / "labeled"
    for name in ("a", "b"):
        (labeled / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (32, 32), (80 * number, 0, 10)).save(labeled / name / f"{number}.png")
    settings = {"labeled": str(labeled), "unlabeled": [str(mixed)], "preset": "best", "discover_domains": "auto"}
    config, problem = open_run(settings, cache, device="cpu")
    machine = start_machine("cpu")
    domains = discover(config, problem, tmp_path, Pipeline("none", machine.device, 2), machine)
    assert domains is not None
    in_run = {path: name for name, paths in domains.problem.paths.items() for path in paths if "-" in path}
    rows = run_command(mixed, tmp_path / "domains.csv", cache)
    assert {row["path"].removeprefix(f"{mixed}/"): row["domain"] for row in rows} == in_run


def test_one_domain_is_certain(mixed: Path, cache: Path, tmp_path: Path) -> None:
    rows = run_command(mixed, tmp_path / "one.csv", cache, "--domains", "1")
    assert {(row["domain"], row["confidence"]) for row in rows} == {("mixed", "1.000000")}


def test_names_are_safe_for_spreadsheets_and_terminals(
    mixed: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "=cmd"
    folder.mkdir()
    for number, path in enumerate(sorted(mixed.glob("smooth-*"))[:4]):
        shutil.copy(path, folder / f"a\x1b[31m{number}.png")
    (folder / "b\x1b[31m.png").write_bytes(b"no image")
    monkeypatch.chdir(tmp_path)
    rows = run_command(Path("=cmd"), tmp_path / "domains.csv", cache)
    assert all(row["path"].startswith("'=cmd/") and row["domain"] == "'=cmd" for row in rows)
    assert {restore_cell(row["path"]) for row in rows} == {f"=cmd/a\x1b[31m{number}.png" for number in range(4)}
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none", "-o", "x.csv"], "does not exist"),
        ([".", "-o", "x.txt"], "ends in .csv"),
        ([".", "-o", "x.csv", "--domains", "some"], "give auto, or 1 or more"),
        ([".", "-o", "x.csv", "--domains", "0"], "give auto, or 1 or more"),
        ([".", "-o", "x.csv", "--domains", "99"], "more than the 62 images"),
        ([".", "-o", "x.csv", "--device", "tpu"], "unknown device 'tpu'"),
        (["inner/../../nothing", "-o", "x.csv"], "contains no images"),
    ],
)
def test_mistakes(
    args: list[str], message: str, mixed: Path, monkeypatch: pytest.MonkeyPatch, complaint: Any
) -> None:
    (mixed.parent / "nothing").mkdir(exist_ok=True)
    monkeypatch.chdir(mixed)
    assert message in complaint("discover", *args)
    assert not (mixed / "x.csv").exists()


def test_a_folder_without_a_readable_image(tmp_path: Path, cache: Path, complaint: Any) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"no image")
    error = complaint("discover", tmp_path / "bad", "-o", tmp_path / "x.csv", "--cache", cache)
    assert "no image of 'bad' can be read" in error


def test_membership() -> None:
    rng = torch.Generator().manual_seed(0)
    features = torch.cat([torch.randn(40, 3, generator=rng) + shift for shift in (-8, 8)])
    features = torch.cat([features, torch.zeros(1, 3)])  # between the two
    of = torch.tensor([0] * 40 + [1] * 40 + [0])
    probs = membership(features, of)
    assert probs[:80].min() > 0.99
    assert 0.05 < probs[80] < 0.95
    assert membership(features, torch.where(of == 0, 1, 0))[:80].min() > 0.99, "numbering does not matter"
    wrong = of.clone()
    wrong[0] = 1
    assert membership(features, wrong)[0] < 0.01


def test_samples_are_spread_over_the_confidences() -> None:
    assert spread_samples([0.1, 0.9, 0.5, 0.7, 0.3], 3).tolist() == [1, 2, 0]
    assert spread_samples([0.1, 0.9], 20).tolist() == [1, 0]
