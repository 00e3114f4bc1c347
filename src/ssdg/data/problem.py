"""Domains -> the problem the engine holds, with every mistake in the data told before any training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .catalog import UNKNOWN_DATASET, Dataset, dataset_of
from .hidden import UNKNOWN, Problem, Target
from .loading import Loaded, load_domain
from .parallel import Progress
from .roles import (
    check_apart,
    check_classes,
    check_images,
    check_labeled,
    check_same_classes,
    check_setting,
    crawls_of,
    find_roles,
    folder_of,
    free_name,
    only_kept,
    read_crawl,
    read_pile,
)
from .sets import LabeledSet, Setting, Task, UnlabeledSet, digest_of
from .sources.benchmark import Benchmark, Domain, read_benchmark, read_class_folder


def benchmark_problem(
    root: Path | Benchmark,
    *,
    labeled: str,
    target: str | None,
    unlabeled: Sequence[str] | None = None,
    web: Sequence[str] | None = None,
    setting: Setting = "ssdg",
    size: int | None = None,
    cache: Path,
    progress: Progress | None = None,
) -> Problem:
    """One labeled, some unlabeled and one unseen domain of a benchmark root.

    `web` are crawls, domains of the root or folders. Without it and `unlabeled`, all other domains are unlabeled; in
    the web benchmarks only the crawled one is.
    In the setting `uda` the target, whole and without its labels, is the unlabeled domain.
    """
    benchmark = root if isinstance(root, Benchmark) else read_benchmark(root)
    roles = find_roles(benchmark, labeled=labeled, target=target, unlabeled=unlabeled, web=web, setting=setting)
    plain = [only_kept(d, folder_of(d, benchmark.root)) for d in map(benchmark.__getitem__, roles.sources)]
    sources = [*plain, *crawls_of(benchmark, roles)]
    check_classes(sources[0])
    goal = benchmark[roles.target] if roles.target else None
    if goal:
        check_same_classes(sources[0], goal)
    protocol = data_defaults(benchmark)
    return _problem(sources, goal, sources[0].classes, protocol, size, cache, progress, setting=setting)


def other_targets(benchmark: Benchmark, names: Sequence[str], problem: Problem, cache: Path) -> tuple[Target, ...]:
    """Further domains of the benchmark as targets, in the size of the problem's images."""
    size, classes = problem.task.labeled.images.size, problem.task.classes
    domains = [benchmark[name] for name in names]
    loaded = [load_domain(d, size, cache, validation_rate=0, by_class=False, progress=None) for d in domains]
    return tuple(_target(domain, classes) for domain in loaded)


def folder_problem(
    labeled: Path,
    unlabeled: Sequence[Path],
    target: Path | None = None,
    *,
    web: Sequence[Path] = (),
    setting: Setting = "ssdg",
    size: int | None = None,
    cache: Path,
    progress: Progress | None = None,
) -> Problem:
    """Folders of one's own: labeled by class sub-folders, unlabeled in any shape, a target to test on.

    `web` are crawls: their class sub-folders are the keywords that found the images.
    """
    given = [*unlabeled, *web]
    check_apart(labeled, given, target)
    check_setting(setting, list(map(str, given)), str(target) if target else None)
    names = _unique_names([labeled, *given, *([target] if target else [])])
    source = read_class_folder(labeled, names[0])
    check_classes(source)
    read = [read_pile] * len(unlabeled) + [read_crawl] * len(web)
    piles = [reader(path, name) for reader, path, name in zip(read, given, names[1:], strict=False)]
    for pile, path in zip(piles, given, strict=True):
        if not pile.items:
            raise UserError(f"the unlabeled folder '{path}' holds no image; give a folder with images")
    piles = [pile if pile.web_labels else _labels_by_any_folder(pile, source.classes) for pile in piles]
    goal = read_class_folder(target, names[-1]) if target else None
    if goal:
        if not goal.items:
            raise UserError(f"the target folder '{target}' holds no image; give a folder with images")
        if "" not in goal.labels:
            check_same_classes(source, goal)
    if goal and setting == "uda":
        piles = [_labels_by_any_folder(goal, source.classes)]
    # A pile of one's own is used whole; a benchmark's protocol trains on a part of each domain.
    return _problem(
        [source, *piles],
        goal,
        source.classes,
        UNKNOWN_DATASET,
        size,
        cache,
        progress,
        whole_piles=True,
        setting=setting,
    )


