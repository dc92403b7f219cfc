"""A document's figures are shown as the document's, and a reader's run is compared with the book's."""

from types import SimpleNamespace

import pytest

from onematrix import documents, expected, models, pins


@pytest.fixture
def shown(monkeypatch):
    """What a cell would show."""
    found = []
    monkeypatch.setattr(documents, "emit", lambda data, metadata: found.append(data))
    monkeypatch.setattr(pins, "PINNED", {})
    monkeypatch.setattr(documents, "PINNED", pins.PINNED)
    return found


@pytest.fixture
def run(shown, monkeypatch):
    """Compare a run that pinned these values with a book that has those on record."""

    def compare(mine: dict, book: dict) -> dict:
        monkeypatch.setattr(models, "OPEN", [SimpleNamespace(name="smollm2-135m", title="SmolLM2")])
        monkeypatch.setattr(documents, "book_pins", lambda model, chapter: book)
        pins.PINNED.update(mine)
        documents.your_run("04_dog_drift")
        return shown[-1]

    return compare


def test_a_block_about_other_models_says_so(shown):
    documents.document("press-wolf")
    assert "Weight tying, part 3, on a published table" in shown[0]["text/plain"]


def test_a_block_is_quoted_with_its_document_and_pinned_figure_by_figure(shown):
    documents.document("dog-next-cat-dog")
    assert "Weight tying, part 2, on GPT-2 124M" in shown[0]["text/plain"]
    assert "&quot; cat&quot;   0.00015   rank 423" in shown[0]["text/html"]
    assert pins.PINNED == {
        "doc_dog_next_cat_dog_1": 0.00015,
        "doc_dog_next_cat_dog_2": 423,
        "doc_dog_next_cat_dog_3": 0.0004,
        "doc_dog_next_cat_dog_4": 199,
    }


def test_a_number_in_a_name_is_no_figure(shown):
    documents.document("vocabularies")
    assert list(pins.PINNED.values()) == [50257, 32000, 128000]


def test_an_unknown_block_is_named():
    with pytest.raises(KeyError, match="no block 'nothing'"):
        documents.document("nothing")


def test_the_same_run_says_so(run):
    said = run({"a": 1.0, "b": 3}, {"a": 1.00001, "b": 3})
    assert said["text/plain"] == "All 2 figures are the book's, on SmolLM2."


def test_a_changed_prompt_is_told_from_a_lower_precision(run):
    near = run({"a": 1.003, "b": 3}, {"a": 1.0, "b": 3})["text/plain"]
    assert "1 of 2 figures differ" in near
    assert "lower precision" in near
    far = run({"a": 0.5, "b": 9}, {"a": 1.0, "b": 3})["text/plain"]
    assert "2 of 2 figures differ" in far
    assert "another prompt" in far


def test_a_cell_that_was_not_run_is_named(run):
    said = run({}, {"c4_rank": 8})
    assert "c4_rank: yours not computed" in said["text/plain"]
    assert "run the chapter from the top" in said["text/plain"]


def test_without_a_record_the_run_is_the_first(run):
    assert "yours are the first" in run({"a": 1}, {})["text/plain"]


def test_names_and_values_are_escaped(run):
    said = run({"a": "<script>"}, {"a": "<b>"})
    assert "<script>" not in said["text/html"]
    assert "&lt;script&gt;" in said["text/html"]


def test_on_gpt2_a_run_is_compared_with_the_documents_to_their_places():
    book = documents.book_pins("gpt2", "04_dog_drift")
    assert documents.same(423, book["c4_cat_next"])
    assert not documents.same(424, book["c4_cat_next"])
    assert documents.same(0.000152, book["c4_cat_p"])
    assert not documents.same(0.00017, book["c4_cat_p"])


def test_a_pin_in_a_printed_file_names_a_figure_that_is_there():
    for path in (expected.PRINTED / "gpt2").glob("*.txt"):
        for block in expected.blocks("gpt2", path.stem):
            assert len(block.pinned()) == len(block.pins)


@pytest.mark.parametrize(("mine", "its", "is_same"), [(1, 1, True), (1, 2, False), ("a", "a", True), ("a", 1, False)])
def test_whole_numbers_and_words_must_be_equal(mine, its, is_same):
    assert documents.same(mine, its) is is_same
