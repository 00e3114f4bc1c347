"""The folders of a user: environment variables, and a user without a home folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssdg import default_cache
from ssdg.errors import UserError
from ssdg.files import user_folder


def test_environment_variables_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSDG_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_cache() == Path("/x/ssdg")
    monkeypatch.setenv("SSDG_CACHE", "/y")
    assert default_cache() == Path("/y")


def test_a_user_whom_the_system_does_not_know(monkeypatch: pytest.MonkeyPatch, complaint) -> None:  # type: ignore[no-untyped-def]
    for name in ("HOME", "XDG_CACHE_HOME", "SSDG_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # raises KeyError, as for an unknown id
    with pytest.raises(UserError, match="set HOME, or SSDG_CACHE, or give --cache"):
        user_folder("cache")
    command = ["train", "--data", "digits", "--labeled", "syn", "--target", "mnist", "weights=none"]
    assert "HOME is not set" in complaint(*command)
