"""Which domain of a benchmark is labeled, unlabeled, found by keywords, never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .catalog import dataset_of, find_domain
from .checks import check_roles, check_setting, check_web_role
from .crawls import as_crawl, folder_of, only_kept, read_crawl
from .folders import Benchmark, Domain
from .sets import Setting


@dataclass(frozen=True)
class Roles:
    """Which domain plays which part."""

    sources: tuple[str, ...]  # the labeled domain first
    target: str | None
    crawls: tuple[str, ...] = ()  # domains of the root or folders


def find_roles(
    benchmark: Benchmark,
    *,
    labeled: str,
    target: str | None,
    unlabeled: Sequence[str] | None,
    web: Sequence[str] | None,
    setting: Setting,
) -> Roles:
    """The domains that are meant, by names, short names or folders; refused if they are not there or overlap."""
    names, dataset = benchmark.names, dataset_of(benchmark.names)
    first = find_domain(labeled, names, dataset)
    last = find_domain(target, names, dataset) if target else None
    check_web_role(*(benchmark[name] for name in (first, last) if name))
    check_setting(setting, [*(unlabeled or ()), *(web or ())], last)
    if last and setting == "uda":
        check_roles(first, (), last)
        return Roles((first, last), last)
    found = [find_domain(dataset.web, names, dataset)] if dataset and dataset.web else []
    own = [name if is_folder(name, names) else find_domain(name, names, dataset) for name in web or ()]
    rest = [find_domain(name, names, dataset) for name in unlabeled or ()]
    if unlabeled is None and web is None:
        rest = [name for name in found or names if name not in (first, last)]
    crawls = [*own, *(name for name in rest if name in found or benchmark[name].web_labels)]
    check_roles(first, [*rest, *own], last)
    return Roles((first, *(name for name in rest if name not in crawls)), last, tuple(crawls))


def is_folder(name: str, domains: Sequence[str]) -> bool:
    """Whether a folder or an archive is meant, and not a domain of that name."""
    return name not in domains and Path(name).exists()


def crawls_of(benchmark: Benchmark, roles: Roles) -> list[Domain]:
    """The domains of the root, or folders beside it, that are crawls."""
    taken, found = [*roles.sources, *([roles.target] if roles.target else [])], []
    for given in roles.crawls:
        if given in benchmark.names:
            crawl = only_kept(as_crawl(benchmark[given]), folder_of(benchmark[given], benchmark.root))
        else:
            crawl = read_crawl(Path(given), free_name(Path(given), taken))
        taken.append(crawl.name)
        found.append(crawl)
    return found


def free_name(path: Path, taken: Sequence[str]) -> str:
    """The folder's name, with a number if it is taken."""
    name, number = path.resolve().name.removesuffix(".zip") or "root", 2
    while (name if number == 2 else f"{name}-{number - 1}") in taken:
        number += 1
    return name if number == 2 else f"{name}-{number - 1}"
