"""The suites that are known by name: one per table of the paper."""

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
    """A row of a table: a method with the settings that make the row, and where the paper has its numbers.

    `name` is unique in its suite; `paper` selects the row in the paper's table by the columns of that table.
    """

    name: str
    family: str
    method: str
    settings: Values = field(default_factory=dict)
    paper: Values | None = None


@dataclass(frozen=True)
class Suite:
    """Rows to be run on every task of a benchmark.

    `data` names the benchmarks of the catalog that it is made for; only on the first do the numbers of the paper's
    `table` belong to the tasks. `any_data`: others will do as well.
    """

    name: str
    about: str
    rows: tuple[Row, ...]
    table: str | None = None
    data: tuple[str, ...] = ()
    any_data: bool = False
    settings: Values = field(default_factory=dict)  # of every row

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """What the catalog knows of `data`."""
        return tuple(dataset for name in self.data for dataset in CATALOG if dataset.name == name)


def label(method: str, settings: Values) -> str:
    """`eid, cycles=2, style=false`: the name of a row that was given none, values as they are typed."""
    told = {key: v if isinstance(v, str) else json.dumps(v) for key, v in flat_items(settings).items()}
    return ", ".join([method, *(f"{key}={value}" for key, value in told.items())])


def flat_items(settings: Values) -> dict[str, Any]:
    """Settings by name; `labeler.lr` for a key in a group."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= (
            {f"{key}.{name}": told for name, told in value.items()} if isinstance(value, Mapping) else {key: value}
        )
    return flat


def _row(family: str, method: str, paper: str | None = None, **settings: Any) -> Row:
    return Row(label(method, settings), family, method, settings, {"method": paper} if paper else None)


def _apl(method: str) -> Row:
    name = f"Ours w/ {method.upper()}"
    paper = {"method": name, "backbone": "ResNet-18."}
    return Row(f"eid, apl={method}", "ours", "eid", {"apl": method}, paper)


def _apl_backbone(depth: int, **settings: Any) -> Row:
    # Networks of two kinds cannot start from one that was trained on the labeled domain, as preset quick does.
    values = {"apl_backbone": f"resnet{depth}", "warm_epochs": 0, **settings}
    paper = {"method": "Ours w/ MCD", "backbone": f"ResNet-{depth}."}
    return Row(f"eid, apl_backbone=resnet{depth}", "ours", "eid", values, paper)


def _eid(**settings: Any) -> Row:
    """A row of the ablation of the intermediate domain; what is not given is the default."""
    names = {"mixup": "MixUp", "cutmix": "CutMix", "x+u": "X+U"}
    full = {"mix": "mixup", "cycles": 3, "clean_rate": 0.4, **settings}
    paper = {"method": names[full["mix"]], "cycles": str(full["cycles"]), "clean_rate": str(full["clean_rate"])}
    return Row(label("eid", settings), "ours", "eid", settings, paper)


def _uda(method: str, paper: str, depth: int) -> Row:
    backbone = f"resnet{depth}"
    return Row(
        f"{method}, {backbone}",
        "source" if method == "source-only" else "DA",
        method,
        {"backbone": backbone},
        {"method": paper, "backbone": f"ResNet-{depth}"},
    )


def _uda_eid(depth: int) -> Row:
    backbone = f"resnet{depth}"  # of the labelers; DCG keeps the run's
    values = {"apl": "cdan-e", "apl_backbone": backbone, "warm_epochs": 0}
    paper = {"method": "Ours w/ CDAN+E", "backbone": f"ResNet-{depth}"}
    return Row(f"eid, apl=cdan-e, {backbone}", "ours", "eid", values, paper)


def _web(strategy: str, method: str, paper: str, **settings: Any) -> Row:
    """A row of the tables on crawls, whose families are the strategies for web-labels."""
    family, values = f"web-label {strategy}", {**settings, "web_label": strategy}
    return Row(label(method, values), family, method, values, {"method": paper, "web_label": family})


_CLOSED_SET = (
    _row("source", "source-only"),  # the floor; not in the paper's tables
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
    _ablation("ablation-apl", "the method that labels", "ablation_apl", *map(_apl, ("dann", "mme", "mcd"))),
    _ablation(
        "ablation-backbone",
        "the depth of the labelers",
        "ablation_apl",
        _apl_backbone(18),
        _apl_backbone(50),
        _apl_backbone(101, labeler={"batch": 64}),  # the paper's: its memory held no more
    ),
    _ablation("ablation-dcg", "the parts of DCG, each left out", "ablation_dcg", *_DCG),
    _ablation("ablation-cycles", "the number of cycles", "ablation_eid", *(_eid(cycles=n) for n in (1, 3, 5, 10))),
    _ablation(
        "ablation-rate",
        "the clean rate",
        "ablation_eid",
        *(_eid(clean_rate=rate) for rate in (0.2, 0.4, 0.6, 0.8)),
    ),
    _ablation(
        "ablation-mix",
        "how the intermediate domain is made",
        "ablation_eid",
        *(_eid(mix=mix) for mix in ("mixup", "cutmix", "x+u")),
    ),
    Suite("pacs-web", "crawls beside PACS, by what becomes of web-labels", _WEB, "pacs_web", ("PACS-Webdata",)),
    Suite("office-web", "crawls beside Office-Home", _WEB_OURS, "office_web", ("Office-Webdata",)),
    Suite("digits-web", "the embedded crawl beside digits", _WEB, data=("web-digits",)),
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
    """The suite of this name, or an error that names the near ones."""
    found = [suite for suite in SUITES if suite.name == name]
    if not found:
        raise unknown("suite", name, [suite.name for suite in SUITES])
    return found[0]
