"""Every claim has a cell, every cell of a document its claim, and the ledger tells all of them."""

import csv
import io
import json
import re
from pathlib import Path

import nbformat
import pytest

from onematrix import expected
from onematrix.pins import RECORD
from press import claims, compare, execute, ledger

FROM_DOCUMENT = re.compile(r"^(matrices|part\d)\.[a-z0-9-]+$")


def sources() -> dict[tuple[str, str], str]:
    """The source of every code cell, by chapter and id."""
    return {
        (chapter, cell.id): cell.source
        for chapter in execute.chapters()
        for cell in nbformat.read(execute.NOTEBOOKS / f"{chapter}.ipynb", as_version=4).cells
        if cell.cell_type == "code"
    }


def claimed(source: str) -> set[str]:
    """The ids that a cell gives a verdict on."""
    return set(re.findall(r'\bclaim\(\s*"([^"]+)"', source))


def test_every_claim_has_a_cell():
    cells = sources()
    assert [c.id for c in claims.claims() if (c.chapter, c.cell) not in cells] == []


def test_every_statement_gets_a_verdict_in_its_cell():
    cells = sources()
    silent = [
        c.id for c in claims.claims() if not c.printed and c.id not in claimed(cells.get((c.chapter, c.cell), ""))
    ]
    assert silent == []


def test_every_verdict_is_on_a_claim_of_the_list():
    known = {c.id for c in claims.claims()}
    given = {name for source in sources().values() for name in claimed(source)}
    assert given - known == set()


def test_every_printed_block_has_its_claim():
    blocks = {
        block.cell for path in (expected.PRINTED / "gpt2").glob("*.txt") for block in expected.blocks("gpt2", path.stem)
    }
    assert blocks == {c.id for c in claims.claims() if c.block}


def test_ids_are_unique_and_statements_name_their_document():
    ids = [c.id for c in claims.claims()]
    assert len(ids) == len(set(ids))
    for claim in claims.claims():
        assert claim.block or FROM_DOCUMENT.match(claim.id)
        assert claim.block is None or claim.block.origin == claim.origin
        assert claim.block or claim.id.startswith(claim.origin)
        assert claim.said.endswith(".")


def test_each_document_figure_is_shown_beside_ours():
    """A chapter quotes every printed block that it mirrors."""
    quoted = {name for source in sources().values() for name in re.findall(r'\bdocument\("([^"]+)"\)', source)}
    assert {c.id for c in claims.claims() if c.printed} - quoted == set()


def test_every_pin_that_a_printed_file_names_is_pinned_by_its_chapter():
    cells = sources()
    for claim in claims.claims():
        for pin in claim.block.pins if claim.block else {}:
            assert f'pin("{pin}"' in "\n".join(s for (chapter, _), s in cells.items() if chapter == claim.chapter)


def test_every_other_reading_of_a_document_is_recorded_by_its_cell():
    cells = sources()
    for claim in claims.claims():
        for name in claim.block.also if claim.block else ():
            assert name in cells[claim.chapter, claim.cell].replace('\\"', '"')


# ---------------------------------------------------------------- the ledger


def entry(**changes) -> dict:
    """The ledger's entry of one block, as a run printed it."""
    block = expected.block("gpt2", "dog-next-cat-dog")
    claim = next(c for c in claims.claims() if c.id == "dog-next-cat-dog")
    cell = compare.Cell(True, changes.get("text", block.text))
    return claims.row(claim, cell)


def facts(*rows: dict, trained: bool = True) -> dict:
    model = {"name": "gpt2", "title": "GPT-2", "revision": "1", "sha256": "0", "trained": trained}
    return {"model": model, "chapters": {}, "claims": list(rows), "pins": {}}


def test_a_claim_that_holds_has_no_difference():
    row = entry()
    assert row["holds"]
    assert [line["difference"] for line in row["lines"]] == ["none", "none"]


def test_a_difference_is_measured_less_the_documents():
    row = entry(text='" cat"   0.00025   rank 423\n" dog"   0.00040   rank 209')
    assert not row["holds"]
    assert [line["difference"] for line in row["lines"]] == ["+0.00010, 0", "0, +10"]


@pytest.mark.parametrize(
    ("document", "measured", "difference"),
    [
        ("block  2  0.937", "block  5  0.837", "-0.100"),
        ('" was"  0.143', '" is"  0.143', "other words"),
        ('" was"  0.143', "", "nothing printed"),
        ("True", "True", "none"),
        ("rank 9 of 50257", "rank 8 of 49152", "-1, -1105"),
    ],
)
def test_a_line_differs_by_its_figures_or_by_its_words(document, measured, difference):
    assert claims.difference(document, measured) == difference


def test_a_claim_without_its_cell_fails_and_says_so():
    for claim in claims.claims():
        row = claims.row(claim, None)
        assert not row["holds"]


def test_a_statement_holds_by_its_cells_verdict_alone():
    claim = next(c for c in claims.claims() if c.id == "part2.step")
    for verdict in (True, False):
        row = claims.row(claim, compare.Cell(True, "", claims={"part2.step": (verdict, "so much")}))
        assert (row["holds"], row["lines"][0]["measured"]) == (verdict, "so much")
    assert not claims.row(claim, compare.Cell(True, ""))["holds"]


def test_reproduce_succeeds_only_when_all_hold():
    good, bad = entry(), entry(text="nothing")
    assert claims.as_it_must(facts(good))
    assert not claims.as_it_must(facts(good, bad))
    assert "2 claims on GPT-2: 1 hold, 1 fail." in claims.table(facts(good, bad))


