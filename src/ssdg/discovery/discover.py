"""Unknown domains: piles of unlabeled images split by style, once for a run, into domains that methods take for true.

Only the look of the images counts: no name, no folder, no hidden label, no true domain.
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
from ..data.streams import EVAL_BATCH, Pipeline, evaluation_batches
from ..errors import UserError
from ..files import atomic_path
from ..machine import Machine
from ..models.backbones import build_backbone
from ..models.styles import plain_statistics, stage_statistics
from .clusters import Parts, find_parts

FILE = "domains.npz"
MERGED = "unlabeled"  # what all unlabeled domains of a benchmark are called as one pile


@dataclass(frozen=True, eq=False)
class Pile:
    """Images in the order of their content, and where each came from: (domain, row in it)."""

    name: str
    images: ImageTable
    domain: tuple[str, ...]  # names of the domains that are in it
    source: NDArray[np.intp]  # (n,) index into `domain`
    row: Rows


def check_discovery(config: RunConfig, problem: Problem) -> None:
    """Refuse what cannot be split, before any image is looked at."""
    wanted, option = config.discover_domains, f"--discover-domains {config.discover_domains}"
    if wanted is None:
        return
    if not problem.task.unlabeled:
        raise UserError(f"{option} splits unlabeled images and none were given; add --unlabeled, or leave it out")
    if config.setting == "uda":
        raise UserError(
            f"{option} splits unlabeled domains, and with --setting uda the target is the one; leave it out"
        )
    if problem.web_labels:
        name = next(iter(problem.web_labels))
        raise UserError(f"{option} cannot split the crawl '{name}', which has keywords; give it with --unlabeled")
    for pile in piles_of(config, problem):
        if wanted != "auto" and wanted > len(pile.images):
            raise UserError(
                f"{option} is more than the {len(pile.images):,} images of '{pile.name}'; give fewer, or auto"
            )


@dataclass(frozen=True, eq=False)
class Discovery:
    """The problem whose unlabeled domains are those found by style, and how surely each was split from a pile."""

    problem: Problem
    strengths: Mapping[str, tuple[float, ...]]  # by pile

    def about(self) -> dict[str, Any]:
        """For events and `result.json`; nothing hidden."""
        pools = self.problem.task.unlabeled
        return {"domains": {name: len(pool) for name, pool in pools.items()}, "strengths": dict(self.strengths)}


def discover(
    config: RunConfig, problem: Problem, folder: Path, pipeline: Pipeline, machine: Machine
) -> Discovery | None:
    """Find the domains, or read those that the run folder keeps; None if they are not asked for."""
    if config.discover_domains is None:
        return None
    path = folder / FILE
    if machine.is_main and not path.exists():
        piles = piles_of(config, problem)
        save_parts(path, piles, [find_styles(pile, config, pipeline) for pile in piles])
    machine.wait()
    return known_domains(config, problem, folder)


def known_domains(config: RunConfig, problem: Problem, folder: Path) -> Discovery:
    """The domains that a run folder keeps."""
    piles = piles_of(config, problem)
    parts = load_parts(folder / FILE, piles)
    strengths = {pile.name: found.strengths for pile, found in zip(piles, parts, strict=True)}
    return Discovery(with_parts(problem, piles, parts), strengths)


def piles_of(config: RunConfig, problem: Problem) -> list[Pile]:
    """Own folders one by one; the unlabeled domains of a benchmark as one pile, so that true ones can be compared."""
    pools = problem.task.unlabeled
    if config.data is None:
        return [make_pile(name, {name: pool.images}) for name, pool in pools.items()]
    taken = {problem.domains[0], problem.target.name if problem.target else ""}
    name = MERGED if MERGED not in taken else f"{MERGED} images"
    return [make_pile(name, {name: pool.images for name, pool in pools.items()})]


def make_pile(name: str, domains: Mapping[str, ImageTable]) -> Pile:
    """All images of these domains in the order of their digests: where an image came from cannot be read off it."""
    tables = list(domains.values())
    whole = concat_tables(tables)
    words = np.ascontiguousarray(whole.digest).view(">u8")
    order = np.lexsort((words[:, 1], words[:, 0]))
    source = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    row = np.concatenate([np.arange(len(table)) for table in tables])
    return Pile(name, whole.take(order), tuple(domains), source[order], row[order])


def find_styles(pile: Pile, config: RunConfig, pipeline: Pipeline) -> Parts:
    """The parts of a pile; a number that is more than its images (of a rehearsal) is as many."""
    given = config.discover_domains
    wanted = None if given == "auto" or given is None else min(given, len(pile.images))
    if wanted == 1:
        return Parts(torch.zeros(len(pile.images), dtype=torch.long), ())
    return find_parts(style_features(pile.images, config, pipeline), wanted, config.seed, "discover")


def style_features(images: ImageTable, config: RunConfig, pipeline: Pipeline) -> torch.Tensor:
    """Statistics of the first maps of the run's backbone as it was pretrained; of the pixels where it was not."""
    with torch.inference_mode():
        batches = evaluation_batches(images, EVAL_BATCH, pipeline)
        if config.weights == "none":
            return torch.cat([plain_statistics(x).cpu() for x in batches])
        backbone = build_backbone(config.backbone, config.weights).eval().to(pipeline.device)
        return torch.cat([stage_statistics(backbone, x).cpu() for x in batches])