def data_defaults(benchmark: Benchmark) -> Dataset:
    """Image size, augmentation and validation rate: the catalog's where the domains are known."""
    return dataset_of(benchmark.names) or UNKNOWN_DATASET


def _unique_names(paths: Sequence[Path]) -> list[str]:
    """The folders' names, numbered where two are the same."""
    names: list[str] = []
    for path in paths:
        names.append(free_name(path, names))
    return names


def _labels_by_any_folder(pile: Domain, classes: Sequence[str]) -> Domain:
    """Take the first folder that is named like a class; a pile may wrap its class folders in others."""
    known = set(classes)
    labels = tuple(next((p for p in item.parts[:-1] if p in known), "") for item in pile.items)
    return Domain(pile.name, pile.items, labels, pile.classes)


def _problem(
    sources: Sequence[Domain],
    goal: Domain | None,
    classes: tuple[str, ...],
    protocol: Dataset,
    size: int | None,
    cache: Path,
    progress: Progress | None,
    *,
    whole_piles: bool = False,
    setting: Setting,
) -> Problem:
    """Decode and assemble; the first of `sources` is the labeled one."""
    side, rate = size or protocol.image_size, protocol.validation_rate
    rates = [rate, *(0 if whole_piles or setting == "uda" else rate for _ in sources[1:])]
    loaded = [
        load_domain(d, side, cache, validation_rate=r, by_class=i == 0, progress=progress)
        for i, (d, r) in enumerate(zip(sources, rates, strict=True))
    ]
    target = load_domain(goal, side, cache, validation_rate=0, by_class=False, progress=progress) if goal else None
    for domain in (*loaded, *([target] if target else [])):
        check_images(domain.name, len(domain.images), domain.unreadable)
    return assemble(loaded[0], loaded[1:], target, classes, setting)


def assemble(
    labeled: Loaded,
    unlabeled: Sequence[Loaded],
    target: Loaded | None,
    classes: tuple[str, ...],
    setting: Setting = "ssdg",
) -> Problem:
    """The problem of decoded domains; what training may not see goes to the hidden side only."""
    y = labeled.codes(classes)
    inside = y != UNKNOWN
    check_labeled(labeled.name, y[inside & labeled.train], classes)
    train = _labeled_set(labeled, y, labeled.train & inside)
    validation = _labeled_set(labeled, y, labeled.held & inside)
    pools = {
        domain.name: UnlabeledSet(domain.images.take(domain.train), np.full(int(domain.train.sum()), index, np.int64))
        for index, domain in enumerate(unlabeled, start=1)
    }
    task = Task(classes, train, pools, setting)
    stray = [
        (path, "lies outside any class folder") for path, ok in zip(labeled.paths, inside, strict=True) if not ok
    ]
    domains = (labeled, *unlabeled, *([target] if target else []))
    return Problem(
        task=task,
        domains=tuple(domain.name for domain in (labeled, *unlabeled)),
        target=_target(target, classes) if target else None,
        validation=validation if len(validation) else None,
        truth={d.name: d.truth(classes)[d.train] for d in unlabeled},
        web_labels={d.name: d.web_codes(classes)[d.train] for d in unlabeled if d.web_labels},
        paths={d.name: _taken(d.paths, d.train) for d in unlabeled}
        | {labeled.name: _taken(labeled.paths, labeled.train & inside)},
        unreadable=tuple(stray) + tuple(line for domain in domains for line in domain.unreadable),
        fingerprint=_fingerprint(task, validation, target),
    )


def _labeled_set(domain: Loaded, y: NDArray[np.int64], rows: NDArray[np.bool_]) -> LabeledSet:
    count = int(rows.sum())
    return LabeledSet(domain.images.take(rows), y[rows], np.zeros(count, np.int64), trusted=np.ones(count, np.bool_))


def _target(domain: Loaded, classes: Sequence[str]) -> Target:
    return Target(domain.name, domain.images, domain.paths, domain.codes(classes))


def _taken(paths: Sequence[str], rows: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(path for path, here in zip(paths, rows, strict=True) if here)


def _fingerprint(task: Task, validation: LabeledSet, target: Loaded | None) -> str:
    """A hash of contents, labels, splits and size; no path, no domain name and no hidden label goes in."""
    pools = [pool.fingerprint for pool in task.unlabeled.values()]
    goal = target.images.fingerprint if target else ""
    size = task.labeled.images.size
    return digest_of(size, task.classes, task.labeled.fingerprint, validation.fingerprint, goal, *pools)
