"""Chapter 11 with one model present and with two: it runs, asks only tied models, and says what is missing."""

import json

import nbformat
import pytest
from nbclient import NotebookClient
from small_models import gpt2_network, llama_network, real_tokenizer

from onematrix import weights
from onematrix.pins import RECORD
from press import execute, mutants

CHAPTER = execute.NOTEBOOKS / "11_another_model.ipynb"
ASK_NO_MODEL = {"untrained", "solution-2"}  # they build networks of their own, which takes long


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """Small models as a reader's own folders: two tied ones of different families, and one that is not tied."""
    base = tmp_path_factory.mktemp("models")
    shape = {"vocab_size": 50257}
    networks = {
        "small-gpt2": gpt2_network(**shape),
        "small-llama": llama_network(**shape),
        "untied": llama_network(**shape, tie_word_embeddings=False),
    }
    for name, network in networks.items():
        network.save_pretrained(base / name)
        real_tokenizer().save_pretrained(base / name)
    return {name: str(base / name) for name in networks}


def run(monkeypatch, tmp_path, model: str, also: list[str], cells: tuple[str, ...] = ()) -> dict:
    """The chapter's cells that ask a model, or those that these need, with an empty cache; by id."""
    monkeypatch.setenv("ONEMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = nbformat.read(CHAPTER, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = mutants.needed(code, cells or tuple({cell.id for cell in code} - ASK_NO_MODEL))
    (parameters,) = [cell for cell in notebook.cells if cell.id == "parameters"]
    parameters.source = f"MODEL = {model!r}\nALSO = {also!r}"
    NotebookClient(notebook, kernel_name="python3", timeout=300).execute()
    return {cell.id: cell for cell in notebook.cells}


def markup(cell) -> str:
    (output,) = [output for output in cell.outputs if "text/html" in output.get("data", {})]
    return output.data["text/html"]


def drawn_models(cell) -> list[str]:
    """The models whose curves a figure shows."""
    (record,) = [o.data[RECORD] for o in cell.outputs if "figure" in o.get("data", {}).get(RECORD, {})]
    return list(dict.fromkeys(record["data"]["model"]))


def test_two_models_are_asked_an_untied_one_is_not_and_what_is_missing_is_said(monkeypatch, tmp_path, folders):
    cells = run(monkeypatch, tmp_path, folders["small-gpt2"], [folders["small-llama"], folders["untied"]])
    said = markup(cells["which-models"])
    assert "small-gpt2: here, the page" in said
    assert "small-llama: here." in said
    for source in (weights.SOURCES["gpt2"], weights.SOURCES["smollm2-135m"]):
        assert f"{source.title}: missing. load(&quot;{source.name}&quot;) gets it, from {source.origin}" in said
    assert "rehearsal" not in said
    answers = markup(cells["ask-the-others"])
    assert answers.index("small-gpt2") < answers.index("small-llama")
    assert "untied is left out: its two matrices are not one." in answers
    assert drawn_models(cells["figure-drift"]) == ["small-gpt2", "small-llama"]


def test_one_model_is_enough(monkeypatch, tmp_path, folders):
    cells = run(monkeypatch, tmp_path, folders["small-llama"], [], ("which-models", "figure-drift"))
    assert "one model is asked" in markup(cells["which-models"])
    assert drawn_models(cells["figure-drift"]) == ["small-llama"]


def test_present_is_what_the_cache_holds(monkeypatch, tmp_path):
    monkeypatch.setenv("ONEMATRIX_CACHE", str(tmp_path))
    assert weights.present() == []
    for name in ("smollm2-135m", "gpt2-rehearsal", "another"):
        (tmp_path / name).mkdir()
        (tmp_path / name / weights.MANIFEST).write_text(json.dumps({}))
    (tmp_path / "gpt2").mkdir()  # begun and not finished
    assert weights.present() == ["smollm2-135m", "gpt2-rehearsal"]
