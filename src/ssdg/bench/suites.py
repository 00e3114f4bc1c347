"""Built-in benchmark suites: one per table of the paper, and one for the embedded crawl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..data.catalog import CATALOG, Dataset
from ..errors import unknown

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A row of a suite: a method with its settings, and the paper's numbers for it."""

    name: str  # unique in the suite
    family: str
    method: str
    settings: Values = field(default_factory=dict)
    paper: Values | None = None  # values by column that select the row in the paper's table
    schedule: Values = field(default_factory=dict)  # defaults in the presets `paper` and `release`


@dataclass(frozen=True)
class Suite:
    """Rows to run on every task of a benchmark."""

    name: str
    about: str  # what it compares
    rows: tuple[Row, ...]
    table: str | None = None  # of the paper, whose numbers are for the first of `data`
    data: tuple[str, ...] = ()  # datasets of the catalog that the suite is made for
    any_data: bool = False  # whether other datasets are allowed
    settings: Values = field(default_factory=dict)  # of every row

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """Entries of the catalog for `data`."""
        return tuple(dataset for name in self.data for dataset in CATALOG if dataset.name == name)


def row_name(method: str, settings: Values) -> str:
    """Return the default name of a row, such as `eid, cycles=2, style=false`, with values as in YAML."""
    values = {key: v if isinstance(v, str) else json.dumps(v) for key, v in flat_items(settings).items()}
    return ", ".join([method, *(f"{key}={value}" for key, value in values.items())])


