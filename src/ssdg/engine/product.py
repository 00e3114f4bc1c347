"""What a run leaves behind: the networks with what is needed to use them, and predictions for the target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import RunConfig
from ..data.hidden import Problem
from ..data.streams import Pipeline
from ..files import write_json
from ..methods.api import Learner, Settings
from .evaluate import all_logits, mean_probs
from .predictions import best_two, write_predictions
from .rejection import Rejection
from .result import versions
from .state import save_tensors


@dataclass(frozen=True)
class Built:
    """What is needed to build a learner again."""

    learner: str  # the method whose learner it is
    backbone: str
    num_domains: int
    settings: Settings


def save_model(
    folder: Path,
    learner: Learner,
    built: Built,
    config: RunConfig,
    problem: Problem,
    rejection: Rejection | None,
) -> None:
    """The networks alone and what is needed to use them.

    The product's networks may be those of another method than the run's: `mcd+mixstyle` ships a `mixstyle`.
    """
    tensors = dict(learner.nets.state_dict())
    about = {
        "format": 1,
        "method": config.method,
        "learner": built.learner,
        "backbone": built.backbone,
        "num_domains": built.num_domains,
        "size": config.size,
        "classes": list(problem.task.classes),
        "settings": built.settings.model_dump(mode="json"),
        "reject": rejection.model_dump(mode="json") if rejection else None,
        "fingerprint": problem.fingerprint,
        "versions": versions(),
    }
    save_tensors(folder / "model.safetensors", tensors, {})
    write_json(folder / "model.json", about)


def predict_target(path: Path, learner: Learner, problem: Problem, pipeline: Pipeline) -> None:
    """What the networks together say of every image of the target, whether its classes are known or not."""
    target = problem.target
    if target is not None and len(target.images):
        probs = mean_probs(all_logits(learner, target.images, pipeline)).numpy()
        write_predictions(path, best_two(target.paths, probs, problem.task.classes))
