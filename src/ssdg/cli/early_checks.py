"""Checks without torch, which takes seconds to import, and before any weights: packages, names, folders."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, missing_package_message, unknown
from ..limits import DEVICES

if TYPE_CHECKING:
    from ..schema import RunOptions

TRAINING_PACKAGES = ("torch", "accelerate", "safetensors")
EMBEDDED = ("digits", "web-digits")
EXTERNAL = {"timm": "timm", "hf": "transformers"}  # backbones `timm:NAME` and `hf:NAME`: the package


def check_training(settings: Mapping[str, Any], options: RunOptions) -> None:
    """Check all that needs no torch before a run is opened: packages, device, names of settings, and folders."""
    check_training_packages()
    check_options(options)
    check_names(settings)
    check_backbone_package(settings.get("backbone"))
    check_folders(settings)


def check_training_packages() -> None:
    """Raise an error if a package of the extra `train` is not installed."""
    for name in TRAINING_PACKAGES:
        if name not in sys.modules and find_spec(name) is None:
            raise UserError(missing_package_message(ModuleNotFoundError(name=name)))


def check_options(options: RunOptions) -> None:
    """Raise an error for an unknown device, or if the package of a logger is not installed."""
    check_device_name(options.device)
    for name, is_used in (("tensorboard", options.tensorboard), ("wandb", options.wandb is not None)):
        if is_used and name not in sys.modules and find_spec(name) is None:
            raise UserError(
                f"--{name} needs the package {name}, which is not installed; run pip install 'ssdg[{name}]'"
            )


def check_device_name(device: str) -> None:
    """Raise an error for a device that does not exist on any machine."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)


def check_names(settings: Mapping[str, Any]) -> None:
    """Raise an error for an unknown method, preset or setting, as the registry of methods would.

    Methods of a plugin are not known before it runs, and a registry that is loaded knows more than the index.
    """
    if "ssdg.methods" in sys.modules or settings.get("plugin") is not None:
        return
    from .methods import read_index

    index, method = read_index(), str(settings.get("method", "eid"))
    names = {*index.run_settings, *index.settings_of(method)}
    preset = str(settings.get("preset", "paper"))
    if preset not in index.presets:
        raise unknown("preset", preset, index.presets)
    for key in settings:
        if key not in names:
            raise unknown(f"setting of method '{method}'", str(key), sorted(names))


def check_backbone_package(backbone: object) -> None:
    """Raise an error if a backbone comes from a package that is not installed."""
    extra = str(backbone).partition(":")[0]
    package = EXTERNAL.get(extra)
    if package is not None and package not in sys.modules and find_spec(package) is None:
        raise UserError(
            f"backbone '{backbone}' needs the package {package}, which is not installed; "
            f"run pip install 'ssdg[{extra}]'"
        )


def check_folders(settings: Mapping[str, Any]) -> None:
    """Raise an error for a folder that does not exist or has two roles; domains of a benchmark are checked later."""
    from ..data.roles import check_disjoint
    from ..data.sources.tree import check_root

    labeled, data = settings.get("labeled"), settings.get("data")
    if not labeled:
        raise UserError("no labeled domain was given; add --labeled (a domain of --data, or a folder)")
    if data is None:
        folders = [*_paths(settings.get("unlabeled")), *_paths(settings.get("web"))]
        check_disjoint(_paths(labeled)[0], folders, next(iter(_paths(settings.get("target"))), None))
    elif str(data) in EMBEDDED:
        from ..data.embedded.digits import check_packages

        check_packages()
    else:
        check_root(Path(str(data)).absolute())


def _paths(value: object) -> list[Path]:
    """Return the paths of a setting: none, one or a list."""
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [Path(str(part)).absolute() for part in values]


def check_model(folder: Path) -> None:
    """Raise an error if there is no model to load, or no torch to load it with."""
    from ..inference.classifier import check_model_folder, model_of

    check_training_packages()
    check_model_folder(model_of(folder))
