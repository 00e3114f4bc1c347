"""Licenses of the packages that `ssdg` needs at run time, as their installed metadata state them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ssdg.artifact.package_license import license_file_title

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
ALLOWED = re.compile(
    r"MIT(-CMU| License)?|The MIT License \(MIT\)|0BSD|(3-Clause )?BSD([- ][23]-Clause)?( License)?|Apache([- ]2\.0)?"
    r"|Apache (Software )?License( 2\.0)?|Apache 2\.0 License|BSL-1\.0|CC0-1\.0|HPND|ISC( License \(ISCL\))?|PSF-2\.0"
    r"|Python Software Foundation License|CNRI-Python"  # CNRI-Python: that of Python 1.6, as permissive as PSF-2.0
    r"|MPL-2\.0|Mozilla Public License 2\.0 \(MPL 2\.0\)|Zlib|LLVM-exception|Unlicense"
)


def direct_requirements() -> Iterator[Requirement]:
    extras = PROJECT["optional-dependencies"]
    for group in (PROJECT["dependencies"], *(extras[name] for name in extras if name not in ("dev", "docs"))):
        yield from (Requirement(line) for line in group)


def installed_packages() -> dict[str, Distribution]:
    """All that the requirements lead to and that is installed: some extras are not part of the test environment."""
    waiting, packages = list(direct_requirements()), dict[str, Distribution]()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in packages or name == "ssdg":
            continue
        try:
            packages[name] = distribution(name)
        except PackageNotFoundError:
            continue
        for line in packages[name].requires or ():
            inner = Requirement(line)
            extras = (*requirement.extras, "")
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(inner)
    return packages


def split_expression(text: str) -> list[str]:
    return re.split(r" (?:AND|OR|WITH) ", text)


def license_terms(package: Distribution) -> list[str]:
    """The licenses of an expression, else of the classifiers, else the license field or the title of the file."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return split_expression(re.sub(r"[()]", "", expression))
    classifiers = metadata.get_all("Classifier") or []
    if names := [line.rpartition("::")[2].strip() for line in classifiers if line.startswith("License ::")]:
        return names
    stated = (metadata.get("License") or "UNKNOWN").strip().partition("\n")[0].strip()
    return split_expression((license_file_title(package) or "none") if stated == "UNKNOWN" else stated)


PACKAGES = installed_packages()


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_every_license_allows_commercial_use_and_closed_code(name: str) -> None:
    terms = license_terms(PACKAGES[name])
    assert terms
    assert [term for term in terms if not ALLOWED.fullmatch(term)] == []


def test_the_requirements_are_followed() -> None:
    assert {"numpy", "torch", "cleanlab", "protego", "sympy"} <= PACKAGES.keys()


def test_strong_copyleft_is_noticed() -> None:
    for term in ("AGPL-3.0-only", "GPLv3", "GNU Affero General Public License v3", "LGPL-2.1", "none"):
        assert not ALLOWED.fullmatch(term)


def test_no_release_of_cleanlab_under_the_agpl_is_allowed() -> None:
    (cleanlab,) = (requirement for requirement in direct_requirements() if requirement.name == "cleanlab")
    assert "2.7.1" not in cleanlab.specifier
    assert "2.8.0" in cleanlab.specifier


def test_every_imported_package_is_declared() -> None:
    """A package that only another one brings along may vanish with its next release."""
    declared = {canonicalize_name(requirement.name) for requirement in direct_requirements()}
    pattern = re.compile(r"^\s*(?:from|import) ([a-zA-Z]\w*)[\w.]*(?: import .+| as \w+)?$", re.MULTILINE)
    sources = (Path(__file__).parents[1] / "src").rglob("*.py")
    imported = {name for file in sources for name in pattern.findall(file.read_text())}
    owners = packages_distributions()  # a name that no installed package owns is of the standard library or a word
    needed = {name: {canonicalize_name(owner) for owner in owners[name]} for name in imported & owners.keys()}
    assert {"torch", "threadpoolctl", "protego"} <= needed.keys()
    assert [name for name, packages in needed.items() if not packages & (declared | {"ssdg"})] == []
