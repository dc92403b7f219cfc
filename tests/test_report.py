"""A report: the chapters on a model of the reader's own, one page that says what holds on it."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from small_models import gpt2_network, llama_network, tokenizer

from press import __main__, claims, execute, report

FIRST = """\
from onematrix import claim, figures, load, pin
model = load(MODEL)
print(model)
pin("c1_rows", model.V)
claim("some.holds", True, "yes <b>indeed</b>")
claim("some.fails", False, "no")
figure, ax = figures.new()
ax.plot([0, 1], [0, model.d])
figures.show(figure, "line", caption="A line.", alt="A line.", data={"x": [0, 1]})
"""
SECOND = "from onematrix import load\nassert load(MODEL).tied, 'one matrix'"
CLAIMS = [
    {
        "id": "some.holds",
        "origin": "part1",
        "chapter": "01_first",
        "cell": "asks",
        "said": "It holds.",
        "training": False,
    },
    {
        "id": "some.fails",
        "origin": "part2",
        "chapter": "01_first",
        "cell": "asks",
        "said": "It fails.",
        "training": False,
    },
    {
        "id": "some.other",
        "origin": "part2",
        "chapter": "02_tied",
        "cell": "asks",
        "said": "It is tied.",
        "training": False,
    },
]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A book of two chapters, one of which asserts that the model is tied; reports already written by model."""
    home = tmp_path_factory.mktemp("book")
    for name in ("notebooks", "onematrix", "tests/printed/gpt2"):
        (home / name).mkdir(parents=True)
    (home / "requirements.txt").write_text("nothing==1\n")
    (home / "claims.yml").write_text(repr(CLAIMS).replace("False", "false"))
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for chapter, source in (("01_first", FIRST), ("02_tied", SECOND)):
        cells = [
            new_markdown_cell(f"# Chapter {chapter}", id="title"),
            new_code_cell('MODEL = "auto"', id="parameters", metadata={"tags": ["parameters"]}),
            new_code_cell(source, id="asks"),
        ]
        nbformat.write(new_notebook(cells=cells, metadata=spec), home / "notebooks" / f"{chapter}.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "ROOT", home)
        patch.setattr(execute, "NOTEBOOKS", home / "notebooks")
        patch.setattr(execute, "PRINTED", home / "tests" / "printed")
        patch.setattr(execute, "BUILD", home / "_build")
        patch.setattr(claims, "CLAIMS", home / "claims.yml")
        claims.claims.cache_clear()
        yield home
    claims.claims.cache_clear()


def written(book, name: str, network) -> tuple[str, object]:
    """The page of a report on a network in a folder."""
    folder = book / name
    network.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    out = book / f"{name}.html"
    assert __main__.main(["report", str(folder), "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def untied(book):
    return written(book, "mine & <yours>", llama_network(tie_word_embeddings=False))


def verdicts(page: str) -> dict[str, str]:
    return dict(re.findall(r'<th scope="row">(\S+?)<br>.*?<td>([a-z ]+)</td></tr>', page))


def test_a_folder_is_reported_with_its_own_figures(untied):
    assert "<h1>mine &amp; &lt;yours&gt; in" in untied
    assert "<tr><th>c1_rows</th><td>61</td></tr>" in untied
    assert 'id="01_first-figure-line"' in untied
    assert "<figcaption>A line.</figcaption>" in untied


def test_the_page_begins_with_the_two_matrices(untied):
    answer = re.search(r"<h2>One matrix or two</h2><pre>(.*?)</pre>", untied, re.S)[1]
    assert "mine &amp; &lt;yours&gt;: V = 61, d = " in answer
    assert "Two matrices, each " in answer
    assert "Nearest rows that both name: " in answer


def test_every_claim_has_its_verdict_and_one_that_was_not_asked_says_so(untied):
    assert verdicts(untied) == {"some.holds": "holds", "some.fails": "does not hold", "some.other": "not asked"}
    assert "yes &lt;b&gt;indeed&lt;/b&gt;" in untied
    assert "Of 2 statements that could be asked of it, 1 hold. 1 statement could not be asked." in untied


def test_a_chapter_that_stopped_is_named_with_its_reason(untied):
    assert re.search(
        r"<h2>Chapters that stopped</h2>.*<pre>02_tied, cell asks, line 2.*AssertionError: one matrix", untied, re.S
    )
    assert "<h3>Chapter 02_tied</h3>" not in untied


def test_the_page_needs_nothing_else_and_names_no_folder_of_this_machine(untied, book):
    assert not re.search(r'\b(src|href)="(?!#)', untied)
    assert not re.search(r"url\((?!#)|@import|<script", untied)
    assert str(book) not in untied
    ids = re.findall(r'\bid="([^"]+)"', untied)
    assert len(ids) == len(set(ids)) > 1
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', untied)) <= set(ids)


def test_on_a_tied_model_every_chapter_runs(book, capsys):
    page = written(book, "tied", gpt2_network())
    assert "Chapters that stopped" not in page
    assert "<h3>Chapter 02_tied</h3>" in page
    assert "One matrix at both ends" in page
    assert verdicts(page)["some.other"] == "does not hold"  # the cell gives no verdict of it
    assert "Of 3 statements that could be asked of it, 1 hold." in capsys.readouterr().out


@pytest.mark.parametrize("name", ["gpt-2", "./nowhere", "no/body@v1"])
def test_a_model_that_cannot_be_had_is_told(book, capsys, monkeypatch, name):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert __main__.main(["report", name]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_without_any_chapter_there_is_no_report(book, monkeypatch, tmp_path):
    folder = tmp_path / "broken"
    llama_network().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    monkeypatch.setattr(
        execute, "execute_all", lambda manifest: (_ for _ in ()).throw(execute.ChapterError("all stopped"))
    )
    with pytest.raises(execute.ChapterError):
        report.write(execute.prepare(str(folder)), tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
