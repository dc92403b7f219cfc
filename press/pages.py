"""Turn executed chapters into the tree that jupyter-book reads.

`stage(executed, facts, into)` writes a tree that mirrors the repository: `_config.yml`, `_toc.yml`, `book/` and
the executed `notebooks/`, and `extra/`, whose content is copied to the site's root as it is (the figures' values
as CSV, the notebooks as they are committed). Whoever generates a page writes it into `book/` of that tree
afterwards. `press.site.build` makes the site from it.
"""

import csv
import html
import math
import os
import re
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import nbformat
import yaml
from nbformat import NotebookNode

from onematrix.pins import GLUE, RECORD

ROOT = Path(__file__).resolve().parent.parent

WORDS_A_MINUTE = 200
PAPERMILL_TAG = "injected-parameters"
# Strings that a spreadsheet would run as a formula get an apostrophe in front, and so does what begins with one.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


class PageError(RuntimeError):
    """A chapter that must not be shown: names it, the cell and why."""


def stage(executed: Mapping[str, NotebookNode], facts: Mapping, into: Path) -> None:
    """Write the tree that jupyter-book reads.

    Args:
        executed: chapter name (`NN_name`) -> its executed notebook, in the book's order; made ready for its page.
        facts: the ledger, from `press.claims.gather`.
        into: an empty or missing directory.

    Raises:
        PageError: a chapter holds an error output, or prints a path of this machine.
    """
    into.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "_toc.yml", into)
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config["html"]["extra_footer"] = f"<p>{imprint(facts)}</p>"
    (into / "_config.yml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
    shutil.copytree(ROOT / "book", into / "book", ignore=shutil.ignore_patterns("claims.yml"))
    (into / "notebooks").mkdir()
    downloads = into / "extra" / "notebooks"
    downloads.mkdir(parents=True)
    rows = []
    for chapter, notebook in executed.items():
        check(chapter, notebook)
        clean(notebook)
        take_figures(chapter, notebook, into / "extra" / "data" / chapter)
        join_prints(notebook)
        minutes = reading_minutes(notebook)
        add_byline(notebook, byline(chapter, minutes, facts))
        nbformat.write(notebook, into / "notebooks" / f"{chapter}.ipynb")
        shutil.copy(ROOT / "notebooks" / f"{chapter}.ipynb", downloads)
        rows.append((chapter, title(notebook), minutes, facts["chapters"][chapter]["seconds"]))
    (into / "book" / "measured.md").write_text(measured(rows, facts), encoding="utf-8")


def check(chapter: str, notebook: NotebookNode) -> None:
    """Refuse what no reader should see: errors and this machine's paths."""
    if not notebook.cells[0].source.startswith("# "):
        raise PageError(f"{chapter}, cell {notebook.cells[0].id}: a chapter begins with its title, '# Title'")
    here = [str(place) for place in (ROOT, Path(os.path.expanduser("~"))) if len(place.parts) > 1]
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                raise PageError(f"{chapter}, cell {cell.id}: {output.ename}: {output.evalue}")
            said = output.get("text", "") or "".join(str(v) for v in output.get("data", {}).values())
            for place in here:
                if re.search(rf"{re.escape(place)}\b", said):
                    raise PageError(f"{chapter}, cell {cell.id}: its output names a folder of this machine ({place})")


def clean(notebook: NotebookNode) -> None:
    """Take out what the tools left (papermill's notes and parameters, widgets' state); keep each cell's id."""
    for key in ("widgets", "papermill"):
        notebook.metadata.pop(key, None)
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        cell.metadata["id"] = cell.id  # becomes the cell's anchor on the page: `press.extension.name_cells`
        tags = cell.metadata.get("tags", [])
        if PAPERMILL_TAG in tags:
            cell.metadata["tags"] = [*tags, "remove-cell"]
        elif cell.id.startswith("document-"):  # one call; what it shows is the document's block
            cell.metadata["tags"] = [*tags, "remove-input"]


def join_prints(notebook: NotebookNode) -> None:
    """Show as one what a cell prints in several goes because it pins values in between; pinned values go last."""
    for cell in notebook.cells:
        joined, pinned = [], []
        for output in cell.get("outputs", []):
            if GLUE in output.get("data", {}):
                pinned.append(output)
            elif joined and output.output_type == joined[-1].output_type == "stream" and output.name == joined[-1].name:
                joined[-1].text += output.text
            else:
                joined.append(output)
        if joined or pinned:
            cell["outputs"] = joined + pinned


def take_figures(chapter: str, notebook: NotebookNode, folder: Path) -> None:
    """Write each figure's values as CSV, link them in its caption, and drop the records: no page draws them."""
    for cell in notebook.cells:
        records = [o["data"][RECORD] for o in cell.get("outputs", []) if RECORD in o.get("data", {})]
        if not records:
            continue
        cell["outputs"] = [o for o in cell["outputs"] if RECORD not in o.get("data", {})]
        for record in records:
            if "figure" not in record:
                continue
            name = record["figure"]
            write_csv(folder / f"{name}.csv", {column: record["data"][column] for column in record["columns"]})
            link = f' <a class="om-csv" href="../data/{chapter}/{name}.csv" download>The values as CSV</a>'
            for output in cell["outputs"]:
                markup = output.get("data", {}).get("text/html", "")
                if f'id="figure-{name}"' in markup:
                    output["data"]["text/html"] = slim(markup).replace("</figcaption>", f"{link}</figcaption>", 1)


def slim(markup: str) -> str:
    """A figure in about half the bytes: what matplotlib writes and no page needs is left out."""
    frame, start, drawing = markup.partition("<svg")
    drawing, end, rest = drawing.partition("</svg>")
    drawing = re.sub(r"<!--.*?-->|<(path|use)[^>]*fill: none; opacity: 0\"/>", "", drawing, flags=re.S)
    drawing = re.sub(r"font-family: [^;\"]*; ?", "", drawing)  # the page's style sheet says it
    drawing = re.sub(r'(?<= )(d|x|y|transform)="[^"]*"', lambda m: two_places(m[0]), drawing)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', drawing))
    drawing = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", drawing)
    for _ in range(3):  # groups that hold nothing, from the inside out
        drawing = re.sub(r"<g>\s*</g>|<g/>", "", drawing)
    return frame + start + re.sub(r">\s+<", "><", drawing) + end + rest


def two_places(attribute: str) -> str:
    """The numbers of an SVG attribute to a hundredth of a point, its lines joined."""
    rounded = re.sub(r"\d+\.\d+", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), attribute)
    return re.sub(r"\s+", " ", rounded)


