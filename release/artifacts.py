"""Build the wheel and the sdist from the files that belong to them, and list their contents."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt", "src", "tests")


@dataclass(frozen=True)
class Artifacts:
    """The two files that an index receives."""

    wheel: Path
    sdist: Path

    @property
    def wheel_names(self) -> list[str]:
        """The paths inside the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()

    @property
    def sdist_names(self) -> list[str]:
        """The paths of the files inside the sdist, without the folder that holds them all."""
        with tarfile.open(self.sdist) as archive:
            return [member.name.partition("/")[2] for member in archive if member.isfile()]

    @property
    def metadata(self) -> Message:
        """The core metadata of the wheel."""
        (name,) = (name for name in self.wheel_names if name.endswith(".dist-info/METADATA"))
        with zipfile.ZipFile(self.wheel) as archive:
            return Parser().parsestr(archive.read(name).decode())


def build_artifacts(out: Path) -> Artifacts:
    """Build both into a folder; the wheel is built from the sdist.

    A copy of the sources is built, so that no stale build folder is packed and the checkout stays as it is. Without
    isolation: a build environment needs setuptools alone, which is installed and pinned.
    """
    with tempfile.TemporaryDirectory(prefix="ssdg-build-") as folder:
        copy_sources(Path(folder))
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out.resolve()), folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the build failed:\n{done.stdout}{done.stderr}")
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Artifacts(wheel, sdist)


def copy_sources(folder: Path) -> None:
    """Copy the files that a build reads; tests are among them because a build must leave them out."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=ignored)
        else:
            shutil.copy2(path, folder / name)
