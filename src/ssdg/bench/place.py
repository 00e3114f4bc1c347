"""Where the tasks of a suite come from: the domains of a benchmark, in the paper's order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..data.catalog import Dataset, dataset_of, entry_of, find_domain
from ..data.folders import Benchmark
from ..engine.open import EMBEDDED
from ..errors import UserError
from .suites import Suite

PAIR = re.compile(r"\s*[>:→]\s*")


@dataclass(frozen=True)
class Place:
    """The domains that the tasks are made of, in the catalog's order where it knows them."""

    dataset: Dataset | None
    domains: tuple[str, ...]
    is_papers: bool = False  # whether the paper's numbers are of these very domains

    @property
    def tasks(self) -> dict[str, tuple[str, str]]:
        """(labeled, target) by short name, in the paper's order."""
        pairs = [(a, b) for a in self.domains for b in self.domains if a != b]
        return {f"{self.short(a)}>{self.short(b)}": (a, b) for a, b in pairs}

    def short(self, domain: str) -> str:
        """The paper's name of a domain, or its own."""
        entry = entry_of(domain, self.dataset)
        return entry.short if entry else domain

    def unlabeled(self, labeled: str, target: str) -> list[str] | None:
        """All other domains; in a web benchmark what the catalog says."""
        if self.dataset and self.dataset.web:
            return None
        return [name for name in self.domains if name not in (labeled, target)]


def default_data(suite: Suite) -> str:
    """The embedded digits, if the suite is made for them."""
    if own := [name for name in suite.data if name in EMBEDDED]:
        return own[0]
    wanted = f"the folder or zip of {suite.data[0]}" if suite.data else "a benchmark's folder or zip"
    raise UserError(f"suite '{suite.name}' has no data; add --data with {wanted}")


def find_place(suite: Suite, benchmark: Benchmark) -> Place:
    """The suite's benchmark if its domains are all there, else whatever there is if the suite takes any."""
    names = benchmark.names
    for dataset in suite.datasets:
        here = in_catalog_order(names, dataset)
        if len(here) == len(dataset.domains):
            seen = [name for name in here if entry_of(name, dataset) != entry_of(dataset.web or "", dataset)]
            return Place(dataset, tuple(seen), is_papers=suite.table is not None and dataset == suite.datasets[0])
    if not suite.any_data:
        wanted = " or ".join(", ".join(entry.name for entry in dataset.domains) for dataset in suite.datasets)
        raise UserError(
            f"suite '{suite.name}' needs the domains {wanted}, and '{benchmark.root}' holds {', '.join(names)}; "
            "give another --data, or write a suite of your own"
        )
    known = dataset_of(names)
    first = in_catalog_order(names, known) if known else []
    own = [*first, *(name for name in names if name not in first)]
    if known and known.web:
        own.remove(find_domain(known.web, names, known))
    if len(own) < 2:
        raise UserError(f"'{benchmark.root}' holds the domain {', '.join(names)} only; a task needs two or more")
    return Place(known, tuple(own))


def in_catalog_order(names: Sequence[str], dataset: Dataset) -> list[str]:
    """The domains that the catalog knows of this benchmark."""
    return [name for entry in dataset.domains for name in names if entry_of(name, dataset) == entry]


def choose_tasks(place: Place, words: Sequence[str]) -> list[str]:
    """Tasks by `labeled>target` in any spelling of the domains, in the order of the place."""
    wanted = set()
    for word in words:
        parts = PAIR.split(str(word).strip())
        if len(parts) != 2:
            example = next(iter(place.tasks))
            raise UserError(f"task '{word}' is not a pair of domains; write labeled>target, for example '{example}'")
        labeled, target = (find_domain(part, place.domains, place.dataset) for part in parts)
        if labeled == target:
            raise UserError(f"task '{word}' has one domain in both places; write labeled>target with two domains")
        wanted.add((labeled, target))
    return [name for name, pair in place.tasks.items() if pair in wanted or not words]