def write_csv(path: Path, columns: Mapping[str, list]) -> None:
    """Columns of equal length as a CSV file with a header, full precision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([inert(v) for v in row] for row in zip(*columns.values(), strict=True))


def inert(value):
    """A value that a spreadsheet shows and does not run."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def title(notebook: NotebookNode) -> str:
    """The text of the first heading."""
    return re.match(r"# (.+)", notebook.cells[0].source).group(1).strip()


def reading_minutes(notebook: NotebookNode) -> int:
    """How long the prose takes to read, in whole minutes, at least one."""
    words = sum(len(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown")
    return max(1, math.ceil(words / WORDS_A_MINUTE))


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def day(run: Mapping) -> str:
    """The day a chapter ran, in words."""
    date = datetime.fromisoformat(run["date"])
    return f"{date.day} {date:%B %Y}"


def weights(model: Mapping) -> str:
    """Which weights exactly, escaped for a page."""
    exactly = f"revision {model['revision'][:12]}, weights {model['sha256'][:8]}"
    return f"<strong>{html.escape(model['title'])}</strong> ({html.escape(exactly)})"


def versions(run: Mapping) -> str:
    """What a chapter ran with, escaped for a page."""
    return html.escape(", ".join(f"{name.replace('python', 'Python')} {v}" for name, v in run["versions"].items()))


def byline(chapter: str, minutes: int, facts: Mapping) -> str:
    """What stands under a chapter's title: time to read, time to run, model, date, versions."""
    run, model = facts["chapters"][chapter], facts["model"]
    return (
        f'<p class="om-byline"><strong>{plural(minutes, "minute")}</strong> to read. '
        f"Ran in <strong>{run['seconds']:.1f} s</strong> on {weights(model)}, {day(run)}. "
        f"<small>{versions(run)}</small></p>\n\n{banner(model)}"
    ).rstrip()


def imprint(facts: Mapping) -> str:
    """What stands at the foot of every page: model, date, versions."""
    last = max(facts["chapters"].values(), key=lambda run: run["date"])
    return f"The chapters ran on {weights(facts['model'])}, last on {day(last)}, with {versions(last)}."


def banner(model: Mapping) -> str:
    """Whose figures a page shows, where they are not GPT-2's own."""
    if model["name"] == "gpt2":
        return ""
    name = html.escape(model["title"])
    if model["trained"]:
        text = (
            f"Every figure here was measured on <strong>{name}</strong>. "
            "Where the text gives one of GPT-2, it is the document’s and says so."
        )
    else:
        text = f"<strong>A rehearsal</strong> on {name}: nothing here is trained, and no figure means anything."
    return f'<div class="om-model" role="note">{text}</div>'


def add_byline(notebook: NotebookNode, markup: str) -> None:
    """Set the byline between the title and the text that follows it."""
    first = notebook.cells[0]
    heading, _, rest = first.source.partition("\n")
    first.source = f"{heading}\n\n{markup}\n\n{rest.lstrip()}"


def measured(rows: list[tuple], facts: Mapping) -> str:
    """The start page's account: whose figures, which claims hold, and the table of chapters."""
    lines = [banner(facts["model"]), "", tally(facts), "", "| Chapter | To read | To run |", "|---|--:|--:|"]
    for chapter, name, minutes, seconds in rows:
        lines.append(f"| [{name}](../notebooks/{chapter}.ipynb) | {minutes} min | {seconds:.1f} s |")
    return "\n".join(lines) + "\n"


def tally(facts: Mapping) -> str:
    """How many of the texts' claims hold on this page's model, in a sentence or two."""
    kinds = {kind: [c["holds"] for c in facts["claims"] if c["kind"] == kind] for kind in ("statement", "figures")}
    statements, blocks = kinds["statement"], kinds["figures"]
    told = f"Of {len(statements)} statements that the texts make, {sum(statements)} hold on {facts['model']['title']}. "
    if facts["model"]["name"] == "gpt2":
        return told + f"Of {len(blocks)} blocks of figures that they print, {sum(blocks)} came out the same."
    return told + f"They also print {len(blocks)} blocks of figures. Those are GPT-2’s, and a run on GPT-2 checks them."
