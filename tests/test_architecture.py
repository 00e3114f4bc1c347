"""Who may import whom: the rules that keep hidden labels out of reach."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "ssdg"
LEAVES = {"devices", "errors", "files", "profiling", "seeds"}
# package: the parts of ssdg it may import
ALLOWED = {
    "losses": {"losses"},
    "models": {"models"},
    "data": {"data"},
    "web": {"web", "data", "__version__"},  # it never trains
    "hub": {"hub", "data.catalog", "data.sources", "data.splits", "models.weights", "web.refusal", "__version__"},
    "methods": {"losses", "models", "data.sets", "methods"},
    "engine": {
        "data",
        "methods.api",
        "methods",
        "engine",
        "models.backbones",
        "models.style_statistics",
        "hub.weights",
        "config",
        "plugins",
    },
    "serving": {"serving", "data", "engine.predictions", "engine.rejection"},
    "estimator": {"estimator", "data", "engine", "config", "display", "inference"},
    "export": {"export", "data", "engine", "inference", "methods.api"},  # it reads models and never trains
    "bench": {"bench", "config", "engine", "data.catalog", "data.folders", "methods"},
    "selection": {"selection", "bench.folder"},  # files only
    "report": {"report", "bench.folder", "bench.results", "bench.tables"},
}
NAMED_METHODS = {f"methods.{name}" for name in ("eid", "adaptation", "generalization", "semi", "source_only")}


def imports(path: Path) -> set[str]:
    """The modules of ssdg that a file imports, by their names below `ssdg`."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            found |= {module} if node.module else {f"{module}.{alias.name}".strip(".") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ssdg":
            found.add((node.module or "").removeprefix("ssdg").strip("."))
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("ssdg.") for a in node.names if a.name.startswith("ssdg.")}
    return found


def belongs(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_what_they_may(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in files
        for module in imports(path)
        if not belongs(module, ALLOWED[package] | LEAVES)
    }
    assert not wrong


def test_no_method_loss_or_model_can_see_hidden_labels() -> None:
    seen = {}

    def reach(module: str) -> set[str]:
        """Everything that importing a module brings along, however far."""
        if module not in seen:
            seen[module] = set()
            path = ROOT / module.replace(".", "/")
            file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
            if file.exists():
                direct = imports(file)
                seen[module] = direct.union(*(reach(m) for m in direct)) if direct else set()
        return seen[module]

    for package in ("methods", "losses", "models"):
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            assert "data.hidden" not in reach(module), module


HEAVY = ("torch", "accelerate", "safetensors")


def at_run_time(path: Path) -> list[ast.stmt]:
    """The statements at the top of a file, without what is for type checkers alone."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node for node in body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))]


def test_what_serves_brings_no_torch_along() -> None:
    """Neither directly nor through the modules of ours that it imports."""
    waiting, seen = [*(ROOT / "serving").rglob("*.py"), ROOT / "cli" / "predict.py"], set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        for node in at_run_time(path):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not [name for name in names if name.split(".")[0] in HEAVY], path
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                waiting += [base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names)]
    assert ROOT / "data" / "decode.py" in seen


def test_the_engine_and_the_benchmarks_import_no_named_method() -> None:
    for path in [*(ROOT / "engine").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]:
        assert not {m for m in imports(path) if belongs(m, NAMED_METHODS)}, path


def test_nothing_needs_torchvision() -> None:
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {a.name for n in at_top if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in at_top if isinstance(n, ast.ImportFrom)}
        assert not any(name.split(".")[0] == "torchvision" for name in names), path


def test_no_two_test_files_share_a_name() -> None:
    """Pytest imports them by their bare names: the second of two would not be collected."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
