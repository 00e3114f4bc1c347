"""From what the user typed to a resolved configuration and a problem, with every refusal before any training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache as remembered
from pathlib import Path

import torch

from ..config import Flat, RunConfig, resolve
from ..data.cache import default_cache as default_cache  # it is asked for here, too
from ..data.catalog import UNKNOWN_DATASET
from ..data.embedded.digits import digits_root
from ..data.embedded.web_digits import web_digits_root
from ..data.hidden import Problem
from ..data.problem import benchmark_problem, data_defaults, folder_problem, other_targets
from ..data.roles import find_roles
from ..data.sets import digest_of
from ..data.sources.benchmark import Benchmark, read_benchmark
from ..discovery.discover import check_discovery
from ..errors import UserError
from ..hub.download import bring_imagenet
from ..machine import Precision, choose_precision
from ..methods import find_method
from ..methods.plugins import load_plugin
from ..models.backbones import build_backbone

EMBEDDED = {"digits": digits_root, "web-digits": web_digits_root}
Report = Callable[[int, int], None]  # done, total


def open_run(given: Flat, cache: Path, *, device: str = "auto") -> tuple[RunConfig, Problem]:
    """Resolve the settings and open the images they name."""
    if not given.get("labeled"):
        raise UserError("no labeled domain was given; add --labeled (a domain of --data, or a folder)")
    given = with_plugin(given)
    benchmark = open_benchmark(given, cache)
    config = settle(given, benchmark, device=device)
    problem = with_web_labels(open_problem(config, benchmark, cache), config)
    check_discovery(config, problem)
    return config, problem


def with_web_labels(problem: Problem, config: RunConfig) -> Problem:
    """The problem whose task has the web-labels, if they are to be used; else no code that trains can reach them."""
    strategy, allowed = config.web_label, find_method(config.method).web_labels
    if strategy not in allowed:
        raise UserError(
            f"method '{config.method}' cannot use web-labels that are {strategy}; give --web-label "
            f"{' or '.join(allowed)}, or --method eid"
        )
    if strategy == "ignored":
        return problem
    if not problem.web_labels:
        raise UserError(f"--web-label {strategy} was given, and no crawl whose keywords it could use; add --web DIR")
    for name, y in problem.web_labels.items():
        if not (y >= 0).any():
            known = ", ".join(problem.task.classes[:8])
            raise UserError(f"no keyword of the crawl '{name}' is a class ({known}); name its sub-folders by classes")
    task = replace(problem.task, web=problem.web_labels, web_label=strategy)
    fingerprint = digest_of(problem.fingerprint, strategy, *problem.web_labels.values())
    return replace(problem, task=task, fingerprint=fingerprint)


def with_others(config: RunConfig, problem: Problem, targets: Sequence[str], cache: Path) -> Problem:
    """The problem with the targets of other runs beside its own, for a method that trains alike on all of them.

    A method that uses unlabeled images trains on others when the target changes, and gets none.
    """
    benchmark = open_benchmark(config.flat(), cache)
    if benchmark is None or not targets or "unlabeled" in find_method(config.method).needs:
        return problem
    others = other_targets(benchmark, [name for name in targets if name != config.target], problem, cache)
    return replace(problem, others=tuple(target for target in others if target.is_labeled))


def open_benchmark(given: Flat, cache: Path) -> Benchmark | None:
    """The domains under `data`, none of their images read; None for own folders."""
    root = find_root(given, cache)
    return read_benchmark(root) if root else None


def settle(given: Flat, benchmark: Benchmark | None, *, device: str = "auto") -> RunConfig:
    """The resolved settings, refused if the domains or the networks they name cannot be had."""
    known = data_defaults(benchmark) if benchmark else UNKNOWN_DATASET
    has_crawl = bool(given.get("web") or (known.web and given.get("unlabeled") is None))
    config = resolve(given, kind=known.augment, size=known.image_size, has_crawl=has_crawl)
    if benchmark:
        find_roles(  # refuses, before anything is decoded
            benchmark,
            labeled=config.labeled,
            target=config.target,
            unlabeled=config.unlabeled,
            web=config.web,
            setting=config.setting,
        )
    precision = try_backbone(config.backbone, config.weights, config.size, device)
    if deeper := getattr(config.settings, "apl_backbone", None):
        weights = getattr(config.settings, "apl_weights", None) or config.weights
        try_backbone(deeper, weights, config.size, device)
    return config.model_copy(update={"precision": precision}) if config.precision == "auto" else config


def with_full_paths(given: Flat) -> Flat:
    """Folders and files as absolute paths, so that a run can be resumed from anywhere."""
    full = dict(given)
    for key in ("unlabeled", "web"):
        if isinstance(full.get(key), str):  # unlabeled=sketch
            full[key] = [full[key]]
    if isinstance(full.get("web"), list | tuple):  # domains of the benchmark keep their names
        full["web"] = [str(Path(str(p)).absolute()) if Path(str(p)).exists() else str(p) for p in full["web"]]
    for key in ("weights", "apl_weights", "plugin"):
        if isinstance(full.get(key), str) and Path(full[key]).is_file():
            full[key] = str(Path(full[key]).absolute())
    if full.get("data") is not None:
        if str(full["data"]) not in EMBEDDED:
            full["data"] = str(Path(str(full["data"])).absolute())
        return full
    for key in ("labeled", "target"):
        if full.get(key) is not None:
            full[key] = str(Path(str(full[key])).absolute())
    if isinstance(full.get("unlabeled"), list | tuple):
        full["unlabeled"] = [str(Path(str(p)).absolute()) for p in full["unlabeled"]]
    return full


def with_plugin(given: Flat) -> Flat:
    """Load the plugin that the settings name; a run goes on only with the file it was started with."""
    path, before = given.get("plugin"), given.get("plugin_digest")
    if path is None:
        return given
    digest = load_plugin(Path(str(path)))
    if before not in (None, digest):
        raise UserError(f"the plugin '{path}' has changed since the run began; restore it, or give another --out")
    return {**given, "plugin_digest": digest}


@remembered  # the many runs of a grid have few backbones
def try_backbone(name: str, weights: str, size: int, device: str) -> Precision:
    """The precision that suits the backbone, once it has been built and has taken an image of this size."""
    bring_imagenet(name, weights)
    backbone = build_backbone(name, weights)
    if size < int(backbone.min_size):
        raise UserError(f"size={size} is too small for {name}; give size={backbone.min_size} or more")
    with torch.inference_mode():
        backbone.eval()(torch.zeros(1, 3, size, size))
    return choose_precision(backbone, device)


def find_root(given: Flat, cache: Path) -> Path | None:
    """The benchmark's folder or zip; None for own folders."""
    data = given.get("data")
    if data is None:
        return None
    return EMBEDDED[str(data)](cache) if str(data) in EMBEDDED else Path(str(data))


def open_problem(config: RunConfig, benchmark: Benchmark | None, cache: Path) -> Problem:
    """The images of a resolved configuration, decoded at most once."""
    if benchmark is not None:
        return benchmark_problem(
            benchmark,
            labeled=config.labeled,
            target=config.target,
            unlabeled=config.unlabeled,
            web=config.web,
            setting=config.setting,
            size=config.size,
            cache=cache,
        )
    return folder_problem(
        Path(config.labeled),
        [Path(p) for p in config.unlabeled or ()],
        Path(config.target) if config.target else None,
        web=[Path(p) for p in config.web or ()],
        setting=config.setting,
        size=config.size,
        cache=cache,
    )
