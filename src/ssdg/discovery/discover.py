"""Domain discovery: split mixed-domain images by style into domains, once per run.

Only the appearance of the images counts: no name, no folder, no hidden label, no true domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..config import RunConfig
from ..data.hidden import Problem
from ..data.sets import ImageTable, Rows, UnlabeledSet, concat_tables
from ..data.sources.npz import open_arrays
from ..data.streams import EVAL_BATCH, Pipeline, evaluation_batches
from ..errors import ZIP_ERRORS, UserError
from ..files import atomic_path, open_file
from ..machine import Machine
from ..models.backbones import build_backbone
from ..models.styles import plain_statistics, stage_statistics
from .clusters import Clustering, find_clusters

FILE = "domains.npz"
SEED_NAME = "discover"
MERGED = "unlabeled"  # the name of all unlabeled domains of a benchmark taken together


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixed-domain images in the order of their content, and the origin of each: (domain, row)."""

    name: str
    images: ImageTable
    domains: tuple[str, ...]  # names of the domains it contains
    source: NDArray[np.intp]  # (n,) index into `domains`
    row: Rows


def check_discovery(config: RunConfig, problem: Problem) -> None:
    """Reject settings and data that cannot be split, before any image is read."""
    number, option = config.discover_domains, f"--discover-domains {config.discover_domains}"
    if number is None:
        return
    if not problem.task.unlabeled:
        raise UserError(f"{option} splits unlabeled images and none were given; add --unlabeled, or omit it")
    if config.setting == "uda":
        raise UserError(
            f"{option} splits unlabeled domains, and with --setting uda the target is the only one; omit it"
        )
    if problem.web_labels:
        name = next(iter(problem.web_labels))
        raise UserError(f"{option} cannot split the crawl '{name}', which has keywords; give it with --unlabeled")
    for mixture in make_mixtures(config, problem):
        if number != "auto" and number > len(mixture.images):
            raise UserError(
                f"{option} is more than the {len(mixture.images):,} images of '{mixture.name}'; give fewer, or auto"
            )


@dataclass(frozen=True, eq=False)
class Discovery:
    """The problem with the discovered domains as unlabeled domains, and the strength of every split."""

    problem: Problem
    strengths: Mapping[str, tuple[float, ...]]  # by mixture

    def summary(self) -> dict[str, Any]:
        """Return the facts for events and `result.json`; nothing hidden."""
        pools = self.problem.task.unlabeled
        return {"domains": {name: len(pool) for name, pool in pools.items()}, "strengths": dict(self.strengths)}


def discover(
    config: RunConfig, problem: Problem, folder: Path, pipeline: Pipeline, machine: Machine
) -> Discovery | None:
    """Discover the domains, or read those stored in the run folder; None if discovery is off."""
    if config.discover_domains is None:
        return None
    path = folder / FILE
    if machine.is_main and not path.exists():
        mixtures = make_mixtures(config, problem)
        save_clusterings(path, mixtures, [cluster_styles(mixture, config, pipeline) for mixture in mixtures])
    machine.wait()
    return known_domains(config, problem, folder)


def known_domains(config: RunConfig, problem: Problem, folder: Path) -> Discovery:
    """Return the domains stored in a run folder."""
    mixtures = make_mixtures(config, problem)
    clusterings = load_clusterings(folder / FILE, mixtures)
    pairs = list(zip(mixtures, clusterings, strict=True))
    strengths = {mixture.name: clustering.strengths for mixture, clustering in pairs}
    return Discovery(with_clusters(problem, pairs), strengths)


def make_mixtures(config: RunConfig, problem: Problem) -> list[Mixture]:
    """Return one mixture per custom folder, or one of all unlabeled domains of a benchmark."""
    pools = problem.task.unlabeled
    if config.data is None:
        return [mix(name, {name: pool.images}) for name, pool in pools.items()]
    taken = {problem.domains[0], problem.target.name if problem.target else ""}
    name = MERGED if MERGED not in taken else f"{MERGED} images"
    return [mix(name, {name: pool.images for name, pool in pools.items()})]


def mix(name: str, domains: Mapping[str, ImageTable]) -> Mixture:
    """Return all images of these domains in the order of their digests, which does not reveal their origin."""
    tables = list(domains.values())
    whole = concat_tables(tables)
    words = np.ascontiguousarray(whole.digest).view(">u8")
    order = np.lexsort((words[:, 1], words[:, 0]))
    source = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    row = np.concatenate([np.arange(len(table)) for table in tables])
    return Mixture(name, whole.take(order), tuple(domains), source[order], row[order])


