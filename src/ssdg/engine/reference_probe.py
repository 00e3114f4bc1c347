"""The probe next to a run: a linear classifier on the pretrained features, which no other network should lose to.

It is fitted on the labeled domain and scored like the run. It also gives heads a start for fine-tuning (Kumar et al.,
Fine-Tuning Can Distort Pretrained Features, ICLR 2022).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import RunConfig
from ..data.hidden import Problem
from ..data.sets import ImageTable, evenly_sampled
from ..data.streams import Pipeline, evaluation_batches
from ..files import write_json
from ..models.backbones import build_backbone
from ..models.frozen import freeze
from ..models.heads import LinearHead, UnitHead
from ..models.regression import softmax_regression
from ..profiling import timed
from ..schema import ProbeScores, Unsupervised, read_json, to_json
from .pipelines import Pipelines
from .scores import accuracies, all_logits, unsupervised_scores

C = 10.0  # inverse strength of the penalty, as the default of the method `probe`
MAX_ITER = 300
MAX_IMAGES = 20_000  # labeled images that are used at most: bounds the memory
FILE = "probe.json"
RANDOM_RATE = 0.1  # of a head's random initialization that stays next to the probe


@dataclass(eq=False)
class FeatureProbe:
    """A frozen backbone and a linear layer on its normalized features, scored like any learner."""

    nets: nn.ModuleDict
    opts: dict[str, Any]

    def step(self, batch: object, at: object) -> dict[str, Tensor]:
        """Do nothing: the layer is solved for."""
        return {}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.nets["network"](x)
        return logits.unsqueeze(0)


def has_probe(config: RunConfig) -> bool:
    """Return whether a probe makes sense: the backbone is pretrained, and the run is not the probe itself."""
    return config.weights != "none" and config.method != "probe"


def score_probe(
    config: RunConfig, problem: Problem, pipelines: Pipelines, watched: ImageTable | None, folder: Path | None
) -> ProbeScores:
    """Fit the probe and score it on held-out labeled images, the target and unlabeled images; or read its file."""
    path = folder / FILE if folder is not None else None
    if path is not None and path.exists():
        return read_json(path, ProbeScores)
    start = time.monotonic()
    with timed("probe"):
        probe, pipeline = fit_probe(config, problem, pipelines)
        scores = ProbeScores(images=min(len(problem.task.labeled), MAX_IMAGES))
        if problem.validation is not None and len(problem.validation):
            logits = all_logits(probe, problem.validation.images, pipeline)
            scores.validation = accuracies(logits, problem.validation.y)[-1]
        target = problem.target
        if target is not None and target.is_labeled:
            scores.target = accuracies(all_logits(probe, target.images, pipeline), target.y)[-1]
        if watched is not None:
            values = unsupervised_scores(probe, watched, pipeline)
            scores.unsupervised = Unsupervised.model_validate(values)
    scores.seconds = round(time.monotonic() - start, 3)
    if path is not None:
        write_json(path, to_json(scores))
    return scores


def fit_probe(config: RunConfig, problem: Problem, pipelines: Pipelines) -> tuple[FeatureProbe, Pipeline]:
    """Solve for a linear layer on L2-normalized features of the labeled domain, without augmentation."""
    backbone, pipeline = open_features(config, problem, pipelines)
    head = UnitHead(int(backbone.num_features), len(problem.task.classes)).to(pipeline.device)
    x, y = labeled_features(problem, pipeline)
    with torch.no_grad():
        weight, bias, _ = softmax_regression(F.normalize(x), y, head.weight, head.bias, c=C, max_iter=MAX_ITER)
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    return FeatureProbe(nn.ModuleDict({"network": nn.Sequential(backbone, head)}), {}), pipeline


def open_features(config: RunConfig, problem: Problem, pipelines: Pipelines) -> tuple[Any, Pipeline]:
    """Return the pretrained backbone, frozen, and a pipeline of its stored features."""
    backbone: Any = build_backbone(config.backbone, config.weights)
    freeze(backbone, "all")
    backbone.eval().to(pipelines.images.device)
    return backbone, pipelines.of_backbone(backbone, plain=[problem.task.labeled.images])


def labeled_features(problem: Problem, pipeline: Pipeline) -> tuple[Tensor, Tensor]:
    """Return features (n, F) and classes (n,) of the labeled images, at most MAX_IMAGES."""
    labeled = evenly_sampled(problem.task.labeled, MAX_IMAGES)
    x = torch.cat([batch.flatten(1) for batch in evaluation_batches(labeled.images, 1024, pipeline)])
    return x, pipeline.to_device(labeled.y)


@dataclass(frozen=True)
class HeadStart:
    """The layer that heads start from: W (K, F) and b (K,), for features as the backbone gives them."""

    weight: Tensor
    bias: Tensor

    def put_into(self, nets: nn.Module) -> None:
        """Put it into every linear layer from the backbone's features to the classes.

        A tenth of their own random numbers stays, so that two heads of a learner differ.
        """
        for module in nets.modules():
            if type(module) is LinearHead and module.weight.shape == self.weight.shape:
                with torch.no_grad():
                    module.weight.mul_(RANDOM_RATE).add_(self.weight.to(module.weight.device))
                    module.bias.mul_(RANDOM_RATE).add_(self.bias.to(module.bias.device))


def solve_head(config: RunConfig, problem: Problem, pipelines: Pipelines) -> HeadStart:
    """Solve for the linear layer on features that are divided by their mean norm, and undo the division in it."""
    _, pipeline = open_features(config, problem, pipelines)
    x, y = labeled_features(problem, pipeline)
    scale = x.norm(dim=1).mean().clamp_min(np.finfo(np.float32).tiny)
    num_classes = len(problem.task.classes)
    zeros = torch.zeros(num_classes, x.shape[1], device=x.device), torch.zeros(num_classes, device=x.device)
    weight, bias, _ = softmax_regression(x / scale, y, *zeros, c=C, max_iter=MAX_ITER)
    return HeadStart(weight / scale, bias)
