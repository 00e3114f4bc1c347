"""Semi-supervised domain generalization in PyTorch.

>>> from ssdg import SSDG
>>> model = SSDG("eid", preset="quick", out="runs/mine")
>>> model.fit("photos/", ["sketches/", "crawl/"]).predict("new-images/")  # doctest: +SKIP

A run of a benchmark, step by step:

>>> from pathlib import Path
>>> import ssdg
>>> config, problem = ssdg.open_run(
...     {"data": "digits", "labeled": "syn", "target": "mnist", "preset": "quick"}, Path("cache")
... )  # doctest: +SKIP
>>> result = ssdg.run(config, problem, Path("runs/first"), ssdg.start_machine("cpu"))  # doctest: +SKIP
>>> model = ssdg.load_model(Path("runs/first"))  # doctest: +SKIP
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Imported when first asked for: `import ssdg` alone does not wait for torch.
_HOMES = {
    "Method": "methods",
    "Model": "artifact.load",
    "Problem": "data.hidden",
    "RunConfig": "config",
    "SSDG": "estimator",
    "Task": "data.sets",
    "UserError": "errors",
    "find_method": "methods",
    "load_model": "artifact.load",
    "load_onnx": "inference.onnx_model",
    "open_run": "engine.setup",
    "register": "methods",
    "run": "engine.run",
    "start_machine": "machine",
}
__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ssdg' has no attribute '{name}'")
    try:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        from .errors import without_torch

        raise ModuleNotFoundError(f"ssdg.{name}: {without_torch(error)}", name=error.name) from None
