"""Build the site from the staged tree, make it light, and put it in place as a whole.

`build(stage, html)` builds; `set_address(url)` writes the repository's address everywhere; `pdf(html, out)` prints
the whole book. All that a reader loads comes from the site itself.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent

# The site's root leads to the start page; jupyter-book's own has no title and no language.
DOOR = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>One Matrix, Two Meanings</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" type="image/svg+xml" href="_static/mark.svg">
<meta http-equiv="refresh" content="0; url=book/start.html"></head>
<body><main><h1>One Matrix, Two Meanings</h1><p><a href="book/start.html">To the start page</a></p></main></body></html>
"""

JUPYTER_BOOK = (sys.executable, "-c", "from jupyter_book.cli.main import main; main()")


class SiteError(RuntimeError):
    """The site could not be built: says what the builder warned of."""


def build(stage: Path, html: Path) -> None:
    """Build the staged tree and put the site at `html`; on failure what was there stays.

    Always clean: an incremental build hides warnings and keeps stale figures of other pages.

    Args:
        stage: what `press.pages.stage` wrote.
        html: where the site goes; its parent must be on the disk that holds `stage`.

    Raises:
        SiteError: jupyter-book warned or failed. The message holds its warnings.
    """
    html.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".site-", dir=html.parent) as scratch:
        done = subprocess.run(
            [*JUPYTER_BOOK, "build", str(stage), "-W", "-n", "--keep-going", "--path-output", scratch],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        built = Path(scratch) / "_build" / "html"
        if done.returncode or not (built / "index.html").is_file():
            raise SiteError(explain(done.stdout, stage))
        (built / "index.html").write_text(DOOR, encoding="utf-8")
        for page in built.rglob("*.html"):
            page.write_text(lighten(page.read_text(encoding="utf-8")), encoding="utf-8")
        sweep(built)
        swap(built, html)


def explain(log: str, stage: Path) -> str:
    """The builder's warnings and errors, each once, with paths as the repository has them."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", log).replace(f"{stage.resolve()}/", "")
    plain = re.sub(r"(notebooks/\w+\.ipynb):(\d{5,})", lambda m: cell_at(stage / m[1], int(m[2])), plain)
    told = [line for line in plain.splitlines() if re.search(r"WARNING|ERROR|Error|error:", line)]
    told = list(dict.fromkeys(told)) or plain.splitlines()[-20:]
    return "jupyter-book did not build the site:\n" + "\n".join(f"  {line}" for line in told)


def cell_at(notebook: Path, line: int) -> str:
    """Where a warning in a notebook is: MyST-NB counts ten thousand lines a cell."""
    cell = nbformat.read(notebook, as_version=4).cells[line // 10_000 - 1]
    return f"{notebook.stem}, cell {cell.id}, line {line % 10_000}"


def lighten(page: str) -> str:
    """The page without the marks of syntax that the style sheet leaves in the colour of ink."""
    kept = "c|ch|cm|c1|sd|k[a-z]?|ow|s[a-z12]?"
    return re.sub(rf'<span class="(?!(?:{kept})")[a-z]{{1,2}}[12]?">([^<]*)</span>', r"\1", page)


def sweep(site: Path) -> None:
    """Remove the theme's files that no page asks for: icon fonts, translations, maps, style sheets."""
    static: dict[str, list[Path]] = {}
    for path in (site / "_static").rglob("*"):
        if path.is_file():
            static.setdefault(path.name, []).append(path)
    waiting = [page for page in site.rglob("*.html") if "_static" not in page.parts]
    used: set[str] = set()
    while waiting:
        path = waiting.pop()
        text = re.sub(r"\n//# sourceMappingURL=.*", "", path.read_text(encoding="utf-8"))
        if path.suffix == ".js":
            path.write_text(text, encoding="utf-8")
        found = static.keys() & set(re.findall(r"[\w.-]+\.\w+", text)) - used
        used |= found
        waiting += [path for name in found for path in static[name] if path.suffix in (".js", ".css")]
    for name in static.keys() - used:
        for path in static[name]:
            path.unlink()
    for folder in sorted((p for p in (site / "_static").rglob("*") if p.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def swap(new: Path, place: Path) -> None:
    """Put a folder in place of another; only a rename lies between the old and the new."""
    with tempfile.TemporaryDirectory(prefix=".old-", dir=place.parent) as aside:
        if place.exists():
            place.rename(Path(aside) / "site")
        new.rename(place)
