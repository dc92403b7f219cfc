"""The book's Sphinx extension: its roles, its mathematics, its look on top of sphinx-book-theme."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from press import mathml

THEME = Path(__file__).resolve().parent / "theme"


def coloured(job: str):
    """A role that sets a word in the colour of one of the matrix's two jobs."""

    def role(name, rawtext, text, lineno, inliner, options=None, content=None):
        return [nodes.inline(rawtext, text, classes=[f"om-{job}"])], []

    return role


def setup(app: Sphinx) -> dict:
    mathml.setup(app)
    for job in ("lookup", "unembed"):
        app.add_role(job, coloured(job))
    app.config.templates_path.insert(0, str(THEME / "components"))
    app.config.html_static_path.append(str(THEME / "static"))
    app.add_css_file("om.css", priority=900)
    app.add_js_file("om.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
