"""A plugin runs if the user names it or has confirmed its content, never because a file names it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ssdg
from ssdg.bench.worker import CellOptions
from ssdg.cli import call
from ssdg.errors import UserError
from ssdg.methods import plugins
from ssdg.methods.api import METHODS

SMALL = ["backbone=digits-cnn", "weights=none", "size=32", "batch=4", "epochs=1", "lr=0.01"]
SOURCE = """
from dataclasses import replace
from pathlib import Path
from ssdg.methods import METHODS, register
register(replace(METHODS["source-only"], name="mine"))
Path(__file__).with_name("ran").write_text("")
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A plugin that leaves a file when it runs, for a user who has confirmed nothing yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    known = dict(METHODS)
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    forget()
    yield path
    METHODS.clear()
    METHODS.update(known)
    forget()


def forget() -> None:
    """As in a new process: nothing is loaded, nothing named."""
    plugins._confirmed.clear()
    METHODS.pop("mine", None)
    for name in [name for name in sys.modules if name.startswith("ssdg_plugin_")]:
        del sys.modules[name]


def train_command(world: Path, cache: Path, out: Path, *more: object) -> list[str]:
    where = ["--data", world, "--labeled", "photo", "--target", "night", "--cache", cache, "--out", out]
    return [str(word) for word in ("train", "--preset", "paper", *where, "--device", "cpu", *SMALL, *more)]


@pytest.fixture
def run_folder(plugin: Path, world: Path, cache: Path, tmp_path: Path) -> Path:
    """A stranger's run of the plugin: the user has never named it."""
    command = train_command(world, cache, tmp_path / "run", "--method", "mine", "--plugin", plugin)
    assert call(command) == 0
    (tmp_path / "config" / "ssdg" / plugins.MEMORY).unlink()
    plugin.with_name("ran").unlink()
    (tmp_path / "run" / "result.json").unlink()
    forget()
    return tmp_path / "run"


@pytest.mark.parametrize("command", [["resume"], ["figure", "tsne"]], ids=" ".join)
def test_the_plugin_of_a_run_folder_is_not_run(
    command: list[str], run_folder: Path, plugin: Path, tmp_path: Path, complaint
) -> None:  # type: ignore[no-untyped-def]
    name, *kind = command
    out = ["-o", tmp_path / "x.png"] if kind else []
    assert f"--plugin {plugin}" in complaint(name, run_folder, *kind, *out)
    assert not plugin.with_name("ran").exists()


def test_settings_that_a_budget_chose_name_no_plugin(run_folder: Path, plugin: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    record = json.loads((run_folder / "run.json").read_text())
    chosen = {"plugin": record["config"].pop("plugin")}
    record["config"] |= {"method": "source-only", "plugin_digest": None}
    record["options"] |= {"minutes": 1.0, "chosen": chosen}
    (run_folder / "run.json").write_text(json.dumps(record))
    assert "a file names the plugin" in complaint("resume", run_folder)
    assert not plugin.with_name("ran").exists()


def test_naming_it_once_is_enough_for_the_same_content(run_folder: Path, plugin: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    assert call(["resume", str(run_folder), "--plugin", str(plugin)]) == 0
    forget()
    assert call(["resume", str(run_folder)]) == 0
    forget()
    plugin.write_text(SOURCE + "# changed\n", encoding="utf-8")
    assert "has changed since the run began" in complaint("resume", run_folder)


def test_a_settings_file_names_no_plugin_on_its_own(
    plugin: Path, world: Path, cache: Path, tmp_path: Path, complaint
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "settings.yaml").write_text(f"method: mine\nplugin: {plugin}\n")
    command = train_command(world, cache, tmp_path / "run", tmp_path / "settings.yaml")
    assert "a file names the plugin" in complaint(*command)
    assert not plugin.with_name("ran").exists()
    assert call([*command, f"plugin={plugin}"]) == 0


def test_naming_it_in_code_counts_for_the_process_only(
    plugin: Path, world: Path, cache: Path, tmp_path: Path
) -> None:
    settings = {"data": str(world), "labeled": "photo", "method": "mine", "plugin": str(plugin)}
    settings |= {"backbone": "digits-cnn", "weights": "none", "size": 32}
    config, _ = ssdg.open_run(settings, cache, device="cpu")
    assert config.method == "mine"
    assert not (tmp_path / "config").exists()


def test_workers_inherit_what_was_named(plugin: Path) -> None:
    plugins.load_plugin(plugin)
    options = CellOptions("cache", plugins=plugins.confirmed_plugins())
    forget()
    with pytest.raises(UserError, match="a file names the plugin"):
        plugins.load_confirmed_plugin(plugin)
    plugins.confirm_plugins(options.plugins)
    assert plugins.load_confirmed_plugin(plugin) == plugins.plugin_digest(plugin)


def test_a_cached_pyc_beside_a_plugin_is_not_run(plugin: Path, tmp_path: Path) -> None:
    """Its time stamp and size can match those of a plugin that was confirmed."""
    import py_compile

    hostile = tmp_path / "hostile.py"
    hostile.write_text("raise SystemExit".ljust(len(SOURCE), "#"), encoding="utf-8")
    os.utime(hostile, (plugin.stat().st_atime, plugin.stat().st_mtime))
    cached = plugin.parent / "__pycache__" / f"mine.{sys.implementation.cache_tag}.pyc"
    cached.parent.mkdir()
    py_compile.compile(str(hostile), cfile=str(cached))
    plugins.load_plugin(plugin)
    assert plugin.with_name("ran").exists()


def test_without_a_home_folder_nothing_is_remembered(
    plugin: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    plugins.load_plugin(plugin, remember=True)
    forget()
    with pytest.raises(UserError, match="a file names the plugin"):
        plugins.load_confirmed_plugin(plugin)


def test_settings_of_files_do_not_pass_through_open_run() -> None:
    """`open_run` confirms what its caller names; modules that read settings from files use `open_settings`."""
    root = Path(ssdg.__file__).parent
    readers = [*(root / "cli").glob("*.py"), *(root / "bench").rglob("*.py"), root / "engine" / "replay.py"]
    assert not [path.name for path in readers if "open_run" in path.read_text(encoding="utf-8")]
