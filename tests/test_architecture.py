"""Who may import whom: the rules that keep hidden labels out of reach and the package navigable.

`python tests/test_architecture.py` prints the table of docs/architecture.md.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "ssdg"
PAGES = Path(__file__).parent.parent
LEAVES = {
    "bounded_yaml",
    "devices",
    "errors",
    "files",
    "limits",
    "overrides",
    "profiling",
    "safe_csv",
    "seeds",
    "terminal",
}  # single files that everything may import
# Folder (or single file): the other parts of ssdg that it may import.
ALLOWED = {
    "losses": set(),
    "models": set(),
    "data": set(),
    "schema": set(),
    "methods": {"losses", "models", "data.sets", "schema"},
    "machine": {"methods.api"},
    "config": {"methods", "data.sets", "models.frozen"},
    "inference": {"data.parallel", "data.sources"},
    "web": {"data", "inference.rejection", "__version__"},
    "hub": {"data.catalog", "data.sources", "models.weights", "web.untrusted", "__version__"},
    "discovery": {"config", "data", "machine", "models.backbones", "models.styles"},
    "artifact": {"config", "data", "inference", "machine", "methods", "models.backbones", "models.folding"},
    "engine": {
        "artifact",
        "config",
        "data",
        "discovery",
        "hub.download",
        "inference.agreement",
        "inference.classifier",
        "inference.predictions",
        "inference.rejection",
        "machine",
        "methods",
        "models",
        "schema",
    },
    "display": {"config", "data.hidden", "engine.events", "engine.timing", "schema"},
    "estimator": {"artifact", "config", "data", "display", "engine", "machine"},
    "export": {"artifact", "data.sources", "methods.api"},
    "bench": {"config", "data", "engine", "machine", "methods", "schema"},
    "selection": {"bench.folder", "schema"},
    "report": {
        "bench.folder",
        "bench.tables.paper_figures",
        "bench.tables.results_table",
        "data.sources",
        "schema",
    },
}
NAMED_METHODS = {
    f"methods.{name}" for name in ("eid", "adaptation", "frozen", "generalization", "semi", "source_only")
}
HEAVY = ("torch", "accelerate", "safetensors")
TORCH_FREE = ("inference", "report", "selection", "schema.py", "cli/predict.py")
BANNED_NAMES = {"told", "found", "given", "place", "places"}
MOST_FILES = 20  # of a folder
PUBLIC = {"ssdg", "ssdg.methods"}


def source_files(part: str) -> list[Path]:
    """The files of a folder, or the file of this name."""
    path = ROOT / part
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").strip(".")


def imports(path: Path) -> set[str]:
    """The modules of ssdg that a file imports, by their names below `ssdg`."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
            modules |= {resolved(base, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ssdg":
            modules |= {resolved((node.module or "").split(".")[1:], alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {a.name.removeprefix("ssdg.") for a in node.names if a.name.startswith("ssdg.")}
    return modules


def resolved(base: list[str], name: str) -> str:
    """`base.name` if that is a module or the package has no such module, else `base`."""
    path = ROOT.joinpath(*base, name)
    is_module = path.with_suffix(".py").exists() or (path / "__init__.py").exists()
    return ".".join([*base, name] if is_module or not base else base)


def belongs(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_packages_import_only_what_they_may(part: str) -> None:
    files = source_files(part)
    assert files
    wrong = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in files
        for module in imports(path)
        if not belongs(module, {part} | ALLOWED[part] | LEAVES)
    }
    assert not wrong


def test_every_folder_has_a_rule() -> None:
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders - {"cli"} <= ALLOWED.keys()  # commands may import everything


def test_folders_do_not_import_each_other_in_circles() -> None:
    parts = {*ALLOWED, "cli"}
    graph = {
        part: {module.split(".")[0] for path in source_files(part) for module in imports(path)} & parts - {part}
        for part in parts
    }
    while ends := {part for part, targets in graph.items() if not targets & graph.keys()}:
        graph = {part: targets for part, targets in graph.items() if part not in ends}
    assert not graph, "in a circle"


def test_no_method_loss_or_model_can_see_hidden_labels() -> None:
    seen: dict[str, set[str]] = {}

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
            assert "data.hidden" not in reach(module_name(path)), path


def at_run_time(path: Path) -> list[ast.stmt]:
    """The statements at the top of a file, without what is for type checkers alone."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node for node in body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))]


@pytest.mark.parametrize("part", TORCH_FREE)
def test_what_needs_no_torch_brings_none_along(part: str) -> None:
    """Neither directly nor through the modules of ours that it imports."""
    waiting, seen = source_files(part) if (ROOT / part).is_dir() else [ROOT / part], set()
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
    assert ROOT / "errors.py" in seen


def test_shared_code_imports_no_named_method() -> None:
    for path in [*(ROOT / "engine").rglob("*.py"), *(ROOT / "bench").rglob("*.py"), ROOT / "config.py"]:
        assert not {m for m in imports(path) if belongs(m, NAMED_METHODS)}, path


def test_nothing_needs_torchvision() -> None:
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {a.name for n in at_top if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in at_top if isinstance(n, ast.ImportFrom)}
        assert not any(name.split(".")[0] == "torchvision" for name in names), path


def test_folders_are_small_and_names_are_unique() -> None:
    for folder in {path.parent for path in ROOT.rglob("*.py")}:
        assert len(list(folder.glob("*.py"))) <= MOST_FILES, folder
    counts = Counter(path.name for path in ROOT.rglob("*.py") if path.name != "__init__.py")
    assert not [name for name, count in counts.items() if count > 1]


def identifiers(path: Path) -> set[str]:
    """Every name that a file defines or uses."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for field in ("id", "arg", "attr", "name"):
            value = getattr(node, field, None)
            names |= {value} if isinstance(value, str) else set()
    return names


def test_no_identifier_says_how_it_came_about() -> None:
    assert not {str(p.relative_to(ROOT)): n for p in ROOT.rglob("*.py") if (n := identifiers(p) & BANNED_NAMES)}


def code_of(path: Path) -> str:
    """Python of a script or, in a page, of its code blocks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return text
    return "\n".join(block.split("```")[0] for block in text.split("```python\n")[1:])


@pytest.mark.parametrize(
    "path",
    [*PAGES.glob("examples/*.py"), *PAGES.glob("docs/**/*.md"), PAGES / "README.md"],
    ids=lambda path: path.name,
)
def test_docs_and_examples_use_the_public_api(path: Path) -> None:
    for node in ast.walk(ast.parse(code_of(path))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ssdg":
            assert node.module in PUBLIC
        elif isinstance(node, ast.Import):
            assert all(alias.name in PUBLIC for alias in node.names if alias.name.split(".")[0] == "ssdg")


def test_the_public_api_is_there() -> None:
    import ssdg
    import ssdg.methods

    for module in (ssdg, ssdg.methods):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_no_two_test_files_share_a_name() -> None:
    """Pytest imports them by their bare names: the second of two would not be collected."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def import_table() -> str:
    """The rules as a Markdown table."""
    rows = [f"| `{part}` | {', '.join(f'`{m}`' for m in sorted(ALLOWED[part])) or '-'} |" for part in ALLOWED]
    return "\n".join(["| Part | may import |", "|---|---|", *rows])


def test_the_page_has_the_import_table() -> None:
    assert import_table() in (PAGES / "docs" / "architecture.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    print(import_table())
