"""Build the site from the staged tree, make it light, and put it in place as a whole.

`build(stage, html)` builds; `set_address(url)` writes the repository's address everywhere; `pdf(html, out)` prints
the whole book. All that a reader loads comes from the site itself.
"""

import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

from press import UsageError

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
    recover(html)
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
    return f"{notebook.stem}, cell {cell.id}"


def lighten(page: str) -> str:
    """The page without marks of syntax that the style sheet leaves in the colour of ink, and without a role that
    left the standard: an entry of a list is a list item."""
    kept = "c|ch|cm|c1|sd|k[a-z]?|ow|s[a-z12]?"
    page = re.sub(rf'<span class="(?!(?:{kept})")[a-z]{{1,2}}[12]?">([^<]*)</span>', r"\1", page)
    return page.replace('role="doc-biblioentry"', 'role="listitem"')


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


def recover(html: Path) -> None:
    """Clear away what a killed build left, and put the site back that it had just taken from its place."""
    for aside in html.parent.glob(".old-*"):
        if not html.exists() and (aside / "site").is_dir():
            (aside / "site").rename(html)
        shutil.rmtree(aside, ignore_errors=True)
    for scratch in html.parent.glob(".site-*"):
        shutil.rmtree(scratch, ignore_errors=True)


def swap(new: Path, place: Path) -> None:
    """Put a folder in place of another; only a rename lies between the old and the new."""
    with tempfile.TemporaryDirectory(prefix=".old-", dir=place.parent) as aside:
        if place.exists():
            place.rename(Path(aside) / "site")
        new.rename(place)


# ------------------------------------------------------------------ the repository's address


def set_address(url: str, root: Path = ROOT) -> list[Path]:
    """Write the repository's address everywhere it stands, and return the files that changed.

    Args:
        url: `https://github.com/OWNER/NAME`, or empty to take all launch and repository links away.
        root: the checkout.

    Raises:
        UsageError: not such an address.
    """
    url = url.strip().removesuffix("/").removesuffix(".git")
    if url and not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", url):
        raise UsageError(f"expected an address like https://github.com/OWNER/NAME, got {url!r}")
    places = {root / "_config.yml": (r'^  url: ".*"$', f'  url: "{url}"')}
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        places[notebook] = (r'REPOSITORY = \\"[^"\\]*\\"', f'REPOSITORY = \\"{url}\\"')
    changed = []
    for path, (pattern, line) in places.items():
        before = path.read_text(encoding="utf-8")
        after, count = re.subn(pattern, lambda _, line=line: line, before, flags=re.M)
        if count != 1:
            raise ValueError(f"{path.name}: expected one line for the repository's address, found {count}")
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


# ------------------------------------------------------------------ the book on paper

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

PRINT_STYLE = """
@page { size: A4; margin: 20mm 18mm 22mm; @bottom-center { content: counter(page); font: 9pt sans-serif; } }
article + article { break-before: page; }
"""


def pdf(html: Path, out: Path) -> None:
    """Print the whole book, in reading order, into one PDF with bookmarks and links that work.

    Args:
        html: a built site.
        out: the file to write.

    Raises:
        SiteError: there is no Chromium, or it printed nothing.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SiteError(f"A PDF is printed by Chromium, and there is none (looked for {', '.join(BROWSERS)}).")
    with tempfile.TemporaryDirectory(prefix="print-") as scratch:
        page = Path(scratch) / "book.html"
        page.write_text(one_page(html), encoding="utf-8")
        printed = Path(scratch) / "book.pdf"
        command = [browser, "--headless", "--disable-gpu", "--no-pdf-header-footer", "--generate-pdf-document-outline"]
        command += [f"--user-data-dir={scratch}/profile", f"--print-to-pdf={printed}", page.as_uri()]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium's sandbox does not run as root
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if not printed.is_file():
            raise SiteError(f"{browser} printed nothing:\n{done.stderr[-2000:]}")
        shutil.move(printed, out)


def reading_order(html: Path) -> list[str]:
    """The pages of the book as the list beside the start page has them, that page first."""
    start = (html / "book" / "start.html").read_text(encoding="utf-8")
    links = re.findall(r'<li class="toctree-l1"><a class="reference internal" href="([^"#]+)"', start)
    return list(dict.fromkeys(["book/start.html", *(posixpath.normpath(f"book/{link}") for link in links)]))


def one_page(html: Path) -> str:
    """All articles in one document, each page's anchors under a name of its own."""
    pages = reading_order(html)
    articles = "\n".join(article(html, page, pages) for page in pages)
    style = (html / "_static" / "om.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>One Matrix, Two Meanings</title>'
        f"<style>{style}{PRINT_STYLE}</style></head><body>{articles}</body></html>"
    )


def article(html: Path, page: str, pages: list[str]) -> str:
    """One page's article, with anchors and links that hold among all others."""
    here = Path(page).stem
    text = (html / page).read_text(encoding="utf-8")
    text = text[text.index("<article") : text.index("</article>") + len("</article>")]
    text = text.replace("<article", f'<article id="{here}"', 1)

    def link(match: re.Match) -> str:
        path, _, anchor = match[2].partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if target not in pages:
            return match[0]
        return f'{match[1]}="#{Path(target).stem}{"--" if anchor else ""}{anchor}"'

    head, body = text.split(">", 1)
    body = re.sub(r'\b(id|aria-labelledby)="([^"]+)"', rf'\1="{here}--\2"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{here}--\1)", body)
    return f"{head}>" + re.sub(r'\b(href)="([^":]*)"', link, body)
