"""`press.pages`: what an executed chapter looks like when it goes to jupyter-book."""

import csv
import re

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from onematrix import figures
from onematrix.pins import GLUE, RECORD
from press import pages

MODEL = {"name": "smollm2-135m", "title": "SmolLM2", "revision": "0.1.2", "sha256": "a672150fb4f9", "trained": True}
RUN = {"seconds": 4.25, "date": "2026-11-29T15:00:00+00:00", "versions": {"python": "3.11.7", "torch": "2.13.0"}}
CLAIMS = [{"kind": k, "holds": h} for k, h in (("statement", True), ("statement", False), ("figures", False))]
FACTS = {"model": MODEL, "chapters": {"01_x": RUN}, "claims": CLAIMS}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small checkout with one chapter, in place of the real one."""
    root = tmp_path / "root"
    (root / "book").mkdir(parents=True)
    (root / "notebooks").mkdir()
    for name in ("_toc.yml", "book/start.md", "book/claims.yml"):
        (root / name).write_text("", encoding="utf-8")
    (root / "_config.yml").write_text("title: A book\nhtml: {}\n", encoding="utf-8")
    (root / "notebooks" / "01_x.ipynb").write_text("as committed", encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", root)
    return tmp_path


def figure_outputs(name: str = "drift", data: dict | None = None) -> list:
    """What `onematrix.figures.show` leaves in a cell."""
    figure, axes = figures.new()
    axes.plot([0, 1, 2], [0.123456, 0.5, 1], color=figures.LOOKUP, marker="o")
    axes.text(1, 0.5, "kept 0.123456")
    markup = (
        f'<figure class="om-figure" id="figure-{name}">{figures.svg(figure, name, "A line.")}'
        "<figcaption>It rises.</figcaption></figure>"
    )
    data = data or {"x": [0, 1], "y": [0.5, 1.0]}
    record = {"figure": name, "alt": "A line.", "caption": "It rises.", "columns": list(data), "data": data}
    return [
        new_output("display_data", data={"text/html": markup, "text/plain": "A line."}),
        new_output("display_data", data={RECORD: record}),
    ]


def stage(tree, *cells, facts=FACTS):
    """Stage one chapter of these cells; the staged notebook."""
    notebook = new_notebook(cells=[new_markdown_cell("# A title\n\nThe lead.", id="title"), *cells])
    notebook.metadata["widgets"] = {"state": {}}
    notebook.metadata["papermill"] = {"input_path": "/somewhere/01_x.ipynb"}
    pages.stage({"01_x": notebook}, facts, tree / "stage")
    return nbformat.read(tree / "stage" / "notebooks" / "01_x.ipynb", as_version=4)


def test_tree_mirrors_the_repository(tree):
    stage(tree)
    made = {str(p.relative_to(tree / "stage")) for p in (tree / "stage").rglob("*") if p.is_file()}
    assert made == {
        *("_config.yml", "_toc.yml", "book/start.md", "book/measured.md", "notebooks/01_x.ipynb"),
        "extra/notebooks/01_x.ipynb",
    }
    assert (tree / "stage/extra/notebooks/01_x.ipynb").read_text(encoding="utf-8") == "as committed"


def test_error_is_refused_by_chapter_and_cell(tree):
    cell = new_code_cell("1 / 0", id="divide")
    cell.outputs = [new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=[])]
    with pytest.raises(pages.PageError, match="01_x, cell divide: ZeroDivisionError: division by zero"):
        stage(tree, cell)


def test_path_of_this_machine_is_refused(tree):
    cell = new_code_cell("print(here)", id="here")
    cell.outputs = [new_output("stream", name="stdout", text=f"read {pages.ROOT}/model\n")]
    with pytest.raises(pages.PageError, match="01_x, cell here"):
        stage(tree, cell)


def test_tools_leave_nothing_behind(tree):
    injected = new_code_cell("MODEL = 'smollm2-135m'", id="a1", metadata={"tags": ["injected-parameters"]})
    injected.metadata["papermill"] = {"status": "completed"}
    staged = stage(tree, injected)
    assert "widgets" not in staged.metadata
    assert "papermill" not in staged.metadata
    assert "papermill" not in staged.cells[1].metadata
    assert "remove-cell" in staged.cells[1].metadata.tags


def test_cells_keep_their_ids_and_documents_hide_their_call(tree):
    cells = (new_code_cell("x", id="dog-lens"), new_code_cell('document("dog-lens")', id="document-dog-lens"))
    staged = stage(tree, *cells)
    assert [cell.metadata.id for cell in staged.cells[1:]] == ["dog-lens", "document-dog-lens"]
    assert "tags" not in staged.cells[1].metadata
    assert staged.cells[2].metadata.tags == ["remove-input"]


def test_byline_stands_under_the_title(tree):
    source = stage(tree).cells[0].source
    assert source.startswith("# A title\n\n<p class=")
    assert source.endswith("The lead.")
    for told in ("1 minute<", "4.2 s", "SmolLM2", "0.1.2", "a672150f", "29 November 2026", "Python 3.11.7"):
        assert told in source


def test_every_page_names_model_date_and_versions(tree):
    stage(tree)
    config = yaml.safe_load((tree / "stage/_config.yml").read_text(encoding="utf-8"))
    assert config["title"] == "A book"
    for told in ("SmolLM2", "0.1.2", "a672150f", "29 November 2026", "Python 3.11.7", "torch 2.13.0"):
        assert told in config["html"]["extra_footer"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [({}, "measured on"), ({"trained": False, "name": "gpt2-rehearsal"}, "rehearsal"), ({"name": "gpt2"}, None)],
)
def test_banner_says_whose_figures_these_are(changes, told):
    banner = pages.banner(MODEL | changes)
    assert (told in banner) if told else (banner == "")


def test_model_title_is_escaped():
    assert "<script>" not in pages.banner(MODEL | {"title": "<script>"})


def test_figure_brings_its_values_as_csv(tree):
    cell = new_code_cell("draw()", id="draw")
    pinned = new_output("display_data", data={GLUE: "8"}, metadata={"scrapbook": {"name": "c1_rank"}})
    cell.outputs = [*figure_outputs(), pinned]
    outputs = stage(tree, cell).cells[1].outputs
    assert [list(o.data) for o in outputs] == [["text/html", "text/plain"], [GLUE]]
    caption = re.search("<figcaption>.*?</figcaption>", outputs[0].data["text/html"])[0]
    assert 'href="../data/01_x/drift.csv"' in caption
    with (tree / "stage/extra/data/01_x/drift.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["x", "y"], ["0", "0.5"], ["1", "1.0"]]


def test_prints_are_joined_over_pins(tree):
    cell = new_code_cell("work()", id="work")
    pinned = new_output("display_data", data={GLUE: "8"}, metadata={"scrapbook": {"name": "c1_rank"}})
    drawn = new_output("display_data", data={"text/html": "<p>x</p>"})
    lines = [new_output("stream", name="stdout", text=f"{n}\n") for n in range(3)]
    cell.outputs = [lines[0], pinned, lines[1], drawn, lines[2]]
    outputs = stage(tree, cell).cells[1].outputs
    assert [o.get("text") for o in outputs] == ["0\n1\n", None, "2\n", None]
    assert GLUE in outputs[-1].data


def test_csv_is_safe_to_open_in_a_spreadsheet(tree):
    cell = new_code_cell("draw()", id="draw")
    cell.outputs = figure_outputs(data={"token": ["=1+1", " dog", 'a"b,c', "@x"], "p": [-0.5, 1.0, 2.0, 3.0]})
    stage(tree, cell)
    with (tree / "stage/extra/data/01_x/drift.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    assert rows == [["'=1+1", "-0.5"], [" dog", "1.0"], ['a"b,c', "2.0"], ["'@x", "3.0"]]


def test_slim_figure_shows_the_same():
    markup = figure_outputs()[0].data["text/html"]
    slim = pages.slim(markup)
    assert len(slim) < 0.65 * len(markup)
    assert 'id="figure-drift"' in slim
    assert re.search('viewBox="[^"]+"', slim)[0] == re.search('viewBox="[^"]+"', markup)[0]
    text = "<text.*?>(.*?)</text>"
    assert re.findall(text, slim) == re.findall(text, markup)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', slim))
    assert used
    assert used <= set(re.findall(r'id="([^"]+)"', slim))
    assert coordinates(slim) == pytest.approx(coordinates(markup), abs=0.00501)


def coordinates(markup: str) -> list[float]:
    """Every number of every path."""
    return [float(n) for path in re.findall(r' d="([^"]*)"', markup) for n in re.findall(r"-?\d+(?:\.\d+)?", path)]


def test_start_page_lists_the_chapters(tree):
    stage(tree, new_markdown_cell("word " * 450, id="prose"))
    table = (tree / "stage/book/measured.md").read_text(encoding="utf-8")
    assert "| [A title](../notebooks/01_x.ipynb) | 3 min | 4.2 s |" in table


def test_start_page_counts_what_holds():
    told = pages.tally(FACTS)
    assert "Of 2 statements that the texts make, 1 hold on SmolLM2." in told
    assert "1 blocks of figures. Those are GPT-2’s" in told
    assert "1 blocks of figures that they print, 0 came out" in pages.tally(FACTS | {"model": MODEL | {"name": "gpt2"}})
