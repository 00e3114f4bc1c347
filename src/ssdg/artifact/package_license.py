"""The license that an installed package declares in its own metadata."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

LICENSE_FILE = re.compile(r"\.dist-info/(?:.*/)?(?:LICEN[CS]E|COPYING)[^/]*$", re.IGNORECASE)
CLASSIFIER = "License :: "
MAX_LENGTH = 200  # of a quotation; some packages put the whole text into the field License


def describe_license(package: str) -> str:
    """Return a clause with the license that an installed package declares, for use after the package's name.

    Sources in order: the metadata's license expression, license field and classifiers, then the license file.
    """
    try:
        installed = distribution(package)
    except PackageNotFoundError:
        return "which is not installed here, so its license could not be looked up"
    if license_name := license_in_metadata(installed):
        return f"whose metadata state the license '{license_name}'"
    if title := license_file_title(installed):
        return f"whose metadata state no license and whose license file is titled '{title}'"
    return "whose license is not stated by the package"


def license_in_metadata(installed: Distribution) -> str | None:
    """Return the license in the metadata; None if there is none, which older tools write as UNKNOWN."""
    metadata = installed.metadata
    fields = [metadata[key] for key in ("License-Expression", "License") if key in metadata]
    classifiers = [c for c in metadata.get_all("Classifier") or [] if c.startswith(CLASSIFIER)]
    names = [*fields, *(c.rpartition(" :: ")[2] for c in classifiers)]
    return next((first_line(name) for name in names if first_line(name) not in ("", "UNKNOWN")), None)


def license_file_title(installed: Distribution) -> str | None:
    """Return the first line of the license file next to the metadata; None if there is none to read."""
    for path in installed.files or ():
        if LICENSE_FILE.search(path.as_posix()):
            with suppress(OSError):
                return first_line(Path(str(path.locate())).read_text(encoding="utf-8", errors="replace")) or None
    return None


def first_line(text: str) -> str:
    """Return the first line that is not blank, shortened."""
    lines = (line.strip() for line in text.splitlines())
    return next((line[:MAX_LENGTH] for line in lines if line), "")
