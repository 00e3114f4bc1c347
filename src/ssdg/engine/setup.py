"""From user input to a resolved configuration and a problem, with every error before training starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache as memoize
from pathlib import Path
from typing import Any

import torch

from ..config import Flat, RunConfig, resolve
from ..data.cache import default_cache as default_cache
from ..data.catalog import UNKNOWN_DATASET
from ..data.embedded.digits import digits_root
from ..data.embedded.web_digits import web_digits_root
from ..data.hidden import Problem
from ..data.image_side import SMALL_SIDE, typical_side
from ..data.problem import benchmark_problem, data_defaults, folder_problem, other_targets
from ..data.roles import Roles, check_classes, check_disjoint, find_roles, unique_name
from ..data.sets import digest_of
from ..data.sources.benchmark import Benchmark, read_benchmark, read_class_folder
from ..discovery.discover import check_discovery
from ..errors import UserError
from ..hub.download import download_imagenet_weights
from ..machine import Precision, choose_precision, is_fast_at_bf16
from ..methods import METHODS, find_method
from ..methods.plugins import load_confirmed_plugin, load_plugin, plugin_digest
from ..models.backbones import build_backbone
from ..models.frozen import check_boundary

EMBEDDED = {"digits": digits_root, "web-digits": web_digits_root}


def open_run(settings: Flat, cache: Path, *, device: str = "auto") -> tuple[RunConfig, Problem]:
    """Resolve the settings and open the images that they name.

    Parameters
    ----------
    settings
        Run and method settings side by side, as in a YAML file: `labeled` is required; see docs/settings.md.
        A `plugin` among them is executed.
    cache
        Folder for decoded images; every image is decoded once.
    device
        auto, cpu, cuda or mps: decides the precision where the settings say auto.

    Returns
    -------
    config, problem
        The resolved configuration, and the images with their hidden labels. Pass both to `ssdg.run`.

    Raises
    ------
    UserError
        In one sentence, for an unknown setting, domain or backbone, an invalid value, or unusable images.

    Examples
    --------
    >>> import ssdg
    >>> settings = {"data": "digits", "labeled": "syn", "target": "mnist", "preset": "quick"}
    >>> config, problem = ssdg.open_run(settings, ssdg.default_cache(), device="cpu")  # doctest: +SKIP
    >>> config.method, problem.task.classes[:3], list(problem.task.unlabeled)  # doctest: +SKIP
    ('eid', ('0', '1', '2'), ['mnist_m', 'optdigits'])
    """
    confirm_plugin(settings)
    return open_settings(settings, cache, device=device)


def open_settings(settings: Flat, cache: Path, *, device: str = "auto") -> tuple[RunConfig, Problem]:
    """Resolve settings of any origin, such as `run.json`; a plugin that the user has not confirmed is not run."""
    if not settings.get("labeled"):
        raise UserError("no labeled domain was given; add --labeled (a domain of --data, or a folder)")
    settings = with_plugin(settings)
    benchmark = open_benchmark(settings, cache)
    config, roles = resolve_roles(settings, benchmark)
    check_data(config, benchmark, roles)
    config = with_precision(config, device)
    problem = with_web_labels(open_problem(config, benchmark, roles, cache), config)
    check_discovery(config, problem)
    return config, problem


def check_data(config: RunConfig, benchmark: Benchmark | None, roles: Roles | None) -> None:
    """Raise the errors that need no image and no weights: missing folders and classes, unsupported web-labels."""
    strategy, allowed = config.web_label, find_method(config.method).web_labels
    if strategy not in allowed:
        raise UserError(
            f"method '{config.method}' does not support web-labels that are {strategy}; give --web-label "
            f"{' or '.join(allowed)}, or --method eid"
        )
    if benchmark is not None and roles is not None:
        check_classes(benchmark[roles.sources[0]])
        return
    labeled, target = Path(config.labeled), Path(config.target) if config.target else None
    check_disjoint(labeled, [Path(path) for path in (*(config.unlabeled or ()), *(config.web or ()))], target)
    check_classes(read_class_folder(labeled, unique_name(labeled, ())))


def with_web_labels(problem: Problem, config: RunConfig) -> Problem:
    """Return the problem whose task has the web-labels, if they are used; otherwise training cannot reach them."""
    strategy = config.web_label
    if strategy == "ignored":
        return problem
    if not problem.web_labels:
        raise UserError(f"--web-label {strategy} needs a crawl with keywords and none was given; add --web DIR")
    for name, y in problem.web_labels.items():
        if not (y >= 0).any():
            classes = ", ".join(problem.task.classes[:8])
            raise UserError(f"no keyword of the crawl '{name}' is a class ({classes}); name its subfolders by class")
    task = replace(problem.task, web=problem.web_labels, web_label=strategy)
    fingerprint = digest_of(problem.fingerprint, strategy, *problem.web_labels.values())
    return replace(problem, task=task, fingerprint=fingerprint)


def with_other_targets(config: RunConfig, problem: Problem, targets: Sequence[str], cache: Path) -> Problem:
    """Return the problem with the targets of other runs, for a method that trains the same way for all of them.

    A method that uses unlabeled images trains on different ones when the target changes, so it gets none.
    """
    benchmark = open_benchmark(config.flat(), cache)
    if benchmark is None or not targets or "unlabeled" in find_method(config.method).needs:
        return problem
    others = other_targets(benchmark, [name for name in targets if name != config.target], problem, cache)
    return replace(problem, others=tuple(target for target in others if target.is_labeled))


def open_benchmark(settings: Flat, cache: Path) -> Benchmark | None:
    """Return the domains under `data`, with none of their images read; None for custom folders."""
    root = find_root(settings, cache)
    return read_benchmark(root) if root else None


def resolve_config(settings: Flat, benchmark: Benchmark | None, *, device: str = "auto") -> RunConfig:
    """Return the resolved settings, or raise an error if a domain or a network they name is not available."""
    return with_precision(resolve_roles(settings, benchmark)[0], device)


def resolve_roles(settings: Flat, benchmark: Benchmark | None) -> tuple[RunConfig, Roles | None]:
    """Apply the defaults of the data, the preset and the settings, and find the role of each domain.

    A crawl changes defaults, and which domains are crawls follows from the resolved roles.
    """
    known = data_defaults(benchmark) if benchmark else UNKNOWN_DATASET
    data: dict[str, Any] = {"kind": known.augment, "size": known.image_size}
    config = resolve(settings, **data)
    roles = roles_of(config, benchmark)
    if config.preset == "best" and known.augment == "photo":
        data |= describe_images(config, benchmark, roles)
    if roles.crawls if roles else config.web:
        data["has_crawl"] = True
    return resolve(settings, **data), roles


def describe_images(config: RunConfig, benchmark: Benchmark | None, roles: Roles | None) -> dict[str, Any]:
    """Return the kind and size of small labeled images, which preset `best` takes for characters.

    A folder that is missing, or has no readable image, is reported when all images are opened.
    """
    if benchmark is not None and roles is not None:
        domain = benchmark[roles.sources[0]]
    elif Path(config.labeled).exists():
        domain = read_class_folder(Path(config.labeled), config.labeled)
    else:
        return {}
    side = typical_side(domain.items)
    return {"kind": "none", "size": 32} if side is not None and side <= SMALL_SIDE else {}


def roles_of(config: RunConfig, benchmark: Benchmark | None) -> Roles | None:
    """Return the role of each domain of the benchmark, before anything is decoded; None for custom folders."""
    if benchmark is None:
        return None
    return find_roles(
        benchmark,
        labeled=config.labeled,
        target=config.target,
        unlabeled=config.unlabeled,
        web=config.web,
        setting=config.setting,
    )


def with_precision(config: RunConfig, device: str) -> RunConfig:
    """Try all backbones of the configuration, and replace precision=auto and inference=auto with what suits them."""
    precision = try_backbone(config.backbone, config.weights, config.size, device, config.freeze)
    for backbone, weights in config.settings.extra_backbones().values():
        try_backbone(backbone, weights or config.weights, config.size, device, config.freeze)
    best = {"precision": precision, "inference": "bf16" if is_fast_at_bf16(device) else "fp32"}
    return config.model_copy(update={key: value for key, value in best.items() if getattr(config, key) == "auto"})


def with_full_paths(settings: Flat) -> Flat:
    """Return the settings with absolute paths, so that a run can be resumed from anywhere."""
    full = dict(settings)
    for key in ("unlabeled", "web"):
        if isinstance(full.get(key), str):  # unlabeled=sketch
            full[key] = [full[key]]
    if isinstance(full.get("web"), list | tuple):  # domains of the benchmark keep their names
        full["web"] = [absolute(path) if Path(str(path)).exists() else str(path) for path in full["web"]]
    method = METHODS.get(str(full.get("method", "eid")))
    for key in ("weights", "plugin", *(method.settings.path_fields if method else ())):
        if isinstance(full.get(key), str) and Path(full[key]).is_file():
            full[key] = absolute(full[key])
    if full.get("data") is not None:
        full["data"] = str(full["data"]) if str(full["data"]) in EMBEDDED else absolute(full["data"])
        return full
    for key in ("labeled", "target"):
        if full.get(key) is not None:
            full[key] = absolute(full[key])
    if isinstance(full.get("unlabeled"), list | tuple):
        full["unlabeled"] = [absolute(path) for path in full["unlabeled"]]
    return full


def absolute(path: object) -> str:
    """Return a path as text, made absolute."""
    return str(Path(str(path)).absolute())


def confirm_plugin(settings: Flat, *, remember: bool = False) -> None:
    """Load the plugin in settings that the user wrote in code or, with `remember`, on the command line."""
    if settings.get("plugin") is not None:
        load_plugin(Path(str(settings["plugin"])), remember=remember)


def name_plugin(settings: Flat, plugin: Path | None) -> Flat:
    """Return settings of a file with the plugin that the user names for them, if any; its content is confirmed."""
    if plugin is None:
        return settings
    named = {**settings, "plugin": str(plugin.absolute())}
    confirm_plugin(named, remember=True)
    return named


def with_plugin(settings: Flat) -> Flat:
    """Load the plugin that the settings name, if it is confirmed; a run resumes only with the content it had."""
    path, previous = settings.get("plugin"), settings.get("plugin_digest")
    if path is None:
        return settings
    if previous not in (None, plugin_digest(Path(str(path)))):
        raise UserError(f"the plugin '{path}' has changed since the run began; restore it, or give another --out")
    return {**settings, "plugin_digest": load_confirmed_plugin(Path(str(path)))}


@memoize  # the many runs of a grid have few backbones
def try_backbone(name: str, weights: str, size: int, device: str, boundary: str = "none") -> Precision:
    """Build the backbone, pass an image of this size through it, and return the precision that suits it."""
    download_imagenet_weights(name, weights)
    backbone = build_backbone(name, weights)
    if boundary != "none":
        check_boundary(backbone, boundary)
    if size < int(backbone.min_size):
        raise UserError(f"size={size} is too small for {name}; give size={backbone.min_size} or more")
    with torch.inference_mode():
        backbone.eval()(torch.zeros(1, 3, size, size))
    return choose_precision(backbone, device)


def find_root(settings: Flat, cache: Path) -> Path | None:
    """Return the benchmark's folder or zip; None for custom folders."""
    data = settings.get("data")
    if data is None:
        return None
    return EMBEDDED[str(data)](cache) if str(data) in EMBEDDED else Path(str(data))


def open_problem(config: RunConfig, benchmark: Benchmark | None, roles: Roles | None, cache: Path) -> Problem:
    """Return the images of a resolved configuration, each decoded at most once."""
    if benchmark is not None:
        return benchmark_problem(
            benchmark,
            labeled=config.labeled,
            target=config.target,
            unlabeled=config.unlabeled,
            web=config.web,
            setting=config.setting,
            roles=roles,
            size=config.size,
            resize=config.resize,
            cache=cache,
        )
    return folder_problem(
        Path(config.labeled),
        [Path(p) for p in config.unlabeled or ()],
        Path(config.target) if config.target else None,
        web=[Path(p) for p in config.web or ()],
        setting=config.setting,
        size=config.size,
        resize=config.resize,
        cache=cache,
    )
