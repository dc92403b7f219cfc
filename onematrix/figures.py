"""One style for every figure, drawn once and read in light and dark.

A figure becomes one inline SVG whose colours are CSS variables with the light colour as fallback: on
the site they follow the reader's switch, in a plain notebook the figure looks as drawn here.
"""

import html
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from cycler import cycler
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

from onematrix.pins import RECORD, emit

# The two roles of the matrix, the same two colours on every page, and the neutral ones.
LOOKUP = "#17688a"
UNEMBED = "#ad4a14"
INK = "#1c2530"
MUTED = "#5a6673"
GRID = "#d5dbe1"
PAPER = "#fdfdfc"
VARIABLES = {
    LOOKUP: "--om-lookup",
    UNEMBED: "--om-unembed",
    INK: "--om-ink",
    MUTED: "--om-muted",
    GRID: "--om-grid",
    PAPER: "--om-paper",
}

STYLE = {
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.prop_cycle": cycler(color=[LOOKUP, UNEMBED, MUTED]),
    "lines.linewidth": 2,
    "legend.frameon": False,
    "svg.fonttype": "none",  # real text: selectable, small, in the page's own font
    "svg.hashsalt": "onematrix",  # the same figure gives the same bytes
}


def new(width: float = 7.0, height: float = 3.6, **grid) -> tuple:
    """A figure and its axes in the book's style (inches); `grid` goes to `Figure.subplots`."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(**grid)


def cells(ax, strength: Sequence[Sequence[float]], labels: Sequence[Sequence[str]], colour: str = UNEMBED) -> None:
    """Fill `ax` with a grid of labelled cells, first row on top; strength 0 to 1 is how much colour shows.

    Colour is laid on with opacity, never as a second colour, so the grid reads on light and dark paper.
    """
    rows, columns = len(strength), len(strength[0])
    for r in range(rows):
        for c in range(columns):
            box = mpl.patches.Rectangle((c, r), 1, 1, facecolor=colour, alpha=0.6 * strength[r][c], linewidth=0)
            ax.add_patch(box)
            ax.text(c + 0.5, r + 0.5, safe(labels[r][c]), ha="center", va="center", fontsize=9, color=INK)
    ax.set(xlim=(0, columns), ylim=(rows, 0))
    ax.grid(visible=False)
    ax.set_xticks([c + 0.5 for c in range(columns)])
    ax.set_yticks([r + 0.5 for r in range(rows)])
    ax.tick_params(length=0)


def safe(text: str) -> str:
    """Text that matplotlib draws as it is: a dollar sign would start mathematics."""
    return text.replace("$", r"\$")


def in_style(figure: Figure) -> None:
    """Bring into the style what was added after `new`: a legend and text without a colour of its own are black."""
    for text in figure.findobj(Text):
        if same_color(text.get_color(), "black"):
            text.set_color(INK)
    for legend in figure.findobj(Legend):
        legend.get_frame().set(facecolor=PAPER, edgecolor=GRID)


def svg(figure: Figure, name: str, alt: str) -> str:
    """The figure as one `<svg>` element: colours as CSS variables, ids that no other figure has."""
    in_style(figure)
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].rstrip()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable}, {colour})")
    head = f'<svg role="img" aria-label="{html.escape(alt, quote=True)}" '
    return head + re.sub(r' (?:width|height)="[\d.]+pt"', "", text[len("<svg ") :], count=2)


def save(figure: Figure, path: Path, alt: str) -> None:
    """Write a figure as it looks in light to a file; its ending says how (svg, png, pdf). `alt` becomes its title."""
    with mpl.rc_context(STYLE):
        figure.savefig(path, dpi=200, metadata={"Title": alt})


def table(data: Mapping[str, Sequence]) -> str:
    """Columns of equal length as an HTML table with headers."""
    head = "".join(f'<th scope="col">{html.escape(str(c))}</th>' for c in data)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(number(v))}</td>" for v in row) + "</tr>"
        for row in zip(*data.values(), strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def number(value) -> str:
    """A table's cell: four significant digits for a float, anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show(figure: Figure, name: str, *, caption: str, alt: str, data: Mapping[str, Sequence]) -> None:
    """Show a figure with its caption, its text alternative and the values it was drawn from.

    Args:
        figure: from `new`.
        name: lower-case with hyphens, unique in its chapter; the CSV file is named after it.
        caption: what to see in it, one or two sentences. Plain text.
        alt: what it shows, for those who cannot see it; build it from the plotted values.
        data: the plotted values by column, all of one length; the site offers them as CSV.
    """
    data = {column: [v.item() if hasattr(v, "item") else v for v in values] for column, values in data.items()}
    markup = (
        f'<figure class="om-figure" id="figure-{name}">{svg(figure, name, alt)}'
        f"<figcaption>{html.escape(caption)}</figcaption>"
        f'<details class="om-data"><summary>The values in this figure</summary>{table(data)}</details></figure>'
    )
    emit({"text/html": markup, "text/plain": alt}, {})
    # a notebook's file sorts the keys of what it holds, so the columns' order is told apart
    emit({RECORD: {"figure": name, "alt": alt, "caption": caption, "columns": list(data), "data": data}}, {})
