"""Build the problem of a run from domains; report every mistake in the data before training starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .catalog import UNKNOWN_DATASET, Dataset, identify_dataset
from .hidden import UNKNOWN, Problem, Target
from .loading import LoadedDomain, load_domain
from .parallel import ProgressCallback
from .roles import (
    Roles,
    apply_manifest,
    check_classes,
    check_disjoint,
    check_images,
    check_labeled,
    check_same_classes,
    check_setting,
    domain_folder,
    find_roles,
    read_crawl,
    read_crawls,
    read_unlabeled,
    unique_name,
)
from .sets import LabeledSet, ResizeMode, Setting, Task, UnlabeledSet, digest_of
from .sources.benchmark import Benchmark, Domain, read_benchmark, read_class_folder


def benchmark_problem(
    root: Path | Benchmark,
    *,
    labeled: str,
    target: str | None,
    unlabeled: Sequence[str] | None = None,
    web: Sequence[str] | None = None,
    setting: Setting = "ssdg",
    roles: Roles | None = None,
    size: int | None = None,
    resize: ResizeMode = "squash",
    cache: Path,
    progress: ProgressCallback | None = None,
) -> Problem:
    """Build the problem of one labeled, some unlabeled and one unseen domain of a benchmark root.

    `web` are crawls: domains of the root, or folders. Without `web` and `unlabeled`, all other domains are unlabeled;
    in the web benchmarks only the crawled one is.
    In the setting `uda` the target, complete and without its labels, is the unlabeled domain.
    `roles`: the result of `find_roles` for the same arguments, if the caller already has it.
    """
    benchmark = root if isinstance(root, Benchmark) else read_benchmark(root)
    if roles is None:
        roles = find_roles(benchmark, labeled=labeled, target=target, unlabeled=unlabeled, web=web, setting=setting)
    domains = [apply_manifest(d, domain_folder(d, benchmark.root)) for d in map(benchmark.__getitem__, roles.sources)]
    sources = [*domains, *read_crawls(benchmark, roles)]
    check_classes(sources[0])
    target_domain = benchmark[roles.target] if roles.target else None
    if target_domain:
        check_same_classes(sources[0], target_domain)
    protocol = data_defaults(benchmark)
    return _load_problem(
        sources,
        target_domain,
        sources[0].classes,
        protocol,
        size,
        cache,
        progress,
        resize=resize,
        setting=setting,
    )


def other_targets(benchmark: Benchmark, names: Sequence[str], problem: Problem, cache: Path) -> tuple[Target, ...]:
    """Load further domains of the benchmark as targets, at the image size of the problem."""
    images, classes = problem.task.labeled.images, problem.task.classes
    load = partial(load_domain, validation_rate=0, by_class=False, resize=images.resize)
    loaded = [load(benchmark[name], images.size, cache) for name in names]
    return tuple(_target(domain, classes) for domain in loaded)


def folder_problem(
    labeled: Path,
    unlabeled: Sequence[Path],
    target: Path | None = None,
    *,
    web: Sequence[Path] = (),
    setting: Setting = "ssdg",
    size: int | None = None,
    resize: ResizeMode = "squash",
    cache: Path,
    progress: ProgressCallback | None = None,
) -> Problem:
    """Build the problem of custom folders: labeled with class subfolders, unlabeled in any layout, optional target.

    `web` are crawls: their class subfolders are the keywords that found the images.
    """
    folders = [*unlabeled, *web]
    check_disjoint(labeled, folders, target)
    check_setting(setting, list(map(str, folders)), str(target) if target else None)
    names = _unique_names([labeled, *folders, *([target] if target else [])])
    source = read_class_folder(labeled, names[0])
    check_classes(source)
    readers = [read_unlabeled] * len(unlabeled) + [read_crawl] * len(web)
    pools = [read(path, name) for read, path, name in zip(readers, folders, names[1:], strict=False)]
    for pool, path in zip(pools, folders, strict=True):
        if not pool.items:
            raise UserError(f"the unlabeled folder '{path}' contains no images; choose a folder with images")
    pools = [pool if pool.web_labels else _label_by_any_folder(pool, source.classes) for pool in pools]
    target_domain = read_class_folder(target, names[-1]) if target else None
    if target_domain:
        if not target_domain.items:
            raise UserError(f"the target folder '{target}' contains no images; choose a folder with images")
        if "" not in target_domain.labels:
            check_same_classes(source, target_domain)
    if target_domain and setting == "uda":
        pools = [_label_by_any_folder(target_domain, source.classes)]
    # Custom folders are used completely; a benchmark's protocol trains on a part of each domain.
    return _load_problem(
        [source, *pools],
        target_domain,
        source.classes,
        UNKNOWN_DATASET,
        size,
        cache,
        progress,
        resize=resize,
        use_all_unlabeled=True,
        setting=setting,
    )


def data_defaults(benchmark: Benchmark) -> Dataset:
    """Return image size, augmentation and validation rate: from the catalog if it knows the domains."""
    return identify_dataset(benchmark.names) or UNKNOWN_DATASET


def _unique_names(paths: Sequence[Path]) -> list[str]:
    """Return the folder names, numbered where two are the same."""
    names: list[str] = []
    for path in paths:
        names.append(unique_name(path, names))
    return names


def _label_by_any_folder(pool: Domain, classes: Sequence[str]) -> Domain:
    """Label images by the first folder named like a class; an unlabeled folder may wrap class folders in others."""
    known = set(classes)
    labels = tuple(next((p for p in item.parts[:-1] if p in known), "") for item in pool.items)
    return replace(pool, labels=labels)


def _load_problem(
    sources: Sequence[Domain],
    target: Domain | None,
    classes: tuple[str, ...],
    protocol: Dataset,
    size: int | None,
    cache: Path,
    progress: ProgressCallback | None,
    *,
    resize: ResizeMode,
    use_all_unlabeled: bool = False,
    setting: Setting,
) -> Problem:
    """Decode and assemble; the first of `sources` is the labeled domain."""
    image_size, rate = size or protocol.image_size, protocol.validation_rate
    load = partial(load_domain, resize=resize, progress=progress)
    # In domain adaptation every target image is unlabeled training data and is evaluated, as the protocol demands.
    use_all = use_all_unlabeled or setting == "uda"
    loaded = [
        load(sources[0], image_size, cache, validation_rate=rate, by_class=True),
        *(
            load(
                domain,
                image_size,
                cache,
                validation_rate=0 if use_all else rate,
                by_class=False,
                use_splits=setting != "uda",
            )
            for domain in sources[1:]
        ),
    ]
    loaded_target = None
    if target:
        loaded_target = load(target, image_size, cache, validation_rate=0, by_class=False)
    for domain in (*loaded, *([loaded_target] if loaded_target else [])):
        check_images(domain.name, len(domain.images), domain.unreadable)
    return assemble(loaded[0], loaded[1:], loaded_target, classes, setting)


def assemble(
    labeled: LoadedDomain,
    unlabeled: Sequence[LoadedDomain],
    target: LoadedDomain | None,
    classes: tuple[str, ...],
    setting: Setting = "ssdg",
) -> Problem:
    """Assemble the problem of decoded domains; what training must not see goes to the hidden side only."""
    y = labeled.class_indices(classes)
    has_class = y != UNKNOWN
    check_labeled(labeled.name, y[has_class & labeled.train], classes)
    train = _labeled_set(labeled, y, labeled.train & has_class)
    validation = _labeled_set(labeled, y, labeled.held_out & has_class)
    pools = {
        domain.name: UnlabeledSet(domain.images.take(domain.train), np.full(int(domain.train.sum()), index, np.int64))
        for index, domain in enumerate(unlabeled, start=1)
    }
    task = Task(classes, train, pools, setting)
    stray = [
        (path, "lies outside any class folder") for path, ok in zip(labeled.paths, has_class, strict=True) if not ok
    ]
    domains = (labeled, *unlabeled, *([target] if target else []))
    return Problem(
        task=task,
        domains=tuple(domain.name for domain in (labeled, *unlabeled)),
        target=_target(target, classes) if target else None,
        validation=validation if len(validation) else None,
        truth={d.name: d.truth(classes)[d.train] for d in unlabeled},
        web_labels={d.name: d.web_class_indices(classes)[d.train] for d in unlabeled if d.web_labels},
        paths={d.name: _select_paths(d.paths, d.train) for d in unlabeled}
        | {labeled.name: _select_paths(labeled.paths, labeled.train & has_class)},
        unreadable=tuple(stray) + tuple(entry for domain in domains for entry in domain.unreadable),
        fingerprint=_fingerprint(task, validation, target),
    )


def _labeled_set(domain: LoadedDomain, y: NDArray[np.int64], rows: NDArray[np.bool_]) -> LabeledSet:
    count = int(rows.sum())
    return LabeledSet(domain.images.take(rows), y[rows], np.zeros(count, np.int64), trusted=np.ones(count, np.bool_))


def _target(domain: LoadedDomain, classes: Sequence[str]) -> Target:
    return Target(domain.name, domain.images, domain.paths, domain.class_indices(classes))


def _select_paths(paths: Sequence[str], mask: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(path for path, is_selected in zip(paths, mask, strict=True) if is_selected)


def _fingerprint(task: Task, validation: LabeledSet, target: LoadedDomain | None) -> str:
    """Return a hash of contents, labels, splits and size, but of no path, domain name or hidden label."""
    pools = [pool.fingerprint for pool in task.unlabeled.values()]
    target_fingerprint = target.images.fingerprint if target else ""
    size = task.labeled.images.size
    return digest_of(size, task.classes, task.labeled.fingerprint, validation.fingerprint, target_fingerprint, *pools)
