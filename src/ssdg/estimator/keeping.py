"""The model folder of an estimator: the user's own labels and the parameters beside the networks; copies of it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from ..errors import UserError
from ..files import write_bytes, write_json

NAME = "estimator.json"
OF_MACHINE = ("out", "device", "threads", "cache")  # parameters that mean nothing elsewhere
FILES = frozenset({"model.json", "model.safetensors", NAME})


class EstimatorCard(BaseModel):
    """`estimator.json`: labels in the order of `classes_`, of one kind, and the networks' name of each."""

    model_config = ConfigDict(extra="ignore")

    labels: list[StrictBool] | list[StrictInt] | list[StrictFloat] | list[StrictStr]
    classes: list[StrictStr]
    params: dict[str, Any] = {}  # as far as JSON can hold them


def write_card(model: Path, labels: NDArray[Any], classes: Sequence[str], params: Mapping[str, Any]) -> None:
    """Write `estimator.json` beside the networks."""
    kept = {name: value for name, value in params.items() if name not in OF_MACHINE}
    values = json.loads(json.dumps(kept, default=str))
    write_json(model / NAME, {"labels": labels.tolist(), "classes": list(classes), "params": values})


def read_card(model: Path, classes: Sequence[str]) -> EstimatorCard:
    """`estimator.json`, checked against the classes of the networks; a run by the command line has none."""
    path = model / NAME
    if not path.exists():
        names = np.unique(classes).tolist()
        return EstimatorCard(labels=names, classes=names)
    try:
        card = EstimatorCard.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError):
        raise UserError(f"'{path}' is damaged; copy the model folder anew") from None
    counts = {len(classes), len(card.labels), len({*card.labels})}
    if sorted(card.classes) != sorted(classes) or len(counts) > 1:
        raise UserError(f"'{path}' tells of other classes than the model beside it; copy the model folder anew")
    return card


def read_params(model: Path) -> dict[str, Any]:
    """The parameters that make such an estimator again; of a run by the command line a few."""
    try:
        told = json.loads((model / NAME).read_text(encoding="utf-8"))
        params: dict[str, Any] = EstimatorCard.model_validate(told).params
    except (FileNotFoundError, NotADirectoryError):
        params = _few_params(model / "model.json")
    except (OSError, ValueError):
        raise UserError(f"'{model / NAME}' is damaged; copy the model folder anew") from None
    return {name: value for name, value in params.items() if name not in OF_MACHINE}


def _few_params(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {name: told[name] for name in ("method", "backbone", "size")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # `load_model` tells what is wrong


def model_of(folder: Path) -> Path:
    """The model's folder in a run's folder, or the folder itself."""
    return folder / "model" if (folder / "model").is_dir() else folder


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a model."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files of a model, as they were read."""
    for name, content in files.items():
        write_bytes(folder / name, content)


def copy_model(source: Path, folder: Path) -> None:
    """A whole copy or none; only a model may be replaced."""
    if not source.is_dir():
        raise UserError(
            f"'{source}', where this model was trained or loaded from, is no longer there; load or fit anew"
        )
    check_replaceable(folder, FILES | {path.name for path in source.iterdir()})
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        shutil.copytree(source, aside / "new", ignore=shutil.ignore_patterns(".*"))
        if folder.exists():
            folder.replace(aside / "old")
        (aside / "new").replace(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_replaceable(folder: Path, ours: frozenset[str]) -> None:
    """Refuse a file, and a folder that has anything but a model."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"'{folder}' is a file; give a folder for the model")
    names = {path.name for path in folder.iterdir()}
    if names and ("model.json" not in names or names - ours):
        other = sorted(names - ours) or sorted(names)
        raise UserError(f"'{folder}' is no model folder (it has '{other[0]}') and is not overwritten; give another")
