"""Model folder of an estimator: the user's labels and the parameters next to the networks; copies of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from ..artifact.card import README
from ..artifact.load import CARD, WEIGHTS, damaged, read_json, regular_file
from ..errors import UserError
from ..files import atomic_folder, read_bytes, write_bytes, write_json

NAME = "estimator.json"
MACHINE_PARAMS = ("out", "device", "threads", "cache", "unlabeled", "web")  # meaningless on another machine
FILES = frozenset({CARD, WEIGHTS, README, NAME})


class EstimatorCard(BaseModel):
    """Content of `estimator.json`: labels of one type in the order of `classes_`, and their names in the model."""

    model_config = ConfigDict(extra="ignore")

    labels: list[StrictBool] | list[StrictInt] | list[StrictFloat] | list[StrictStr]
    classes: list[StrictStr]
    params: dict[str, Any] = {}  # what JSON cannot represent is stored as a string


def write_card(model: Path, labels: NDArray[Any], classes: Sequence[str], params: Mapping[str, Any]) -> None:
    """Write `estimator.json` next to the networks."""
    portable = {name: value for name, value in params.items() if name not in MACHINE_PARAMS}
    values = json.loads(json.dumps(portable, default=str))
    write_json(model / NAME, {"labels": labels.tolist(), "classes": list(classes), "params": values})


def read_card(model: Path, classes: Sequence[str]) -> EstimatorCard:
    """Read `estimator.json` and check it against the classes of the networks; runs of the command line have none."""
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
        raise UserError(f"'{path}' has other classes than its model; copy the model folder again")
    return card


def read_params(model: Path) -> dict[str, Any]:
    """Read the parameters that recreate the estimator; runs of the command line have only a few."""
    try:
        params: dict[str, Any] = EstimatorCard.model_validate(read_json(model / NAME)).params
    except (FileNotFoundError, NotADirectoryError):
        params = _read_card_params(model / CARD)
    except (OSError, ValidationError) as error:
        raise damaged(model / NAME, type(error).__name__) from None
    return {name: value for name, value in params.items() if name not in MACHINE_PARAMS}


def _read_card_params(path: Path) -> dict[str, Any]:
    try:
        card = read_json(path)
        return {name: card[name] for name in ("method", "backbone", "size")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # `load_model` reports the problem


def read_files(folder: Path) -> dict[str, bytes]:
    """Read the files of a model, weights of any size, ignoring any others in the folder."""
    names = [name for name in sorted(FILES) if (folder / name).exists()]
    return {name: read_bytes(regular_file(folder / name), max_bytes=None) for name in names}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a model, as returned by `read_files`."""
    for name, content in files.items():
        write_bytes(folder / name, content)


def copy_model(source: Path, folder: Path) -> None:
    """Copy a model completely or not at all; replace only another model."""
    if not source.is_dir():
        raise UserError(
            f"'{source}', where this model was trained or loaded from, no longer exists; load or fit it again"
        )
    check_replaceable(folder)
    files = read_files(source)
    with atomic_folder(folder) as temporary:
        write_files(temporary, files)


def check_replaceable(folder: Path) -> None:
    """Reject a file, and a folder that contains anything but a model."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"'{folder}' is a file; pass a folder for the model")
    names = {path.name for path in folder.iterdir()}
    if names and (CARD not in names or names - FILES):
        other = sorted(names - FILES) or sorted(names)
        raise UserError(
            f"'{folder}' is not a model folder (it contains '{other[0]}'), so it is not overwritten; choose another"
        )
