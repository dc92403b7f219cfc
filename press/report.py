"""One page about one model: what the book's chapters measure on it, and which of the book's claims hold.

`write(manifest, file)` runs the chapters on any model that `onematrix.load` opens, and writes one HTML file that needs
nothing else. It begins with the model's two matrices, which may be one. A chapter that stops (an untied model breaks
what some of them assert) is named with its reason, and its claims count as not asked.
"""

import html
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import nbformat

from onematrix.documents import TITLES
from press import claims, execute, pages

VERDICTS = {True: "holds", False: "does not hold", None: "not asked"}

STYLE = """
:root { color-scheme: light dark; --om-ink: #1c2530; --om-muted: #5a6673; --om-grid: #d5dbe1; --om-paper: #fdfdfc;
  --om-lookup: #17688a; --om-unembed: #ad4a14 }
@media (prefers-color-scheme: dark) { :root { --om-ink: #e6e9ec; --om-muted: #a2adb8; --om-grid: #3a444e;
  --om-paper: #14181c; --om-lookup: #6db7d6; --om-unembed: #e8935c } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--om-ink); background: var(--om-paper) }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-top: 1px solid var(--om-grid) }
pre, td.figures { font-family: ui-monospace, monospace; font-size: .85rem; white-space: pre-wrap; margin: 0 }
small, figcaption, .origin { color: var(--om-muted) }
figure { margin: 1.5rem 0 } figure svg { width: 100%; height: auto; max-width: 44rem }
details table { width: auto } .scroll { overflow-x: auto }
"""


def write(manifest: Mapping, file: Path) -> dict:
    """Run the chapters on a model whose folder is ready and write the page; returns the ledger it shows.

    Raises:
        ChapterError: no chapter ran to its end.
    """
    stops: dict[str, str] = {}
    try:
        runs = execute.execute_all(dict(manifest))
    except execute.ChapterError as stopped:
        told = str(stopped).split("\n\n")
        stops = {message.partition(",")[0]: message for message in told}
        runs = [run for name in execute.chapters() if (run := execute.current(name, dict(manifest)))]
    if not runs:
        raise execute.ChapterError("\n\n".join(stops.values()))
    notebooks = execute.read_all(runs)
    facts = claims.gather(runs, notebooks)
    for claim in facts["claims"]:
        if claim["chapter"] not in facts["chapters"]:
            claim["holds"] = None
    file.write_text(page(facts, notebooks, stops, matrices(manifest["name"])), encoding="utf-8")
    return facts


def matrices(name: str) -> str:
    """What `onematrix tied` answers; in a process of its own, because that needs torch and the press does not."""
    command = [sys.executable, "-m", "onematrix.cli", "tied", name]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def page(facts: Mapping, notebooks: Mapping[str, nbformat.NotebookNode], stops: Mapping[str, str], tied: str) -> str:
    """The page as HTML."""
    model = facts["model"]
    statements = [claim for claim in facts["claims"] if claim["kind"] == "statement"]
    printed = [claim for claim in facts["claims"] if claim["kind"] == "figures"]
    name = html.escape(model["title"])
    parts = [
        f"<h1>{name} in <cite>One Matrix, Two Meanings</cite></h1>",
        f"<p>{pages.imprint(facts)}</p><p>{html.escape(tally(statements))}</p>",
        "" if model["trained"] else "<p><strong>This model is not trained: no figure here means anything.</strong></p>",
        f"<h2>One matrix or two</h2><pre>{html.escape(tied)}</pre>",
        stopped(stops),
        "<h2>What the texts state</h2>",
        "<p>The verdict was computed by the chapter’s cell on this model; the measurement behind it stands beside.</p>",
        claims_table(statements),
        "<h2>What the texts print</h2>",
        f"<p>The texts’ figures are another model’s. Where {name} gives others, that is a finding about it.</p>",
        claims_table(printed),
        "<h2>This model’s figures</h2>",
        *(chapter(name, notebook, facts) for name, notebook in notebooks.items()),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>' + "\n".join(
        [*parts, "</body></html>\n"]
    )


def tally(statements: Sequence[Mapping]) -> str:
    """How many statements hold, in a sentence."""
    verdicts = [claim["holds"] for claim in statements]
    unasked = verdicts.count(None)
    told = f"Of {len(verdicts) - unasked} statements that could be asked of it, {verdicts.count(True)} hold."
    return told + (f" {pages.plural(unasked, 'statement')} could not be asked." if unasked else "")


def stopped(stops: Mapping[str, str]) -> str:
    """Which chapters did not run to their end, and why."""
    if not stops:
        return ""
    rows = "".join(f"<li><pre>{html.escape(message)}</pre></li>" for message in stops.values())
    why = "What they assert does not hold on this model, or they could not run on it."
    return f"<h2>Chapters that stopped</h2><p>{why}</p><ul>{rows}</ul>"


def claims_table(rows: Sequence[Mapping]) -> str:
    """Claims with their verdicts: those that hold first, then those that do not."""
    order = {True: 0, False: 1, None: 2}
    body = "".join(claim_row(claim) for claim in sorted(rows, key=lambda claim: order[claim["holds"]]))
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Claim", "The text", "Measured here", "Verdict"))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def claim_row(claim: Mapping) -> str:
    kind = ' class="figures"' if claim["kind"] == "figures" else ""
    columns = {name: html.escape("\n".join(line[name] for line in claim["lines"])) for name in ("document", "measured")}
    measured = columns["measured"] if claim["holds"] is not None else ""
    origin = f'<br><span class="origin">{html.escape(TITLES[claim["origin"]])}</span>'
    return (
        f'<tr><th scope="row">{claim["id"]}{origin}</th><td{kind}>{columns["document"]}</td><td{kind}>{measured}</td>'
        f"<td>{VERDICTS[claim['holds']]}</td></tr>"
    )


def chapter(name: str, notebook: nbformat.NotebookNode, facts: Mapping) -> str:
    """A chapter's drawings, and the values that it pinned."""
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    drawings = [
        re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", pages.slim(o["data"]["text/html"]))  # unique on the page
        for o in outputs
        if 'class="om-figure"' in o.get("data", {}).get("text/html", "")
    ]
    values = {key: pin["value"] for key, pin in facts["pins"].items() if pin["chapter"] == name}
    rows = "".join(f"<tr><th>{key}</th><td>{html.escape(str(value))}</td></tr>" for key, value in values.items())
    more = f"<details><summary>{len(values)} values</summary><table>{rows}</table></details>" if values else ""
    return f"<h3>{html.escape(pages.title(notebook))}</h3>\n" + "\n".join([*drawings, more])