def with_parts(problem: Problem, piles: Sequence[Pile], parts: Sequence[Parts]) -> Problem:
    """The problem with the parts as its unlabeled domains; the hidden side goes along, image by image."""
    pools: dict[str, UnlabeledSet] = {}
    truth, paths, origin = {}, {problem.domains[0]: problem.paths.get(problem.domains[0], ())}, {}
    for pile, found in zip(piles, parts, strict=True):
        of = found.of.numpy()
        for number in range(int(of.max()) + 1):
            name = f"{pile.name}#{number + 1}" if of.max() else pile.name
            rows = np.flatnonzero(of == number)
            pools[name] = UnlabeledSet(pile.images.take(rows), np.full(len(rows), len(pools) + 1, np.int64))
            places = [(pile.domain[s], r) for s, r in zip(pile.source[rows], pile.row[rows], strict=True)]
            if all(domain in problem.truth for domain in pile.domain):
                truth[name] = np.array([problem.truth[domain][row] for domain, row in places], np.int64)
            if all(problem.paths.get(domain) for domain in pile.domain):
                paths[name] = tuple(problem.paths[domain][row] for domain, row in places)
            origin[name] = tuple(domain for domain, _ in places)
    return replace(
        problem,
        task=replace(problem.task, unlabeled=pools),
        domains=(problem.domains[0], *pools),
        truth=truth,
        paths=paths,
        origin=origin,
    )


def save_parts(path: Path, piles: Sequence[Pile], parts: Sequence[Parts]) -> None:
    """The part of every image, pile by pile, and the strengths of the splits, atomically."""
    arrays: dict[str, Any] = {}
    for number, (pile, found) in enumerate(zip(piles, parts, strict=True)):
        arrays |= {f"{number}": found.of.numpy(), f"strengths{number}": np.array(found.strengths)}
        arrays[f"images{number}"] = np.array(pile.images.fingerprint)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def load_parts(path: Path, piles: Sequence[Pile]) -> list[Parts]:
    """Read what `save_parts` wrote; nothing in it is executed."""
    found = []
    try:
        with np.load(path, allow_pickle=False) as file:
            for number, pile in enumerate(piles):
                if str(file[f"images{number}"]) != pile.images.fingerprint:
                    raise UserError(f"{path} is of other images than '{pile.name}' has; give another --out")
                strengths = tuple(file[f"strengths{number}"].tolist())
                found.append(Parts(torch.from_numpy(file[f"{number}"]), strengths))
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is missing or damaged; delete the run folder and train again") from None
    return found
