"""What an index receives: contents and metadata of the wheel and the sdist; `make package` installs and uses them."""

from __future__ import annotations

import re
import tomllib
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import ssdg
from command_lines import commands, wrong_commands
from release.artifacts import ROOT, Artifacts, build_artifacts
from release.extras import NO_TORCH, PREPARE, TRIALS, common_commands, next_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
# Not tried: tools of developers, and two packages outside the tested set (constraints.txt).
NOT_TRIED = {"dev", "docs", "timm", "wandb"}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    return build_artifacts(tmp_path_factory.mktemp("dist"))


def package_files() -> set[str]:
    """The files of the package in this checkout."""
    paths = (path for path in (ROOT / "src").rglob("*") if path.is_file())
    names = {path.relative_to(ROOT / "src").as_posix() for path in paths if path.suffix != ".pyc"}
    return {name for name in names if ".egg-info/" not in name}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(artifacts: Artifacts) -> None:
    names = {name for name in artifacts.wheel_names if ".dist-info/" not in name}
    assert {"ssdg/py.typed", "ssdg/bench/tables/paper.csv", "ssdg/report/assets/page.html"} <= names
    assert names == package_files()


def test_the_sdist_holds_the_package_and_no_part_of_the_tests(artifacts: Artifacts) -> None:
    names = set(artifacts.sdist_names)
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt"} <= names
    assert {f"src/{name}" for name in package_files()} <= names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_metadata(artifacts: Artifacts) -> None:
    metadata = artifacts.metadata
    assert metadata["Version"] == ssdg.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in artifacts.wheel_names)
    assert set(metadata.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])


def test_the_version_has_one_home() -> None:
    assert "version" in PROJECT["dynamic"]
    assert f'"{ssdg.__version__}"' not in (ROOT / "pyproject.toml").read_text()


def test_training_packages_are_not_installed_for_prediction() -> None:
    names = {Requirement(line).name for line in PROJECT["dependencies"]}
    train = {Requirement(line).name for line in PROJECT["optional-dependencies"]["train"]}
    assert {"torch", "accelerate", "safetensors"} <= train
    assert not names & train


def test_every_extra_gets_its_day() -> None:
    days = [date(2026, 1, 1) + timedelta(days=day) for day in range(len(TRIALS))]
    assert {next_extra(day) for day in days} == set(TRIALS)
    assert set(TRIALS) - {"none"} == set(PROJECT["optional-dependencies"]) - NOT_TRIED


@pytest.mark.parametrize("extra", TRIALS)
def test_an_extra_without_torch_is_tried_without_it(extra: str) -> None:
    lines = PROJECT["optional-dependencies"].get(extra, [])
    brings_torch = extra == "train" or "ssdg[train]" in lines
    assert TRIALS[extra].trains == brings_torch
    assert (NO_TORCH in common_commands(extra)) != brings_torch


@pytest.mark.parametrize("extra", TRIALS)
def test_commands_of_a_trial_exist(extra: str) -> None:
    script = "\n".join([*PREPARE, *common_commands(extra), *TRIALS[extra].commands])
    assert len(list(commands(script))) > 4
    assert not wrong_commands(script)


def test_workflows_run_what_the_classifiers_say() -> None:
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert WORKFLOWS["tests"]["jobs"]["linux"]["strategy"]["matrix"]["python"] == versions
    macos = str(WORKFLOWS["tests"]["jobs"]["macos"]["steps"])
    paths = re.findall(r"tests/[\w/.]+", macos)
    assert len(paths) > 3
    assert not [path for path in paths if not Path(ROOT, path).exists()]


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_workflows_may_only_read(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    assert not [job for job in WORKFLOWS[name]["jobs"].values() if "permissions" in job]
    assert "concurrency" in WORKFLOWS[name]