def test_on_random_weights_what_should_fail_and_holds_is_named():
    lucky, broken = entry(), entry(text="nothing") | {"needs_training": False, "id": "shape"}
    told = "\n".join(claims.counts(facts(lucky, broken, trained=False)))
    assert "These fail and should not: shape." in told
    assert "These hold and should not: dog-next-cat-dog." in told


def test_a_rehearsal_succeeds_when_exactly_what_needs_no_trained_weights_holds():
    lucky, fails = entry(), entry(text="nothing")
    shape = entry() | {"needs_training": False}
    assert claims.as_it_must(facts(shape, fails, trained=False))
    assert not claims.as_it_must(facts(shape, lucky, trained=False))
    assert not claims.as_it_must(facts(shape | {"holds": False}, fails, trained=False))


def test_a_verdict_on_what_is_not_in_the_list_is_told_with_its_place():
    def judged(name: str) -> dict:
        output = {"output_type": "display_data", "data": {RECORD: {"claim": name, "holds": True, "measured": "so"}}}
        return {"cells": [{"cell_type": "code", "id": "asks", "source": "", "outputs": [output]}]}

    assert claims.unlisted({"01_a": judged("part2.step")}) == []
    told = claims.unlisted({"01_a": judged("part2.step"), "02_b": judged("part2.stepp")})
    assert told == ["02_b, cell asks: claim part2.stepp is not in book/claims.yml"]


def test_the_table_has_one_row_a_printed_line_with_its_verdict_once():
    lines = claims.table(facts(entry())).splitlines()
    assert sum("dog-next-cat-dog" in line for line in lines) == 1
    assert sum("holds" in line for line in lines) == 1
    assert sum("rank 199" in line for line in lines) == 1


@pytest.mark.parametrize("text", ["=1+1", "+1-2", "-cmd", "@SUM(A1)", "\t=1"])
def test_the_csv_is_safe_in_a_spreadsheet(text):
    row = entry() | {"said": text}
    file = io.StringIO()
    ledger.write_csv(facts(row), file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert rows[0]["said"] == f"'{text}"


@pytest.mark.parametrize("number", ["-0.056", "+10", "12"])
def test_a_plain_number_stays_a_number_in_the_csv(number):
    assert ledger.inert(number) == number


def test_the_page_shows_every_claim_with_its_cell_and_its_test():
    rows = [claims.row(claim, None) for claim in claims.claims()]
    page = ledger.page(facts(*rows))
    for claim in claims.claims():
        assert f'<a href="../notebooks/{claim.chapter}.html#cell-{claim.cell}">{claim.id}</a>' in page
        assert claim.test.partition("::")[2].replace("[", "<wbr>[") in page
    assert page.count('<tr role="row" data-verdict=') == len(claims.claims())


def test_a_token_cannot_open_a_tag_on_the_page():
    page = ledger.page(facts(entry(text='"<script>"  0.1')))
    assert '"<script>"' not in page
    assert "&lt;script&gt;" in page


def test_publish_writes_page_and_downloads(tmp_path):
    for name in ("book", "extra"):
        (tmp_path / name).mkdir()
    ledger.publish(facts(entry()), tmp_path)
    assert json.loads((tmp_path / "extra" / "facts.json").read_text())["claims"][0]["id"] == "dog-next-cat-dog"
    assert (tmp_path / "extra" / "facts.csv").read_text().count("\n") == 3
    assert (tmp_path / "book" / "figure_by_figure.md").read_text().startswith("# Figure by figure")


# ---------------------------------------------------------------- the list itself


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"surprise": 1}, "missing or unknown: surprise"),
        ({"said": None}, "missing or unknown: said"),
        ({"cell": "x"}, "a block has neither"),
        ({"id": "part2.new"}, "a statement has a cell and training"),
    ],
)
def test_a_malformed_claim_is_named(tmp_path, monkeypatch, change, told):
    block = {"id": "tie", "origin": "part2", "chapter": "01_two_matrices", "said": "So."}
    entry = {key: value for key, value in (block | change).items() if value is not None}
    path = Path(tmp_path / "claims.yml")
    path.write_text(json.dumps([entry]))
    monkeypatch.setattr(claims, "CLAIMS", path)
    with pytest.raises(ValueError, match=re.escape(told)):
        claims.claims.__wrapped__()


# ---------------------------------------------------------------- the rehearsal


@pytest.fixture(scope="module")
def rehearsed() -> dict:
    """The ledger of all chapters on GPT-2's shape and tokenizer with random weights."""
    runs = execute.execute_all(execute.prepare("gpt2-rehearsal"))
    return claims.gather(runs, execute.read_all(runs))


@pytest.mark.parametrize("claim", claims.claims(), ids=lambda c: c.id)
def test_random_weights_pass_what_needs_no_training_and_nothing_else(rehearsed, claim):
    row = next(row for row in rehearsed["claims"] if row["id"] == claim.id)
    assert row["holds"] == (not claim.needs_training)


def shape(text: str) -> list[list[str]]:
    """A printed text without its values: each line's words, and marks for tokens, figures and ordinals."""

    def mark(piece) -> str:
        if isinstance(piece, expected.Figure):
            return "figure"
        return "token" if piece.startswith('"') else re.sub(r"^\d+(st|nd|rd|th)$", "ordinal", piece)

    return [[mark(piece) for piece in expected.pieces(line)] for line in text.splitlines()]


@pytest.mark.parametrize("claim", [c for c in claims.claims() if c.printed], ids=lambda c: c.id)
def test_on_gpt2s_shape_every_block_is_printed_as_the_document_prints_it(rehearsed, claim):
    """Only values are left to the weights: lines, words, and the places of tokens and figures are the document's."""
    row = next(row for row in rehearsed["claims"] if row["id"] == claim.id)
    assert shape("\n".join(line["measured"] for line in row["lines"])) == shape(claim.block.text)
