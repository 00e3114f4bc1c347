"""Semi-supervised domain generalization in PyTorch.

>>> from ssdg import SSDG
>>> model = SSDG("eid", preset="quick", out="runs/mine")
>>> model.fit("photos/", unlabeled=["sketches/", "crawl/"]).predict("new-images/")  # doctest: +SKIP

A run of a benchmark, step by step:

>>> from pathlib import Path
>>> import ssdg
>>> config, problem = ssdg.open_run(
...     {"data": "digits", "labeled": "syn", "target": "mnist", "preset": "quick"}, Path("cache")
... )  # doctest: +SKIP
>>> result = ssdg.run(config, problem, Path("runs/first"), ssdg.start_machine("cpu"))  # doctest: +SKIP
>>> model = ssdg.load_model(Path("runs/first"))  # doctest: +SKIP

The names below and those of `ssdg.methods`, for plugins, are the public API; everything else may move.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .artifact.load import Model as Model
    from .artifact.load import load_model as load_model
    from .config import RunConfig as RunConfig
    from .data.cache import default_cache as default_cache
    from .data.embedded.digits import digits_root as digits_root
    from .data.hidden import Problem as Problem
    from .data.sets import Task as Task
    from .engine.run import run as run
    from .engine.setup import open_run as open_run
    from .errors import NotFinite as NotFinite
    from .errors import Stopped as Stopped
    from .errors import UserError as UserError
    from .estimator import SSDG as SSDG
    from .inference.onnx_model import load_onnx as load_onnx
    from .machine import Machine as Machine
    from .machine import start_machine as start_machine
    from .methods import Method as Method
    from .methods import find_method as find_method
    from .methods import register as register

__version__ = "0.1.0"

# Imported on first use: `import ssdg` alone does not load torch.
_MODULES = {
    "Machine": "machine",
    "Method": "methods",
    "Model": "artifact.load",
    "NotFinite": "errors",
    "Problem": "data.hidden",
    "RunConfig": "config",
    "SSDG": "estimator",
    "Stopped": "errors",
    "Task": "data.sets",
    "UserError": "errors",
    "default_cache": "data.cache",
    "digits_root": "data.embedded.digits",
    "find_method": "methods",
    "load_model": "artifact.load",
    "load_onnx": "inference.onnx_model",
    "open_run": "engine.setup",
    "register": "methods",
    "run": "engine.run",
    "start_machine": "machine",
}
__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ssdg' has no attribute '{name}'")
    try:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        from .errors import missing_package_message

        raise ModuleNotFoundError(f"ssdg.{name}: {missing_package_message(error)}", name=error.name) from None
