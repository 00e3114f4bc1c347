"""Build the documentation site from README.md and docs/: `make docs` writes it to build/site.

The source folder is the root of the repository, so a relative link leads to the same file here and on a forge.
The pages stay plain Markdown: the navigation (navigation.md, and the list of a folder's pages) is added on reading.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ssdg import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SITE = Path(__file__).parent
ROOT = SITE.parent.parent

project = "ssdg"
version = release = __version__
root_doc = "README"
include_patterns = ["*.md", "benchmarks/*.md", "docs/*.md", "docs/**/*.md"]
exclude_patterns = [".*", "build", "dist", "runs", "src", "tests", "docs/site/navigation.md"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_heading_anchors = 6  # of all levels, with the names that a forge gives them
default_role = "code"  # a docstring's `name` is code, as in Markdown
nitpicky = False  # most types of signatures belong to packages without an inventory here: builds use no network
highlight_language = "text"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90
napoleon_google_docstring = False
napoleon_use_param = False  # one line for "method, backbone, preset", as the docstring has it
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"ssdg {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_additional_pages = {"index": "index.html"}
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the navigation to the landing page, and to the README of a folder the list of its other pages."""
    folder, _, page = name.rpartition("/")
    if name == root_doc:
        source[0] += "\n" + (SITE / "navigation.md").read_text(encoding="utf-8")
    elif page == "README" and len(list((ROOT / folder).glob("*.md"))) > 1:
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def escape_bars(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Escape the `|` of formulas outside code, which reStructuredText reads as the start of a substitution."""
    for number, line in enumerate(lines):
        parts = line.split("`")  # every second part is code
        lines[number] = "`".join(part if odd % 2 else part.replace("|", r"\|") for odd, part in enumerate(parts))


def hide_protocol_arguments(
    app: Sphinx, kind: str, name: str, value: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Drop the `(*args, **kwargs)` of protocols, which nobody constructs."""
    return ("", returns) if getattr(value, "_is_protocol", False) else (signature, returns)


def setup(app: Sphinx) -> None:
    """Register the hooks of this file."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-process-signature", hide_protocol_arguments)
