"""Rewrite run-files.md from src/ssdg/schema.py: `python docs/make_run_files.py`."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from pydantic import BaseModel

from ssdg import schema

PAGE = Path(__file__).with_name("run-files.md")
# The model of each file, followed by the models nested in it.
FILES: dict[str, tuple[type[BaseModel], ...]] = {
    "run.json": (schema.RunFile, schema.RunOptions),
    "result.json": (
        schema.Result,
        schema.Task,
        schema.Epoch,
        schema.Unsupervised,
        schema.Audit,
        schema.DomainAudit,
        schema.Phase,
        schema.Scores,
        schema.WebLabels,
        schema.Discovery,
        schema.Profile,
    ),
    "events.jsonl": (*schema.EVENTS.values(), schema.PlannedStage),
    "stages/*.safetensors (metadata)": (schema.StageMeta, schema.HistoryRow),
    "samples/index.json": (schema.Index, schema.SampledDomain),
}
HEAD = f"""# Run files

This page lists every field of the JSON files in a [run folder](runs.md). Read them with any JSON library, or with the
models in `src/ssdg/schema.py`, which `ssdg` uses to write and read them and from which this page is generated:

```sh
python -c "import json; print(json.load(open('runs/first/result.json'))['target']['final']['mean'])"
```

`result.json` has format {schema.RESULT_FORMAT}. Format 1 (version 0.1) lacks `kind`, `title`, `group` and `stage`;
it is upgraded when read. Readers ignore unknown keys. Percentages are in [0, 100]. A field with a default may be
missing. `events.jsonl` has one event per line, `{{"time": seconds since 1970, "event": name, ...}}`.
"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for file, models in FILES.items():
        parts.append(f"## {file}\n")
        for model in models:
            parts.append(f"### `{model.__name__}`\n\n{inspect.getdoc(model)}\n\n{table(model)}\n")
    return "\n".join(parts)


def table(model: type[BaseModel]) -> str:
    """Return the fields of a model with their types, defaults and comments."""
    rows = [row for base in reversed(model.__mro__) if base in ALL for row in own_fields(base)]
    return "\n".join(["| Field | Type | Default | Meaning |", "|---|---|---|---|", *rows])


def own_fields(model: type) -> list[str]:
    """Return the table rows of the fields that a class itself declares."""
    lines = inspect.getsource(model).splitlines()
    (body,) = (node.body for node in ast.parse("\n".join(lines)).body if isinstance(node, ast.ClassDef))
    rows = []
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :].strip(" #")
            field = model.model_fields[node.target.id]  # type: ignore[attr-defined]
            default = "required" if field.is_required() else f"`{ast_default(node)}`"
            kind = ast.unparse(node.annotation).replace("|", "\\|")
            rows.append(f"| `{field.alias or node.target.id}` | `{kind}` | {default} | {comment} |")
    return rows


def ast_default(node: ast.AnnAssign) -> str:
    """Return the source code of a default; for a `Field(...)`, its first argument."""
    value = node.value
    if isinstance(value, ast.Call) and value.args:
        value = value.args[0]
    return ast.unparse(value) if value is not None else "None"


ALL = {value for value in vars(schema).values() if isinstance(value, type) and issubclass(value, BaseModel)} - {
    BaseModel
}

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
