"""The built-in suites: what the paper's tables compare, with settings that resolve."""

from __future__ import annotations

import pytest

from ssdg.bench.suites import SUITES, Suite, find_suite, row_name
from ssdg.bench.tables.results_table import paper_numbers, paper_rows, paper_tables
from ssdg.config import PRESETS, DataKind, merge, resolve
from ssdg.errors import UserError
from ssdg.methods import find_method

NAMES = [suite.name for suite in SUITES]


def test_there_is_a_suite_for_every_table() -> None:
    ablations = [f"ablation-{part}" for part in ("apl", "backbone", "dcg", "cycles", "rate", "mix")]
    webs = ["pacs-web", "office-web", "digits-web"]
    assert ["pacs", "digits", "office", *ablations, *webs, "uda-office"] == NAMES
    assert {suite.table for suite in SUITES if suite.table} == set(paper_tables())


@pytest.mark.parametrize("name", ["pacs-web", "office-web"])
def test_web_tables_have_every_row_of_the_paper_once(name: str) -> None:
    suite = find_suite(name)
    rows = [(row.paper["web_label"], row.paper["method"]) for row in suite.rows if row.paper]
    theirs = dict.fromkeys((r["web_label"], r["method"]) for r in paper_rows() if r["table"] == suite.table)
    assert [(label.casefold(), method) for label, method in theirs] == rows
    assert all(row.settings["web_label"] in find_method(row.method).web_labels for row in suite.rows)


def test_the_main_tables_have_the_methods_of_the_paper_and_the_floor() -> None:
    rows = find_suite("digits").rows
    da, dg, ssl = ["DANN", "CDAN+E", "MCD", "MME"], ["RSC", "L2D", "DGvGS"], ["MeanTeacher", "MixMatch", "FixMatch"]
    pairs, ours = ["MCD+DDAIG", "MCD+Mixstyle", "CDAN+E+DAELDG"], ["Ours w/ MixUp", "Ours w/ X+U"]
    assert [row.paper["method"] for row in rows if row.paper] == [*da, *dg, *pairs, *ssl, *ours]
    assert [row.name for row in rows if not row.paper] == ["source-only"]
    assert find_suite("pacs").rows == find_suite("office").rows == rows


@pytest.mark.parametrize("suite", SUITES, ids=NAMES)
def test_rows_have_unique_names_and_the_family_of_their_method(suite: Suite) -> None:
    assert len({row.name for row in suite.rows}) == len(suite.rows)
    strategies = [row.settings.get("web_label") for row in suite.rows]  # are the families of the web tables
    families = [find_method(row.method).family for row in suite.rows]
    expected = [f"web-label {w}" if w else f for w, f in zip(strategies, families, strict=True)]
    assert [row.family for row in suite.rows] == expected
    assert suite.datasets, "the benchmark is in the catalog"


@pytest.mark.parametrize("kind", ["photo", "none"])
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "best"])  # it leaves out parts of the paper
@pytest.mark.parametrize("suite", SUITES, ids=NAMES)
def test_every_row_is_a_separate_run_in_every_preset(suite: Suite, preset: str, kind: DataKind) -> None:
    base = {"labeled": "a", "target": "b", "preset": preset}
    configs = [merge(merge({**base, "method": row.method}, suite.settings), row.settings) for row in suite.rows]
    hashes = {resolve(config, kind=kind, size=32).hash for config in configs}
    assert len(hashes) == len(suite.rows)


def test_what_the_text_says_of_a_row() -> None:
    deep = find_suite("ablation-backbone").rows[-1]
    assert deep.settings == {"apl_backbone": "resnet101", "warm_epochs": 0, "labeler": {"batch": 64}}
    assert [row.settings["cycles"] for row in find_suite("ablation-cycles").rows] == [1, 3, 5, 10]
    uda = find_suite("uda-office")
    assert uda.settings == {"setting": "uda"}
    assert uda.rows[-1].settings["apl_backbone"] == "resnet18"


def test_a_row_is_named_by_what_is_typed() -> None:
    name = row_name("eid", {"style": False, "iterations": None, "mix": "x+u", "labeler": {"lr": 0.1}})
    assert name == "eid, style=false, iterations=null, mix=x+u, labeler.lr=0.1"


def test_an_unknown_suite() -> None:
    with pytest.raises(UserError, match="did you mean 'digits'"):
        find_suite("digist")


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite.table], ids=lambda suite: suite.name)
def test_the_paper_has_twelve_numbers_for_every_row_that_names_it(suite: Suite) -> None:
    assert suite.table is not None
    named = [row for row in suite.rows if row.paper]
    assert named
    for row in named:
        selectors = {"table": suite.table, **(row.paper or {})}
        assert len(paper_numbers(str(selectors.pop("table")), selectors)) == 12, row.name


def test_domain_adaptation_has_the_schedule_of_cdans_release() -> None:
    """50,004 steps of 36 images; trunk 0.001, new layers 0.01, decayed by (1 + 0.001 i)^-0.75; a 256-d bottleneck."""
    for row in find_suite("uda-office").rows:
        values = {"labeled": "a", "method": row.method, **merge(row.schedule, row.settings)}
        config = resolve(values, kind="photo", size=224)
        settings = config.settings.nested().get("labeler", config.settings)
        assert settings.epochs * (settings.iterations or 0) == 50_004
        assert (settings.batch, settings.lr, settings.lr_shape) == (36, 0.01, "inverse")
        assert settings.lr * settings.trunk_rate == pytest.approx(0.001)
        assert (settings.momentum, settings.nesterov, settings.weight_decay) == (0.9, True, 5e-4)
        assert getattr(settings, "bottleneck", 256) == 256
        if row.method == "eid":  # DCG keeps the paper's
            assert (config.settings.epochs, config.settings.batch, config.settings.lr) == (15, 128, 1e-3)
