"""Every token of both vocabularies through every place that shows tokens: no injection, no broken table, no escape.

Tokens are arbitrary bytes. Where a place is to keep them (JSON, CSV) they come back as they were.
"""

import csv
import html
import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import cache
from html.parser import HTMLParser

import pytest
from small_models import real_tokenizer

from onematrix import figures, weights
from onematrix.expected import pieces
from onematrix.tokens import as_html, shown
from press import compare, ledger, pages

# What no vocabulary has as one token, and a page may meet all the same.
WORSE = (
    *(
        "=1+1",
        "=HYPERLINK(1)",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "'=1",
        "''",
        "|",
        "a|b",
        "\\|",
        "`",
        "``",
        "$x$",
    ),
    *(
        "<script>alert(1)</script>",
        "</code></pre>",
        "<!--",
        "]]>",
        "&lt;",
        '"',
        '" onload="',
        "'",
        "{{x}}",
        "{glue:text}`x`",
    ),
    *(
        "\x1b[31m",
        "\x1b]0;x\x07",
        "\x07",
        "\x00",
        "\x7f",
        "\x9b31m",
        "\u202e",
        "\u2066",
        "\u200b",
        "\ufeff",
        "\u2028",
        "\ud800",
    ),
    *("[x](javascript:1)", "![x](y)", "# x", "---", "=== x", "- x", "1. x", "    x", "\u0301", "\U000e0041", "ﷺ" * 3),
)


@cache
def vocabulary(name: str) -> tuple[str, ...]:
    """The texts of all tokens."""
    if name == "worse":
        return WORSE
    if name == "gpt2":
        tokenizer = real_tokenizer()
    else:
        folder = weights.cache() / "smollm2-135m"
        if not (folder / "tokenizer.json").is_file():
            pytest.skip("SmolLM2's folder is not here: `make book` makes it")
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return tuple(tokenizer.decode([i], clean_up_tokenization_spaces=False) for i in range(len(tokenizer)))


@pytest.fixture(params=["gpt2", "smollm2-135m", "worse"])
def tokens(request) -> tuple[str, ...]:
    texts = vocabulary(request.param)
    print(f"{request.param}: {len(texts)} tokens")
    return texts


class Reader(HTMLParser):
    """What a browser would make of a fragment."""

    def __init__(self, fragment: str):
        super().__init__()
        self.tags, self.cells, self.strange = [], [], []
        self.feed(fragment)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data

    def handle_comment(self, data):
        self.strange.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def test_a_token_on_a_terminal_is_one_printable_line_that_can_be_encoded(tokens):
    for text in tokens:
        line = shown(text)
        assert line.isprintable()
        assert (line[0], line[-1]) == ('"', '"')
        line.encode("utf-8")


def test_a_printed_token_is_compared_as_one_word(tokens):
    """With any token beside it a figure is still found, and another figure or another token does not pass."""
    for at, text in enumerate(tokens):
        line, other = f"{shown(text)}   0.123", shown(tokens[at - 1])
        assert len(line.splitlines()) == 1
        assert compare.line_differs(line, line, {}) == ""
        assert compare.line_differs(line, f"{shown(text)}   0.456", {})
        if other.split() != shown(text).split():
            assert compare.line_differs(line, f"{other}   0.123", {}), (text, tokens[at - 1])
        assert str(pieces(line)[-1]) == "0.123"


def test_a_token_in_html_opens_nothing_and_keeps_its_text(tokens):
    for text in tokens:
        read = Reader(as_html(text))
        assert read.tags in (["code"], ["code", "span"])
        assert read.strange == []


def test_tokens_in_a_figures_table_stay_in_their_cells(tokens):
    table = figures.table({"token": [shown(text) for text in tokens], "p": [0.5] * len(tokens)})
    read = Reader(table)
    assert set(read.tags) == {"table", "thead", "tbody", "tr", "th", "td"}
    assert read.cells[::2] == [shown(text) for text in tokens]
    assert read.strange == []


def test_tokens_in_csv_come_back_and_are_no_formula(tokens, tmp_path):
    for inert in (pages.inert, ledger.inert):
        assert len({inert(text) for text in tokens}) == len(set(tokens)), "two tokens became one"
        for text in tokens:
            if not re.fullmatch(r"[-+][\d,]*\.?\d+%?", text):  # a number is no formula
                assert not inert(text).startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    plain = [text for text in tokens if "\ud800" not in text]
    pages.write_csv(tmp_path / "t.csv", {"token": plain, "p": [-0.5] * len(plain)})
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["token", "p"]
    assert [
        row[0].removeprefix("'") if row[0] != text else row[0] for row, text in zip(rows, plain, strict=True)
    ] == plain
    assert {row[1] for row in rows} == {"-0.5"}  # a number stays one


def test_tokens_in_json_come_back(tokens):
    for ascii_only in (True, False):
        assert json.loads(json.dumps(tokens, ensure_ascii=ascii_only)) == list(tokens)


