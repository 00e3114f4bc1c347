"""The product of a run: the model folder, its card, and predictions for the target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..artifact.calibration import Calibration, calibrate, calibrated_probs, known_scores
from ..artifact.card import README, RESIZE_NAMES, Domain, ModelCard, Preprocessing, Training, license_notes, readme
from ..artifact.load import CARD, WEIGHTS
from ..artifact.tensors import save_tensors
from ..config import RunConfig, strip_folders
from ..data.hidden import Problem
from ..data.sets import ResizeMode
from ..data.streams import Pipeline
from ..files import file_name, write_json, write_text
from ..inference.predictions import best_two, write_predictions
from ..inference.rejection import Rejection, choose_thresholds
from ..methods.api import Learner, Settings
from ..models.backbones import backbones_of
from ..schema import Result
from .result import versions
from .scores import all_logits


@dataclass(frozen=True)
class BuiltLearner:
    """What is needed to build a learner again."""

    learner: str  # the method whose learner it is
    backbone: str
    num_domains: int
    settings: Settings


def save_model(folder: Path, learner: Learner, card: ModelCard) -> None:
    """Write the networks, their card, and a README."""
    save_tensors(folder / WEIGHTS, dict(learner.nets.state_dict()), {})
    write_json(folder / CARD, card.model_dump(mode="json"))
    write_text(folder / README, readme(card))


def make_card(
    learner: Learner, built: BuiltLearner, config: RunConfig, problem: Problem, pipeline: Pipeline, result: Result
) -> ModelCard:
    """Return the contents of `model.json`, without any path of this machine.

    The product's networks may belong to another method than the run's: `mcd+mixstyle` ships a `mixstyle`.
    """
    rejection, calibration = held_out_facts(learner, problem, pipeline)
    return ModelCard(
        format=1,
        method=config.method,
        learner=built.learner,
        backbone=built.backbone,
        num_domains=built.num_domains,
        size=config.size,
        classes=problem.task.classes,
        settings=strip_folders(built.settings.model_dump(mode="json"), built.settings.path_fields),
        preprocessing=preprocessing_of(learner, config.size, config.resize),
        reject=rejection,
        calibration=calibration,
        training=training_of(config, problem, result),
        licence=license_notes(config, problem, built.backbone),
        fingerprint=problem.fingerprint,
        versions=versions(),
    )


def held_out_facts(
    learner: Learner, problem: Problem, pipeline: Pipeline
) -> tuple[Rejection | None, Calibration | None]:
    """Return thresholds and temperature from the held-out images of the labeled domain; None if there are none.

    They are of the run's own precision: bfloat16 may keep every class and still move scores.
    """
    held_out = problem.validation
    if held_out is None or not len(held_out):
        return None, None
    logits = all_logits(learner, held_out.images, replace(pipeline, inference="fp32"))
    return choose_thresholds(known_scores(logits)), calibrate(logits, held_out.y)


def preprocessing_of(learner: Learner, size: int, resize: ResizeMode) -> Preprocessing:
    """Return how images are resized, and the normalization of the first backbone, if it declares one."""
    backbone = next(iter(backbones_of(learner.nets)), None)
    normalize = getattr(backbone, "normalize", None)
    if normalize is None:
        return Preprocessing(size=size, resize=RESIZE_NAMES[resize])
    mean, std = ([round(value, 6) for value in part.flatten().tolist()] for part in (normalize.mean, normalize.std))
    return Preprocessing.model_validate({"size": size, "resize": RESIZE_NAMES[resize], "mean": mean, "std": std})


def training_of(config: RunConfig, problem: Problem, result: Result) -> Training:
    """Return a short form of `result.json`."""
    task, target = problem.task, problem.target
    return Training(
        method=config.method,
        preset=config.preset,
        seed=config.seed,
        setting=config.setting,
        hash=config.hash,
        weights=file_name(config.weights),
        labeled=Domain(name=problem.domains[0], images=len(task.labeled)),
        unlabeled=tuple(Domain(name=name, images=len(pool)) for name, pool in task.unlabeled.items()),
        target=Domain(name=target.name, images=len(target.images)) if target is not None else None,
        held_out=len(problem.validation) if problem.validation is not None else 0,
        accuracy=final_accuracy(result),
    )


def final_accuracy(result: Result) -> dict[Literal["validation", "target"], dict[str, float]]:
    """Return the accuracy (%) of the last epoch on held-out images and on the target, where known."""
    accuracy: dict[Literal["validation", "target"], dict[str, float]] = {}
    if result.validation is not None:
        accuracy["validation"] = result.validation.final
    if result.target is not None:
        accuracy["target"] = result.target.final
    return accuracy


def predict_target(
    path: Path, learner: Learner, problem: Problem, pipeline: Pipeline, temperature: float | None
) -> None:
    """Write the predictions of the averaged networks for every image of the target, labeled or not."""
    target = problem.target
    if target is not None and len(target.images):
        probs = calibrated_probs(all_logits(learner, target.images, pipeline), temperature).numpy()
        write_predictions(path, best_two(target.paths, probs, problem.task.classes))
