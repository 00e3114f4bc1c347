"""`ssdg data unpack`: arrays as folders of images."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssdg.cli import call
from ssdg.data.sources.npz import unpack_arrays


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    root = tmp_path / "arrays"
    root.mkdir()
    images = np.arange(6 * 4 * 4 * 3, dtype=np.uint8).reshape(6, 4, 4, 3)
    np.savez(root / "one.npz", images=images, labels=np.array([0, 1, 0, 1, 1, -1]))
    np.savez(root / "crawl.npz", images=images, labels=np.zeros(6, int), web_labels=np.array([1, 1, 0, 0, 0, 0]))
    return root


def test_every_image_is_in_the_folder_of_its_class(arrays: Path, tmp_path: Path) -> None:
    assert unpack_arrays(arrays, tmp_path / "out") == {"crawl": 6, "one": 5}
    names = {str(p.relative_to(tmp_path / "out" / "one")) for p in (tmp_path / "out" / "one").rglob("*.png")}
    assert names == {"0/00000.png", "0/00002.png", "1/00001.png", "1/00003.png", "1/00004.png"}
    with np.load(arrays / "one.npz") as file, Image.open(tmp_path / "out" / "one" / "1" / "00003.png") as image:
        assert np.array_equal(np.asarray(image), file["images"][3])
    assert len(list((tmp_path / "out" / "crawl" / "1").iterdir())) == 2  # by keyword
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


UNPACK = "from pathlib import Path; import sys; from ssdg.cli import main; "
DIE = """import os
unlink = Path.unlink
Path.unlink = lambda path: os.kill(os.getpid(), 9) if Path(sys.argv[-1]).is_dir() else unlink(path)
"""


def test_killed_just_after_the_folder_appeared(arrays: Path, tmp_path: Path) -> None:
    """The same command recognizes its finished work and removes the lock and the temporary folder."""
    words = ["data", "unpack", str(arrays), str(tmp_path / "new" / "u")]
    killed = subprocess.run([sys.executable, "-c", UNPACK + DIE + "main(sys.argv[1:])", *words], check=False)
    assert killed.returncode == -9
    assert (tmp_path / "new" / "u").is_dir()
    hidden = [path.name for path in (tmp_path / "new").iterdir() if path.name != "u"]
    assert ".u.lock" in hidden
    assert len(hidden) == 2
    again = [sys.executable, "-c", UNPACK + "main(sys.argv[1:])", *words]
    completed = subprocess.run(again, check=True, capture_output=True, text=True)
    assert "11 images in" in completed.stdout.replace("\n", " ")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["u"]


def test_another_job_or_changed_images_are_refused(arrays: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    words = ("data", "unpack", arrays, tmp_path / "out")
    assert call([str(word) for word in words]) == 0
    assert call([str(word) for word in words]) == 0
    assert "already exists" in complaint(*words, "--per-class", 1)
    (tmp_path / "out" / "one" / "0" / "00000.png").unlink()
    assert "already exists" in complaint(*words)


def test_a_command_for_some_of_each(arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["data", "unpack", str(arrays), str(tmp_path / "out"), "--per-class", "1"]) == 0
    assert "4 images in" in capsys.readouterr().out
    assert len(list((tmp_path / "out").rglob("*.png"))) == 4


def test_what_it_refuses(arrays: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    assert "already exists" in complaint("data", "unpack", arrays, arrays)
    (tmp_path / "empty").mkdir()
    assert "contains no .npz file" in complaint("data", "unpack", tmp_path / "empty", tmp_path / "out")
    assert complaint("data", "unpack", arrays, tmp_path / "out", "--per-class", 0)
    assert not (tmp_path / "out").exists()
