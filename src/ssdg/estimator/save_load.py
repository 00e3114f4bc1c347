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

from ..artifact.card import README
from ..artifact.load import CARD, WEIGHTS, damaged, own_file, read_json
from ..errors import UserError
from ..files import write_bytes, write_json

NAME = "estimator.json"
OF_MACHINE = ("out", "device", "threads", "cache")  # parameters that mean nothing elsewhere
FILES = frozenset({CARD, WEIGHTS, README, NAME})


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
        card = EstimatorCard.model_validate(read_json(path))
    except (OSError, ValidationError) as error:
        raise damaged(path, type(error).__name__) from None
    counts = {len(classes), len(card.labels), len({*card.labels})}
    if sorted(card.classes) != sorted(classes) or len(counts) > 1:
        raise UserError(f"'{path}' tells of other classes than the model beside it; copy the model folder anew")
    return card


def read_params(model: Path) -> dict[str, Any]:
    """The parameters that make such an estimator again; of a run by the command line a few."""
    try:
        params: dict[str, Any] = EstimatorCard.model_validate(read_json(model / NAME)).params
    except (FileNotFoundError, NotADirectoryError):
        params = _few_params(model / CARD)
    except (OSError, ValidationError) as error:
        raise damaged(model / NAME, type(error).__name__) from None
    return {name: value for name, value in params.items() if name not in OF_MACHINE}


def _few_params(path: Path) -> dict[str, Any]:
    try:
        told = read_json(path)
        return {name: told[name] for name in ("method", "backbone", "size")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # `load_model` tells what is wrong


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a model, and nothing else that may lie beside them."""
    return {name: own_file(folder / name).read_bytes() for name in sorted(FILES) if (folder / name).exists()}


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
    check_replaceable(folder)
    files = read_files(source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        write_files(aside / "new", files)
        if folder.exists():
            folder.replace(aside / "old")
        (aside / "new").replace(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_replaceable(folder: Path) -> None:
    """Refuse a file, and a folder that has anything but a model."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"'{folder}' is a file; give a folder for the model")
    names = {path.name for path in folder.iterdir()}
    if names and (CARD not in names or names - FILES):
        other = sorted(names - FILES) or sorted(names)
        raise UserError(f"'{folder}' is no model folder (it has '{other[0]}') and is not overwritten; give another")
