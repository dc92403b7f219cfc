"""`press.site`: a clean build that warns of nothing, and a site that asks nobody else."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from press import execute, site

CONFIG = (execute.ROOT / "_config.yml").read_text(encoding="utf-8")
BIBLIOGRAPHY = r"^.*bibtex.*\n"  # the small tree cites nothing
PAGE = """# A page

The {lookup}`row` and the {unembed}`scores`, as in {eq}`eq-softmax`, and $x < y$ inline. See {doc}`other`.

$$p_i = \\frac{\\exp(z_i)}{\\sum_k \\exp(z_k)}$$ (eq-softmax)

A token is `" dog"`.
"""


@pytest.fixture
def tree(tmp_path) -> Path:
    """A staged tree of two pages and a notebook."""
    stage = tmp_path / "stage"
    for folder in ("book", "notebooks", "extra/data"):
        (stage / folder).mkdir(parents=True)
    (stage / "_config.yml").write_text(re.sub(BIBLIOGRAPHY, "", CONFIG, flags=re.M), encoding="utf-8")
    toc = "format: jb-book\nroot: book/start\nchapters:\n- file: book/other\n- file: notebooks/01_x\n"
    (stage / "_toc.yml").write_text(toc, encoding="utf-8")
    (stage / "book/start.md").write_text(PAGE, encoding="utf-8")
    (stage / "book/other.md").write_text("# Another\n\n{eq}`eq-softmax` once more.\n", encoding="utf-8")
    (stage / "extra/data/x.csv").write_text("a\n1\n", encoding="utf-8")
    cell = new_code_cell("print(1)", id="print-one", metadata={"id": "print-one"})
    write(stage, cell)
    return stage


def write(stage: Path, *cells) -> None:
    title = new_markdown_cell("# A chapter", id="title")
    language = {"language_info": {"name": "python"}}
    nbformat.write(new_notebook(cells=[title, *cells], metadata=language), stage / "notebooks/01_x.ipynb")


def test_build(tree, tmp_path):
    html = tmp_path / "html"
    site.build(tree, html)
    page = (html / "book/start.html").read_text(encoding="utf-8")
    assert '<span class="om-lookup">row</span>' in page
    assert page.count("<math") == 2
    assert '<a class="reference internal" href="#equation-eq-softmax">(1)</a>' in page
    assert '<span class="eqno">(1)' in page
    assert "eq-softmax" in (html / "book/other.html").read_text(encoding="utf-8")
    assert 'id="cell-print-one"' in (html / "notebooks/01_x.html").read_text(encoding="utf-8")
    assert (html / "data/x.csv").is_file()
    files = [p.name for p in html.rglob("*") if p.is_file()]
    assert not [name for name in files if re.search(r"fontawesome|fa-|bootstrap|mathjax|thebe|require|\.map$", name)]
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda stage: (stage / "book/other.md").write_text("# Another\n\n{eq}`nowhere`\n"), "book/other.md:3"),
        (lambda stage: (stage / "book/other.md").write_text("# Another\n\n$\\frac{1$\n"), "MathML"),
        (lambda stage: write(stage, new_markdown_cell("x\n\n{doc}`nowhere`", id="lost")), "01_x, cell lost: WARNING"),
    ],
    ids=["reference", "formula", "cell"],
)
def test_warning_fails_by_name_and_the_old_site_stays(tree, tmp_path, break_it, told):
    html = tmp_path / "html"
    html.mkdir()
    (html / "index.html").write_text("the old one", encoding="utf-8")
    break_it(tree)
    with pytest.raises(site.SiteError) as failure:
        site.build(tree, html)
    assert told in str(failure.value)
    assert str(tmp_path) not in str(failure.value)
    assert (html / "index.html").read_text(encoding="utf-8") == "the old one"


def test_lighten_takes_only_colourless_marks():
    rest = ' <span class="k">for</span> <span class="s2">"a"</span></pre><span class="eqno">1</span>'
    assert site.lighten('<pre><span class="n">x</span>' + rest) == "<pre>x" + rest


# ------------------------------------------------------------------ the repository's address


@pytest.fixture
def checkout(tmp_path) -> Path:
    shutil.copy(execute.ROOT / "_config.yml", tmp_path)
    (tmp_path / "notebooks").mkdir()
    cell = new_code_cell('REPOSITORY = ""  # written here\nprint("é")', id="bootstrap")
    nbformat.write(new_notebook(cells=[cell]), tmp_path / "notebooks/01_x.ipynb")
    return tmp_path


def test_address_is_set_everywhere_and_taken_back(checkout):
    files = [checkout / "_config.yml", checkout / "notebooks/01_x.ipynb"]
    before = [path.read_bytes() for path in files]
    assert site.set_address("https://github.com/someone/book.git/", checkout) == files
    assert '  url: "https://github.com/someone/book"\n' in files[0].read_text(encoding="utf-8")
    notebook = nbformat.read(files[1], as_version=4)
    assert notebook.cells[0].source.startswith('REPOSITORY = "https://github.com/someone/book"  # written here\n')
    assert site.set_address("https://github.com/someone/book", checkout) == []
    site.set_address("", checkout)
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize("url", ["github.com/a/b", 'https://x.org/a"b', "https://x.org/a b", "javascript:alert(1)"])
def test_odd_address_is_refused(checkout, url):
    before = (checkout / "_config.yml").read_bytes()
    with pytest.raises(ValueError, match="expected an address"):
        site.set_address(url, checkout)
    assert (checkout / "_config.yml").read_bytes() == before


def test_links_appear_with_the_address(tree, tmp_path):
    config = (tree / "_config.yml").read_text(encoding="utf-8")
    known = config.replace('  url: ""', '  url: "https://github.com/someone/book"')
    (tree / "_config.yml").write_text(known, encoding="utf-8")
    site.build(tree, tmp_path / "html")
    chapter = (tmp_path / "html/notebooks/01_x.html").read_text(encoding="utf-8")
    colab = "https://colab.research.google.com/github/someone/book/blob/main/notebooks/01_x.ipynb"
    assert f'href="{colab}"' in chapter
    assert 'href="https://github.com/someone/book"' in chapter
    assert "colab" not in (tmp_path / "html/book/start.html").read_text(encoding="utf-8")


# ------------------------------------------------------------------ the site as it was built


def test_nothing_is_loaded_from_elsewhere(built):
    loads = re.compile(r'<(?:script|img|iframe|source)[^>]*\bsrc="([^"]*)"|<link[^>]*\bhref="([^"]*)"|url\(([^)]*)\)')
    for path in [*built.rglob("*.html"), *built.rglob("*.css")]:
        for match in loads.finditer(path.read_text(encoding="utf-8")):
            target = next(filter(None, match.groups()), "").strip("'\"")
            assert not re.match(r"(?:[a-z]+:)?//", target), f"{path.relative_to(built)} loads {target}"


def test_every_link_within_the_site_leads_somewhere(built):
    anchors = {
        path: set(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8"))) for path in built.rglob("*.html")
    }
    broken = []
    for page in anchors:
        for link in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.is_file() or (anchor and target.suffix == ".html" and anchor not in anchors[target]):
                broken.append(f"{page.relative_to(built)}: {link}")
    assert broken == []


def test_no_trace_of_the_building_machine(built):
    places = [str(p) for p in (execute.ROOT, Path.home()) if len(p.parts) > 1]
    for path in built.rglob("*"):
        if path.suffix in (".html", ".js", ".css", ".csv", ".json", ".ipynb"):
            text = path.read_text(encoding="utf-8")
            assert not [p for p in places if re.search(rf"{re.escape(p)}\b", text)], path.relative_to(built)


def test_reading_order_is_the_table_of_contents(built):
    from conftest import site_pages

    assert site.reading_order(built) == site_pages()[:-1]


def test_one_page_holds_every_link(built):
    page = site.one_page(built)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert {link for link in re.findall(r'href="#([^"]+)"', page)} <= set(ids)


def test_pdf(built, tmp_path, browser):
    out = tmp_path / "book.pdf"
    site.pdf(built, out)
    assert out.read_bytes().startswith(b"%PDF")
    assert out.stat().st_size > 100_000


def test_pdf_needs_a_browser(built, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(site.SiteError, match="Chromium"):
        site.pdf(built, tmp_path / "book.pdf")
