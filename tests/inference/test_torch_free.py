"""What works where torch, accelerate and safetensors cannot be imported, and what says that it needs them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from exported import write_colors, write_photos
from runs import environment


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos")


HEAVY = ("torch", "accelerate", "safetensors")
BLOCKED = """
import sys
missing = sys.argv.pop(1).split(',')
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in missing:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Blocked())
from ssdg.cli import main
main()
"""


def without(missing: tuple[str, ...], *args: object) -> subprocess.CompletedProcess[str]:
    """Run a command where packages cannot be imported."""
    command = [sys.executable, "-c", BLOCKED, ",".join(missing), *map(str, args)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)


def without_torch(*args: object) -> subprocess.CompletedProcess[str]:
    return without(HEAVY, *args)


def test_predicting_and_evaluating_need_no_torch(photos: Path, tmp_path: Path) -> None:
    model, out = write_colors(tmp_path / "model.onnx"), tmp_path / "out.parquet"
    done = without_torch("predict", model, photos, "-o", out, "--reject")
    assert done.returncode == 0, done.stderr
    assert "4 images classified into" in done.stdout
    assert out.exists()
    (photos / "red").mkdir()
    (photos / "red.png").rename(photos / "red" / "1.png")
    for name in ("green", "blue", "grey"):
        (photos / f"{name}.png").unlink()
    done = without_torch("evaluate", model, "--data", photos, "--cache", tmp_path / "cache", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] == {"mean": 100.0}


WINDOWS = """
import sys
for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'):
    sys.modules[name] = None
import os, signal
for name in ('posix_fadvise', 'posix_fallocate', 'pread', 'preadv', 'pwrite', 'pwritev', 'sched_getaffinity', 'sync'):
    delattr(os, name)
del signal.SIGKILL
"""


@pytest.mark.parametrize("has_locks", [True, False])
def test_predicting_evaluating_and_reporting_on_windows(has_locks: bool, photos: Path, tmp_path: Path) -> None:
    """Without the modules and functions that Windows lacks; its own module for locks is replaced by a stand-in."""
    (tmp_path / "msvcrt.py").write_text("LK_NBLCK = 2\ndef locking(handle, mode, size): pass\n")
    # `subprocess`, which Pillow imports, would take the stand-in for Windows itself.
    locks = f"import subprocess, sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    code = (locks if has_locks else "") + WINDOWS + BLOCKED

    def run(*args: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, ",".join(HEAVY), *map(str, args)]
        return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)

    model, out = write_colors(tmp_path / "model.onnx"), tmp_path / "new" / "out.csv"
    done = run("predict", model, photos, "-o", out)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in out.parent.iterdir()] == ["out.csv"]
    for path in sorted(photos.glob("*.png")):
        (photos / path.stem).mkdir()
        path.rename(photos / path.stem / "1.png")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for name in ("red", "green"):
            archive.write(photos / name / "1.png", f"{name}/1.png")
    done = run("evaluate", model, "--data", tmp_path / "photos.zip", "--cache", tmp_path / "cache", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] == {"mean": 100.0}
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    done = run("report", run_folder, "-o", tmp_path / "report.html")
    assert "is not a run folder" in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("predict", ".", ".", "-o", "x.csv"),
        ("features", ".", "-o", "x.npz"),
        ("train", "--labeled", "x"),
        ("demo",),
        ("resume", "x"),
    ],
)
def test_commands_that_need_torch_say_so(
    args: tuple[str, ...], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos)
    done = without_torch(*args)
    assert done.returncode == 2
    assert done.stderr.endswith("which is not installed; run pip install 'ssdg[train]'\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (("data", "list"), "PACS"),
        (("bench", "list"), "digits"),
        (("methods",), "source-only"),
        (("methods", "--json"), '"name": "eid"'),
        (("report", "nowhere"), "is not a run folder"),
        (("table", "nowhere"), "is not a benchmark folder"),
        (("data", "verify", "photos"), "photos"),
    ],
)
def test_commands_that_need_no_torch(
    args: tuple[str, ...], output: str, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos.parent)
    done = without_torch(*args)
    assert "not installed" not in done.stderr
    assert "Traceback" not in done.stderr
    assert output in done.stdout + done.stderr


def test_a_missing_onnxruntime_is_reported(photos: Path, tmp_path: Path) -> None:
    model = write_colors(tmp_path / "model.onnx")
    done = without(("onnxruntime",), "predict", model, photos, "-o", tmp_path / "out.csv")
    assert done.returncode == 2
    assert done.stderr.endswith("needs onnxruntime, which is not installed; run pip install 'ssdg[onnx]'\n")


def test_a_missing_pyarrow_is_reported_before_anything_is_read(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("ssdg.inference.predictions.find_spec", lambda name: None)
    error = complaint("predict", tmp_path / "none.onnx", photos, "-o", tmp_path / "out.parquet")
    assert "run pip install 'ssdg[parquet]'" in error


def test_from_python_the_sentence_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import ssdg

    def missing(name: str, package: str) -> None:
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")

    monkeypatch.setattr(ssdg, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r"ssdg.SSDG: .* pip install 'ssdg\[train\]'"):
        _ = ssdg.SSDG
    monkeypatch.setattr(ssdg, "import_module", lambda name, package: __import__("no_such_module_of_ours"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_ours"):
        _ = ssdg.SSDG
