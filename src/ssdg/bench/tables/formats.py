"""A results table as text, Markdown, LaTeX, CSV or JSON. The same table gives the same characters."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any, Literal

from ...safe_csv import write_rows
from .results_table import Entry, Line, Mark, Table
from .significance import Comparison
from .text import (
    TESTS_CAPTION,
    Cells,
    arrow,
    comparison_cells,
    comparison_header,
    fixed,
    paper_number,
    plain_text,
    rows_by_family,
    seed_count,
    spread,
)

Format = Literal["text", "markdown", "latex", "csv", "json"]
LEGEND = "Bold: best of its column; underlined: second best."
MARKDOWN_MARKS: dict[Mark, str] = {"": "{}", "best": "**{}**", "second": "<ins>{}</ins>"}
LATEX_MARKS: dict[Mark, str] = {"": "{}", "best": "\\textbf{{{}}}", "second": "\\underline{{{}}}"}
LATEX_ESCAPES = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    ">": "$\\rightarrow$",
    "±": "$\\pm$",
    "−": "$-$",
    "<": "$<$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def render(table: Table, form: Format) -> str:
    """Render the table in one of the formats, with a trailing newline."""
    return WRITERS[form](table)


def render_markdown(table: Table) -> str:
    """Render GitHub tables: the results, and the paired tests below."""

    def ours(entry: Entry) -> str:
        mean = MARKDOWN_MARKS[entry.mark].format(fixed(entry.mean))
        return f"{mean}{spread(entry, ' ± ')}{seed_count(table, entry)}"

    body = []
    for family, rows in rows_by_family(table):
        for index, row in enumerate(rows):
            name = "paper" if row.is_paper else _code(row.line.name)
            body.append(["" if index else family, name, *row.cells(table.columns, ours, paper_number)])
    head = ["Family", "Method", *(arrow(column) for column in table.columns)]
    parts = [" ".join([*table.notes, LEGEND]), pipes(head, body)]
    if table.comparisons:
        tests = [[_code(cells[0]), *cells[1:]] for cells in map(comparison_cells, table.comparisons)]
        parts.append(pipes(comparison_header(table), tests, left=1))
    return "\n\n".join(parts) + "\n"


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|")


def pipes(head: Cells, body: list[Cells], *, left: int = 2) -> str:
    """Render a Markdown table; all but the first `left` columns are right-aligned."""
    ruler = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ruler, *body))


def render_latex(table: Table) -> str:
    """Render tables for `booktabs`, `graphicx` and `multirow`: the results by family, and the paired tests."""

    def ours(entry: Entry) -> str:
        details = (spread(entry, "$\\pm$") + seed_count(table, entry)).strip()
        mean = LATEX_MARKS[entry.mark].format(fixed(entry.mean))
        return f"{mean} {{\\scriptsize {details}}}" if details else mean

    groups = []
    for family, rows in rows_by_family(table):
        first = f"\\multirow{{{len(rows)}}}{{*}}{{{tex(family)}}}" if len(rows) > 1 else tex(family)
        lines = []
        for index, row in enumerate(rows):
            name = "\\quad paper" if row.is_paper else tex(row.line.name)
            lines.append(tex_row(["" if index else first, name, *row.cells(table.columns, ours, paper_number)]))
        groups.append("\n".join(lines))
    head = ["", "Method", *(tex(column) for column in table.columns)]
    caption = tex(" ".join([*table.notes, LEGEND]))
    parts = ["% \\usepackage{booktabs, graphicx, multirow}", tabular(caption, head, groups, left=2)]
    if table.comparisons:
        tests = [tex_row([tex(cell) for cell in comparison_cells(c)]) for c in table.comparisons]
        header = [tex(cell) for cell in comparison_header(table)]
        parts.append(tabular(tex(TESTS_CAPTION), header, ["\n".join(tests)], left=1))
    return "\n".join(parts) + "\n"


def tex_row(cells: Cells) -> str:
    """Render a line of a `tabular`."""
    return " & ".join(cells) + " \\\\"


def tabular(caption: str, head: Cells, groups: Sequence[str], *, left: int) -> str:
    """Render a LaTeX table for `booktabs` and `graphicx`, with a rule between groups of lines."""
    return "\n".join(
        [
            "\\begin{table*}[t]",
            "\\centering",
            f"\\caption{{{caption}}}",
            "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%",  # no wider than the page
            f"\\begin{{tabular}}{{{'l' * left}{'r' * (len(head) - left)}}}",
            "\\toprule",
            tex_row(head),
            "\\midrule",
            "\n\\midrule\n".join(groups),
            "\\bottomrule",
            "\\end{tabular}}",
            "\\end{table*}",
        ]
    )


def tex(text: str) -> str:
    """Escape the characters that are special in LaTeX."""
    return "".join(LATEX_ESCAPES.get(character, character) for character in text)


def render_csv(table: Table) -> str:
    """Render one line per row and task, and one for the row's average; unknown values are empty."""
    rows: list[list[Any]] = [["row", "family", "task", "number", "seeds", "mean", "deviation", "paper", "mark"]]
    for line in table.lines:
        for column in table.columns:
            entry = line.entries[column]
            numbers = [_rounded(value) for value in (entry.mean, entry.deviation, entry.paper)]
            rows.append([line.name, line.family, column, table.number, len(entry.values), *numbers, entry.mark])
    file = StringIO()
    write_rows(file, rows, lineterminator="\n")
    return file.getvalue()


def render_json(table: Table) -> str:
    """Render everything, with the value of every seed."""
    content = {
        "suite": table.suite,
        "number": table.number,
        "notes": list(table.notes),
        "tasks": list(table.tasks),
        "rows": [_line_json(table, line) for line in table.lines],
        "comparisons": [_comparison_json(comparison) for comparison in table.comparisons],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _line_json(table: Table, line: Line) -> dict[str, Any]:
    entries = {column: _entry_json(line.entries[column]) for column in table.columns}
    return {"name": line.name, "family": line.family, "cells": entries}


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "mean": _rounded(entry.mean),
        "deviation": _rounded(entry.deviation),
        "seeds": {str(seed): _rounded(value) for seed, value in entry.values.items()},
        "paper": _rounded(entry.paper),
        "mark": entry.mark,
    }


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    interval = comparison.interval
    return {
        "row": comparison.row,
        "other": comparison.other,
        "pairs": comparison.num_pairs,
        "difference": _rounded(comparison.difference),
        "interval": [_rounded(value) for value in interval] if interval else None,
        "p_t": _rounded(comparison.p_t, 6),
        "p_permutation": _rounded(comparison.p_permutation, 6),
    }


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


WRITERS: dict[Format, Callable[[Table], str]] = {
    "text": plain_text,
    "markdown": render_markdown,
    "latex": render_latex,
    "csv": render_csv,
    "json": render_json,
}
