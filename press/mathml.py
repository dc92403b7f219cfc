"""Mathematics without a script: LaTeX becomes native MathML when the site is built.

math-core was chosen over latex2mathml (which leaves `aligned` unconverted) and over a shipped MathJax (a script of
two megabytes on each page).
"""

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
converter = LatexToMathML()


def convert(latex: str, node: nodes.Node, *, displaystyle: bool) -> str:
    """MathML of one formula; what cannot be converted is a warning, which ends the build."""
    try:
        return converter.convert_with_local_state(latex, displaystyle=displaystyle)
    except LatexError as error:
        logger.warning("cannot convert %r to MathML: %s", latex, error, location=node)
        return ""


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(convert(node.astext(), node, displaystyle=False))
    raise nodes.SkipNode


def visit_displaymath(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="om-equation"))
    self.body.append('<div class="om-formula">')
    self.body.append(convert(node.astext(), node, displaystyle=True))
    self.body.append("</div>")
    if node["number"]:
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="eqno">({number})')
        self.add_permalink_ref(node, _("Link to this equation"))
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