def cluster_styles(mixture: Mixture, config: RunConfig, pipeline: Pipeline) -> Clustering:
    """Cluster the images of a mixture; a number above its number of images (in a dry run) is reduced to that."""
    setting = config.discover_domains
    number = None if setting == "auto" or setting is None else min(setting, len(mixture.images))
    if number == 1:
        return Clustering(torch.zeros(len(mixture.images), dtype=torch.long), ())
    features = style_features(mixture.images, config.backbone, config.weights, pipeline)
    return find_clusters(features, number, config.seed, SEED_NAME)


def style_features(images: ImageTable, name: str, weights: str, pipeline: Pipeline) -> torch.Tensor:
    """Return statistics of the first maps of a pretrained backbone; of the pixels if it is not pretrained."""
    with torch.inference_mode():
        batches = evaluation_batches(images, EVAL_BATCH, pipeline)
        if weights == "none":
            return torch.cat([plain_statistics(x).cpu() for x in batches])
        backbone = build_backbone(name, weights).eval().to(pipeline.device)
        return torch.cat([stage_statistics(backbone, x).cpu() for x in batches])


def with_clusters(problem: Problem, pairs: Sequence[tuple[Mixture, Clustering]]) -> Problem:
    """Return the problem with the clusters as its unlabeled domains; hidden labels follow image by image."""
    pools: dict[str, UnlabeledSet] = {}
    truth, paths, origin = {}, {problem.domains[0]: problem.paths.get(problem.domains[0], ())}, {}
    for mixture, clustering in pairs:
        cluster = clustering.of.numpy()
        for number in range(int(cluster.max()) + 1):
            name = domain_name(mixture.name, number, int(cluster.max()) + 1)
            rows = np.flatnonzero(cluster == number)
            pools[name] = UnlabeledSet(mixture.images.take(rows), np.full(len(rows), len(pools) + 1, np.int64))
            sources = [(mixture.domains[s], r) for s, r in zip(mixture.source[rows], mixture.row[rows], strict=True)]
            if all(domain in problem.truth for domain in mixture.domains):
                truth[name] = np.array([problem.truth[domain][row] for domain, row in sources], np.int64)
            if all(problem.paths.get(domain) for domain in mixture.domains):
                paths[name] = tuple(problem.paths[domain][row] for domain, row in sources)
            origin[name] = tuple(domain for domain, _ in sources)
    return replace(
        problem,
        task=replace(problem.task, unlabeled=pools),
        domains=(problem.domains[0], *pools),
        truth=truth,
        paths=paths,
        origin=origin,
    )


def domain_name(mixture: str, number: int, count: int) -> str:
    """Return the name of a discovered domain, by its number from 0; a mixture that is not split keeps its name."""
    return f"{mixture}#{number + 1}" if count > 1 else mixture


def save_clusterings(path: Path, mixtures: Sequence[Mixture], clusterings: Sequence[Clustering]) -> None:
    """Write the cluster of every image and the strengths of the splits, atomically."""
    arrays: dict[str, Any] = {}
    for number, (mixture, clustering) in enumerate(zip(mixtures, clusterings, strict=True)):
        arrays |= {f"{number}": clustering.of.numpy(), f"strengths{number}": np.array(clustering.strengths)}
        arrays[f"images{number}"] = np.array(mixture.images.fingerprint)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def load_clusterings(path: Path, mixtures: Sequence[Mixture]) -> list[Clustering]:
    """Read what `save_clusterings` wrote; nothing in it is executed."""
    clusterings = []
    try:
        with open_file(path) as opened, open_arrays(opened) as arrays:
            for number, mixture in enumerate(mixtures):
                if str(arrays.read(f"images{number}")) != mixture.images.fingerprint:
                    raise UserError(
                        f"{path} was made from other images than '{mixture.name}' has; give another --out"
                    )
                strengths = tuple(arrays.read(f"strengths{number}").tolist())
                clusterings.append(Clustering(torch.from_numpy(arrays.read(f"{number}")), strengths))
    except (OSError, KeyError, AttributeError, TypeError, *ZIP_ERRORS) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is missing or damaged; delete the run folder and train again") from None
    return clusterings
