"""The book's Sphinx extension: its roles, its mathematics, its look on top of sphinx-book-theme."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from press import mathml

THEME = Path(__file__).resolve().parent / "theme"
SHORT = 16  # characters


def coloured(job: str):
    """A role that sets a word in the colour of one of the matrix's two jobs."""

    def role(name, rawtext, text, lineno, inliner, options=None, content=None):
        return [nodes.inline(rawtext, text, classes=[f"om-{job}"])], []

    return role


def name_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Give each cell the anchor `cell-ID`, so that other pages can point at what printed a figure."""
    for node in doctree.findall(nodes.container):
        cell_id = node.get("cell_metadata", {}).get("id")
        if cell_id:
            node["ids"].append(f"cell-{cell_id}")


def keep_tokens_whole(app: Sphinx, doctree: nodes.document) -> None:
    """Mark short pieces of code, tokens above all, so that no line breaks at a token's leading space."""
    for node in doctree.findall(nodes.literal):
        if len(node.astext()) <= SHORT:
            node["classes"].append("om-short")


def bring_to_life(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Load the live pieces' code on the pages that hold one, and on no other."""
    if doctree and any('class="om-live"' in node.astext() for node in doctree.findall(nodes.raw)):
        app.add_css_file("live/live.css")
        app.add_js_file("live/main.js", type="module")


def setup(app: Sphinx) -> dict:
    mathml.setup(app)
    for job in ("lookup", "unembed"):
        app.add_role(job, coloured(job))
    # Both, because the theme names some of its components with their folder and some without.
    app.config.templates_path[:0] = [str(THEME / "components"), str(THEME)]
    app.config.html_static_path.append(str(THEME / "static"))
    app.connect("doctree-read", name_cells)
    app.connect("doctree-read", keep_tokens_whole)
    app.connect("html-page-context", bring_to_life)
    app.add_css_file("om.css", priority=900)
    app.add_js_file("om.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
