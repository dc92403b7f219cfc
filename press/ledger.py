"""The ledger for readers: the page "Figure by figure" and its downloads.

`publish(facts, stage)` writes `book/figure_by_figure.md` into the staged tree, and `facts.json` and `facts.csv` into
what is copied to the site's root.
"""

import csv
import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from onematrix.documents import TITLES
from press import pages
from press.claims import SAME

COLUMNS = (
    *("claim", "origin", "kind", "chapter", "cell", "said", "correction", "needs_training"),
    *("line", "document", "measured", "difference", "reading", "holds", "test"),
)
PLAIN_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")

PAGE = """\
# Figure by figure

Every claim that this book takes from the documents, in the book's order: what the document gives, what this page's
model gives, and the difference. The name of a claim leads to the cell that computed it, and the last column names the
test that fails when that cell gives something else.

```{{raw}} html
{banner}
<p>{counts}</p>
<p>Take all of it away: <a href="../facts.csv" download>as a table (CSV)</a> or
<a href="../facts.json" download>as data (JSON)</a>, which holds every pinned value too.</p>
```

How to read the table
: Where the document prints figures, ours stand below its lines. The claim *holds* when words and figures
  are the same to the places that are printed. On another model than the document's, most figures cannot be the same,
  and that the row says *differs* is a finding about that model. Where the document prints nothing, our words say what
  it states, the cell computes a verdict, and the measurement stands beside it. What counts as the same is in
  {{doc}}`conventions`.

```{{raw}} html
{table}
```
"""


def publish(facts: Mapping, stage: Path) -> None:
    """Write the page and the downloads of a ledger into a staged tree."""
    (stage / "book" / "figure_by_figure.md").write_text(page(facts), encoding="utf-8")
    (stage / "extra" / "facts.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
    with (stage / "extra" / "facts.csv").open("w", newline="", encoding="utf-8") as file:
        write_csv(facts, file)


def write_csv(facts: Mapping, file) -> None:
    """The claims as CSV, one row a printed line, safe to open in a spreadsheet."""
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for claim in facts["claims"]:
        for number, line in enumerate(claim["lines"], start=1):
            row = claim | line | {"claim": claim["id"], "line": number}
            writer.writerow([inert(row[column]) for column in COLUMNS])


def inert(value):
    """A value that a spreadsheet shows and does not run; a number stays a number."""
    return value if isinstance(value, str) and PLAIN_NUMBER.fullmatch(value) else pages.inert(value)


def page(facts: Mapping) -> str:
    """The page as Markdown."""
    return PAGE.format(banner=pages.banner(facts["model"]), counts=counts(facts), table=table(facts))


def counts(facts: Mapping) -> str:
    claims = facts["claims"]
    kinds = Counter(claim["kind"] for claim in claims)
    held = sum(claim["holds"] for claim in claims)
    return (
        f"<strong>{len(claims)} claims</strong>: {kinds['figures']} blocks of printed figures and "
        f"{kinds['statement']} statements. On {html.escape(facts['model']['title'])} {held} hold as the documents have "
        f"them, and {len(claims) - held} differ."
    )


def table(facts: Mapping) -> str:
    """All claims as an HTML table; `ledger.js` makes it sortable and filterable."""
    names = ("Claim", "Verdict", "The document, and measured here", "Difference", "Test")
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in names)
    rows = "\n".join(table_row(number, claim) for number, claim in enumerate(facts["claims"]))
    return (
        '<link rel="stylesheet" href="../_static/ledger.css">\n<script defer src="../_static/ledger.js"></script>\n'
        '<div class="om-scroll om-ledger-box"><table class="om-ledger" role="table">'
        "<caption>All claims, in the book’s order</caption>"
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody></table></div>'
    )


def table_row(number: int, claim: Mapping) -> str:
    """One claim's row. `data-sort` is what a column is sorted by where that is not its text."""
    off = sum(line["difference"] not in ("", SAME) for line in claim["lines"])
    link = f"../notebooks/{claim['chapter']}.html#cell-{claim['cell']}"
    said = [] if claim["kind"] == "statement" else [claim["said"]]
    said += [f"Correction: {claim['correction']}"] if claim["correction"] else []
    notes = "".join(f"<small>{html.escape(text)}</small>" for text in said)
    reading = f"<small>read as: {html.escape(claim['reading'])}</small>" if claim["holds"] and claim["reading"] else ""
    verdict = "holds" if claim["holds"] else "differs"
    differences = f"<small>difference</small>{lines(claim, 'difference')}" if claim["kind"] == "figures" else ""
    cells = (
        f"<strong>{verdict}</strong>{reading}",
        f"<small>document</small>{lines(claim, 'document')}<small>measured</small>{lines(claim, 'measured')}",
        differences,
        f"<code>{claim['test'].partition('::')[2].replace('[', '<wbr>[')}</code>",
    )
    keys = (verdict, number, off, claim["test"])
    body = "".join(f'<td role="cell" data-sort="{key}">{cell}</td>' for key, cell in zip(keys, cells, strict=True))
    head = (
        f'<th role="rowheader" scope="row" data-sort="{number}"><a href="{link}">{claim["id"]}</a>'
        f"<small>{TITLES[claim['origin']]}</small>{notes}</th>"
    )
    document = TITLES[claim["origin"]]
    return f'<tr role="row" data-verdict="{verdict}" data-document="{document}">{head}{body}</tr>'


def lines(claim: Mapping, column: str) -> str:
    """One column of a claim: printed lines as they are printed, words as words."""
    text = html.escape("\n".join(line[column] for line in claim["lines"]))
    return f"<pre>{text}</pre>" if claim["kind"] == "figures" else f"<span>{text}</span>"


def changes(before: Mapping, after: Mapping) -> list[str]:
    """Which facts moved from one ledger to another, a line each: pins by how much, claims by their verdict."""
    found = []
    old, new = before["pins"], after["pins"]
    for name in sorted(old.keys() | new.keys()):
        was, now = (side.get(name, {}).get("value") for side in (old, new))
        if was == now:
            continue
        numbers = all(isinstance(v, int | float) for v in (was, now))
        found.append(f"{name}: {was} -> {now}" + (f" ({now - was:+g})" if numbers else ""))
    verdicts = ({claim["id"]: claim["holds"] for claim in side["claims"]} for side in (before, after))
    was, now = verdicts
    found += [
        f"claim {name}: {was.get(name)} -> {now.get(name)}"
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    ]
    return found