def flat_items(settings: Values) -> dict[str, Any]:
    """Return settings by name; nested ones as `labeler.lr`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= {f"{key}.{name}": v for name, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return flat


def _row(family: str, method: str, paper: str | None = None, **settings: Any) -> Row:
    return Row(row_name(method, settings), family, method, settings, {"method": paper} if paper else None)


def _apl(method: str) -> Row:
    name = f"Ours w/ {method.upper()}"
    paper = {"method": name, "backbone": "ResNet-18."}
    return Row(f"eid, apl={method}", "ours", "eid", {"apl": method}, paper)


def _apl_backbone(depth: int, **settings: Any) -> Row:
    # Networks of two architectures cannot share the warm start of preset quick.
    values = {"apl_backbone": f"resnet{depth}", "warm_epochs": 0, **settings}
    paper = {"method": "Ours w/ MCD", "backbone": f"ResNet-{depth}."}
    return Row(f"eid, apl_backbone=resnet{depth}", "ours", "eid", values, paper)


def _eid(**settings: Any) -> Row:
    """Return a row of the ablation of the intermediate domain; other settings keep their defaults."""
    names = {"mixup": "MixUp", "cutmix": "CutMix", "x+u": "X+U"}
    full = {"mix": "mixup", "cycles": 3, "clean_rate": 0.4, **settings}
    paper = {"method": names[full["mix"]], "cycles": str(full["cycles"]), "clean_rate": str(full["clean_rate"])}
    return Row(row_name("eid", settings), "ours", "eid", settings, paper)


# The schedule of CDAN's release, from which the paper takes its hyper-parameters for domain adaptation: 50,004 steps
# of 36 images, lr 0.001 for the trunk and 0.01 for new layers.
_CDAN_SCHEDULE: Values = {
    "epochs": 12,
    "iterations": 4167,
    "batch": 36,
    "lr": 0.01,
    "trunk_rate": 0.1,
    "lr_shape": "inverse",
    "nesterov": True,
    "weight_decay": 5e-4,
}
_ADAPTATION_SCHEDULE: Values = {**_CDAN_SCHEDULE, "bottleneck": 256}


def _uda(method: str, paper: str, depth: int) -> Row:
    backbone = f"resnet{depth}"
    is_source = method == "source-only"
    return Row(
        f"{method}, {backbone}",
        "source" if is_source else "DA",
        method,
        {"backbone": backbone},
        {"method": paper, "backbone": f"ResNet-{depth}"},
        _CDAN_SCHEDULE if is_source else _ADAPTATION_SCHEDULE,
    )


def _uda_eid(depth: int) -> Row:
    backbone = f"resnet{depth}"  # of the labelers; DCG uses the run's
    values = {"apl": "cdan-e", "apl_backbone": backbone, "warm_epochs": 0}
    paper = {"method": "Ours w/ CDAN+E", "backbone": f"ResNet-{depth}"}
    return Row(f"eid, apl=cdan-e, {backbone}", "ours", "eid", values, paper, {"labeler": _ADAPTATION_SCHEDULE})


def _web(strategy: str, method: str, paper: str, **settings: Any) -> Row:
    """Return a row of the tables on crawls, whose families are the web-label strategies."""
    family, values = f"web-label {strategy}", {**settings, "web_label": strategy}
    return Row(row_name(method, values), family, method, values, {"method": paper, "web_label": family})


_CLOSED_SET = (
    _row("source", "source-only"),  # the baseline; not in the paper's tables
    _row("DA", "dann", "DANN"),
    _row("DA", "cdan-e", "CDAN+E"),
    _row("DA", "mcd", "MCD"),
    _row("DA", "mme", "MME"),
    _row("DG", "rsc", "RSC"),
    _row("DG", "l2d", "L2D"),
    _row("DG", "dgvgs", "DGvGS"),
    _row("DA+DG", "mcd+ddaig", "MCD+DDAIG"),
    _row("DA+DG", "mcd+mixstyle", "MCD+Mixstyle"),
    _row("DA+DG", "cdan-e+daeldg", "CDAN+E+DAELDG"),
    _row("SSL", "mean-teacher", "MeanTeacher"),
    _row("SSL", "mixmatch", "MixMatch"),
    _row("SSL", "fixmatch", "FixMatch"),
    _row("ours", "eid", "Ours w/ MixUp"),
    _row("ours", "eid", "Ours w/ X+U", mix="x+u"),
)
_DCG = (
    _row("ours", "eid", "DCG w/o style conf.", style=False),
    _row("ours", "eid", "DCG w/o label dive.", diversity=False),
    _row("ours", "eid", "DCG w/o dual cali.", dual=False),
    _row("ours", "eid", "Ours"),
)
_UDA = (
    _uda("source-only", "Source only", 50),
    _uda("dan", "DAN", 50),
    _uda("dann", "DANN", 50),
    _uda("jan", "JAN", 50),
    _uda("cdan", "CDAN", 50),
    _uda("cdan-e", "CDAN+E", 50),
    _uda_eid(50),
    _uda("cdan-e", "CDAN+E", 18),
    _uda_eid(18),
)


_WEB_OURS = (
    _web("ignored", "eid", "Ours w/ MCD"),
    _web("ignored", "eid", "Ours w/ OSDA", apl="osbp"),
    _web("retained", "eid", "Ours w/o APL"),
    _web("refined", "eid", "Ours w/ MCD"),
    _web("refined", "eid", "Ours w/ OSDA", apl="osbp"),
)
_WEB = (
    _web("ignored", "mixmatch", "MixMatch"),
    _web("ignored", "fixmatch", "FixMatch"),
    _web("ignored", "mean-teacher", "MeanTeacher"),
    *_WEB_OURS[:2],
    _web("retained", "rsc", "RSC"),
    _web("retained", "mixstyle", "MixStyle"),
    _web("retained", "l2d", "L2D"),
    _web("retained", "dgvgs", "DGvGS"),
    *_WEB_OURS[2:],
)


def _ablation(name: str, about: str, table: str, *rows: Row) -> Suite:
    return Suite(name, about, rows, table, ("PACS",), any_data=True)


SUITES: tuple[Suite, ...] = (
    Suite("pacs", "all methods on PACS", _CLOSED_SET, "pacs", ("PACS",)),
    Suite("digits", "all methods on digits", _CLOSED_SET, "digits", ("Digits-DG", "digits")),
    Suite("office", "all methods on Office-Home", _CLOSED_SET, "office", ("Office-Home",)),
    _ablation("ablation-apl", "the labeling method (APL)", "ablation_apl", *map(_apl, ("dann", "mme", "mcd"))),
    _ablation(
        "ablation-backbone",
        "the depth of the labelers",
        "ablation_apl",
        _apl_backbone(18),
        _apl_backbone(50),
        _apl_backbone(101, labeler={"batch": 64}),  # as in the paper, whose GPU memory allowed no more
    ),
    _ablation("ablation-dcg", "DCG without each of its parts", "ablation_dcg", *_DCG),
    _ablation("ablation-cycles", "the number of cycles", "ablation_eid", *(_eid(cycles=n) for n in (1, 3, 5, 10))),
    _ablation(
        "ablation-rate",
        "the clean rate",
        "ablation_eid",
        *(_eid(clean_rate=rate) for rate in (0.2, 0.4, 0.6, 0.8)),
    ),
    _ablation(
        "ablation-mix",
        "how the intermediate domain is mixed",
        "ablation_eid",
        *(_eid(mix=mix) for mix in ("mixup", "cutmix", "x+u")),
    ),
    Suite("pacs-web", "web-label strategies, crawls for PACS", _WEB, "pacs_web", ("PACS-Webdata",)),
    Suite("office-web", "web-label strategies, crawls for Office-Home", _WEB_OURS, "office_web", ("Office-Webdata",)),
    Suite("digits-web", "web-label strategies, embedded crawl for digits", _WEB, data=("web-digits",)),
    Suite(
        "uda-office",
        "domain adaptation on Office-Home",
        _UDA,
        "da_office",
        ("Office-Home",),
        settings={"setting": "uda"},
    ),
)


def find_suite(name: str) -> Suite:
    """Return a suite by name; raise `UserError` if there is none."""
    by_name = {suite.name: suite for suite in SUITES}
    if name not in by_name:
        raise unknown("suite", name, list(by_name))
    return by_name[name]