def test_tokens_in_a_record_come_back(tokens, tmp_path, monkeypatch):
    """What `make record` writes is read again as what was printed."""
    from onematrix import expected

    monkeypatch.setattr(expected, "PRINTED", tmp_path)
    text = "\n".join(f"{shown(token)}  0.123" for token in tokens)
    said = {
        "cell_type": "code",
        "id": "all",
        "source": "",
        "outputs": [{"output_type": "stream", "name": "stdout", "text": text}],
    }
    compare.record("smollm2-135m", {"01_a": {"cells": [said]}})
    (block,) = expected.blocks("smollm2-135m", "01_a")
    assert block.text == text
    assert compare.check("smollm2-135m", "01_a", {"cells": [said]}) == []


def hardest(texts: tuple[str, ...], n: int) -> list[str]:
    """The tokens with the most characters that are neither letters nor digits, of every kind."""
    strange = {"".join(c for c in text if not c.isalnum() and c != " ") or text[:1]: text for text in texts}
    return list(strange.values())[:n]


def test_tokens_in_a_figure_are_text_of_the_drawing(tokens):
    """Drawing costs a millisecond a token, so of each kind of strange token one."""
    some = hardest(tokens, 120)
    print(f"{len(some)} drawn")
    fig, ax = figures.new(7, 40)
    figures.cells(ax, [[0.5]] * len(some), [[shown(text)] for text in some])
    drawn = figures.svg(fig, "tokens", alt=" ".join(shown(text) for text in some))
    root = ET.fromstring(drawn)
    assert not [node for node in root.iter() if node.tag.endswith(("script", "foreignObject", "a"))]
    texts = {"".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")}
    for text in some:
        assert shown(text) in texts or shown(text).replace("$", r"\$") in texts, text
    assert root.get("aria-label") == " ".join(" ".join(shown(text) for text in some).split(" "))


def test_tokens_in_an_answer_of_the_command_line(tokens):
    cli = pytest.importorskip("onematrix.cli")
    rows = [{"place": at, "token": text, "p": 0.5} for at, text in enumerate(hardest(tokens, 2000))]
    for form in (cli.Form.table, cli.Form.json):
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            cli.answer(form, {"rows": rows}, cli.listing(rows, "p"))
        said = out.getvalue()
        assert said.replace("\n", "").isprintable()
        if form == cli.Form.json:
            assert json.loads(said)["rows"] == rows
        else:
            assert len(said.splitlines()) == len(rows)


def test_a_claims_row_and_a_byline_escape_what_they_are_given():
    nasty = "<script>\"&'</script>"
    claim = {
        **{
            "id": "a",
            "origin": next(iter(ledger.TITLES)),
            "kind": "figures",
            "chapter": "01_a",
            "cell": "a",
            "holds": True,
        },
        **{"said": nasty, "correction": nasty, "reading": nasty, "test": "tests/x.py::y[a]"},
        "lines": [{"document": nasty, "measured": nasty, "difference": nasty}],
    }
    row = ledger.table_row(0, claim)
    assert "<script>" not in row
    assert html.escape(nasty) in row
    model = {"name": nasty, "title": nasty, "revision": nasty, "sha256": nasty, "trained": True}
    run = {"seconds": 1.0, "date": "2026-01-01T00:00:00+00:00", "versions": {"python": nasty}}
    assert "<script>" not in pages.byline("01_a", 1, {"model": model, "chapters": {"01_a": run}})


# ------------------------------------------------------------------ trust


def test_no_secret_of_the_environment_reaches_a_kernel_or_what_it_leaves(tmp_path):
    """Seen by the chapter itself, as its own environment and as that of the processes above it."""
    code = """
import json, os, sys
sys.path.insert(0, sys.argv[2])
import nbformat
from pathlib import Path
import test_faults_machine as machine
from press import execute, warm
place = Path(sys.argv[1])
for name in ("notebooks", "onematrix", "tests/printed/gpt2"):
    (place / name).mkdir(parents=True)
(place / "requirements.txt").write_text("")
look = '''
import os, psutil
print(sorted(os.environ))
for above in psutil.Process().parents():
    if above.cmdline()[1:3] == ["-m", "press.warm"]:
        print(sorted(above.environ()))
'''
(place / "notebooks" / "01_one.ipynb").write_text(json.dumps(machine.notebook({"looks": look})))
execute.ROOT, execute.NOTEBOOKS, execute.BUILD = place, place / "notebooks", place / "_build"
execute.PRINTED = place / "tests" / "printed"
machine.weights.SOURCES[machine.MODEL] = machine.SMALL
machine.weights.folder(machine.MODEL)
execute.execute_all(machine.weights.manifest(machine.weights.cache() / machine.MODEL))
"""
    secrets = {
        name: f"hunter2-{name}" for name in ("HF_TOKEN", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PIP_INDEX_URL")
    }
    settings = os.environ | secrets | {"ONEMATRIX_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, str(tmp_path), os.path.dirname(__file__)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    result = tmp_path / "_build" / "executed" / "gpt2-rehearsal" / "01_one.ipynb"
    said = result.read_text()
    assert "ONEMATRIX_CACHE" in said
    for name in secrets:
        assert name not in said
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"hunter2" not in path.read_bytes(), path
