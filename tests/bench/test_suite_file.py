"""Custom suites: rows from methods and overrides, invalid files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ssdg.bench.grid import SuiteChoice
from ssdg.bench.suite_file import load_suite
from ssdg.cli.bench import parse_choice
from ssdg.errors import UserError
from ssdg.methods.api import METHODS
from ssdg.methods.plugins import load_plugin


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def written(text: str):  # type: ignore[no-untyped-def]
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return load_suite(path)

    return written


def test_a_file_with_everything(read) -> None:  # type: ignore[no-untyped-def]
    suite, choice = read(
        """
        data: PACS/
        preset: quick
        paper: pacs
        methods: [mcd+mixstyle, {method: eid, iterations: 9}, {name: "eid, mix=x+u", method: eid, mix: x+u}]
        tasks: ["P>A", C:S]
        seeds: [0, 1]
        settings: {epochs: 3, labeler: {epochs: 2}}
        """
    )
    assert [(row.name, row.family, row.method) for row in suite.rows] == [
        ("mcd+mixstyle", "DA+DG", "mcd+mixstyle"),
        ("eid, iterations=9", "ours", "eid"),
        ("eid, mix=x+u", "ours", "eid"),
    ]
    assert [row.paper for row in suite.rows] == [{"method": "MCD+Mixstyle"}, None, {"method": "Ours w/ X+U"}]
    assert (suite.name, suite.table, suite.data) == ("mine", "pacs", ("PACS",))
    assert suite.settings == {"epochs": 3, "labeler": {"epochs": 2}}
    assert choice == SuiteChoice("PACS/", "quick", tasks=("P>A", "C:S"), seeds=(0, 1))


def test_methods_times_overrides(read) -> None:  # type: ignore[no-untyped-def]
    suite, _ = read("methods: [mcd, {name: ours, method: eid, cycles: 1}]\noverrides: [{}, {lr: 0.1, epochs: 2}]\n")
    assert {row.name: row.settings for row in suite.rows} == {
        "mcd": {},
        "mcd, lr=0.1, epochs=2": {"lr": 0.1, "epochs": 2},
        "ours": {"cycles": 1},
        "ours, lr=0.1, epochs=2": {"cycles": 1, "lr": 0.1, "epochs": 2},
    }


def test_words_of_the_command_win_over_the_file() -> None:
    file = SuiteChoice("a", "quick", tasks=("P>A",), seeds=(0,))
    choice = SuiteChoice(seeds=(1,), methods=("eid",)).over(file)
    assert choice == SuiteChoice("a", "quick", ("eid",), ("P>A",), (1,))
    choice = SuiteChoice("b", "paper", tasks=("A>P",)).over(file)
    assert choice == SuiteChoice("b", "paper", (), ("A>P",), (0,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metods: [eid]", "did you mean 'methods'"),
        ("seeds: [0]", "names no method"),
        ("methods: []", "names no method"),
        ("methods: eid", "'methods' must be a list"),
        ("methods: [edi]", "did you mean 'eid'"),
        ("methods: [3]", "method 3 is neither a name nor"),
        ("methods: [{cycles: 2}]", "is neither a name nor"),
        ("methods: [eid, eid]", "two rows named 'eid'"),
        ("methods: [eid]\noverrides: [cycles]", "override 'cycles' is not a mapping"),
        ("methods: [eid]\nseeds: 3", "'seeds' must be a list"),
        ("methods: [eid]\nsettings: [epochs]", "'settings' must be a mapping"),
        ("methods: [eid]\ndata: 3", "'data' must be a string, not 3"),
        ("methods: [eid]\npaper: pcas", "did you mean 'pacs'"),
        ("methods: [eid]\ndevelopment: [a>b]", "'development' must be a mapping"),
        ("methods: [eid]\ndevelopment: {task: [a>b]}", "did you mean 'tasks'"),
        ("methods: [eid]\ndevelopment: {tasks: a>b}", "development: 'tasks' must be a list"),
        (
            "methods: [eid]\ntasks: [a>b, b>a]\nseeds: [0, 1]\ndevelopment: {tasks: [b>a], seeds: [1]}",
            "task b>a with seed 1 is both reported and used for development",
        ),
        ("methods: [eid", "cannot be read as YAML"),
        ("- eid", "holds no settings"),
        ("methods: [eid]\nsettings: {plugin: nowhere.py}", "the plugin 'nowhere.py' cannot be read"),
    ],
)
def test_mistakes(text: str, message: str, read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=message) as caught:
        read(text)
    assert "\n" not in str(caught.value)


def test_development_tasks_are_chosen_instead_of_the_reported_ones(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "methods: [eid]\ndata: one\ntasks: [a>b]\nseeds: [0, 1]\ndevelopment: {tasks: [b>a], seeds: [0], data: two}"
    )
    suite, choice = load_suite(path)
    assert (suite.name, choice.data, choice.tasks, choice.seeds) == ("mine", "one", ("a>b",), (0, 1))
    suite, choice = load_suite(path, development=True)
    assert (suite.name, choice.data, choice.tasks, choice.seeds) == ("mine-development", "two", ("b>a",), (0,))


def test_a_file_without_development_tasks_has_none_to_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("methods: [eid]")
    with pytest.raises(UserError, match="names no development tasks"):
        load_suite(path, development=True)
    with pytest.raises(UserError, match="the built-in suite 'pacs' has no development tasks"):
        parse_choice("pacs", (), None, None, {}, development=True)


PLUGIN = """
from dataclasses import replace
from ssdg.methods import METHODS, register
register(replace(METHODS["source-only"], name="mine"))
"""


@pytest.fixture
def _forgotten() -> Iterator[None]:
    known = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(known)
    for name in [name for name in sys.modules if name.startswith("ssdg_plugin_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("_forgotten")
def test_a_method_from_a_plugin(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "my.py").write_text(PLUGIN)
    load_plugin(tmp_path / "my.py")  # naming it confirms it
    suite, _ = read(f"methods: [mine]\nsettings: {{plugin: {tmp_path / 'my.py'}}}\n")
    assert suite.rows[0].method == "mine"
    assert set(suite.settings) == {"plugin", "plugin_digest"}


def test_a_plugin_that_only_the_file_names_is_not_run(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "my.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{PLUGIN}")
    with pytest.raises(UserError, match="a file names the plugin"):
        read(f"methods: [mine]\nsettings: {{plugin: {tmp_path / 'my.py'}}}\n")
    assert not (tmp_path / "ran").exists()


def test_the_file_on_the_page_is_allowed(read) -> None:  # type: ignore[no-untyped-def]
    page = Path(__file__).parents[2] / "docs" / "benchmarks.md"
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    suite, choice = read(text)
    assert [row.name for row in suite.rows] == ["source-only", "mcd+mixstyle", "eid", "eid, mix=x+u"]
    assert all(row.paper for row in suite.rows[1:])
    assert choice.tasks == ("P>S", "C>A")
