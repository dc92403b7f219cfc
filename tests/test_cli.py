"""The command line, as a reader meets it: what it prints, what it draws, what it says when a question is wrong."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_models import MANIFEST, gpt2_network, llama_network, tokenizer
from transformers import MptConfig, MptForCausalLM

from onematrix import cli, expected, models, neighbours, places
from onematrix.models import LanguageModel, load

SMOLLM2 = "smollm2-135m"


def run(capsys, monkeypatch, *arguments: str) -> SimpleNamespace:
    """What a command prints to stdout and stderr, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["onematrix", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capsys.readouterr()
    return SimpleNamespace(code=left.value.code or 0, out=out, err=err)


@pytest.fixture
def onematrix(capsys, monkeypatch):
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


@pytest.fixture(scope="module", autouse=True)
def one_model():
    """The session's model, whichever it was, is there again afterwards."""
    before = list(models.OPEN)
    yield
    models.OPEN[:] = before


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Two small models in folders: tied, and untied."""
    home = tmp_path_factory.mktemp("folders")
    for name, network in (("tied", gpt2_network()), ("untied", llama_network(tie_word_embeddings=False))):
        network.save_pretrained(home / name)
        tokenizer().save_pretrained(home / name)
    return home


def lines(text: str) -> list[str]:
    """Printed lines, with runs of spaces outside quotes as one."""
    return [re.sub(r'\s+(?=(?:[^"]*"[^"]*")*[^"]*$)', " ", line).strip() for line in text.strip().splitlines()]


# ------------------------------------------------------------------ answers, beside what the chapters print


@pytest.mark.parametrize(
    ("arguments", "block"),
    [
        (("next", "The dog", "--top", "5"), "dog-next"),
        (("neighbours", " dog", "--top", "20"), "nearest-rows"),
        (("lens", "The dog"), "dog-lens"),
    ],
)
def test_a_command_prints_what_the_chapter_prints(onematrix, arguments, block):
    said = onematrix(*arguments, "--model", SMOLLM2)
    assert (said.code, said.err) == (0, "")
    ours, chapter = lines(said.out), lines(expected.block(SMOLLM2, block).text)
    if arguments[0] == "next":
        ours = [re.sub(r"^\d+ ", "", line) for line in ours]  # the chapter does not number them
    if arguments[0] == "lens":
        assert [line.split(" ")[0] for line in ours] == ["embedding", *["block"] * 30]
        assert set(chapter) < set(ours)  # the chapter shows some of the layers
    else:
        assert ours == chapter


def test_a_step_is_the_chapters(onematrix):
    said = onematrix("step", "The sky is", " blue", "--model", SMOLLM2)
    assert said.code == 0
    assert lines(said.out)[0].startswith('" blue" p = 0.0097')
    assert "rank 15 loss 4.636" in lines(said.out)[0]
    the = next(line for line in lines(said.out) if line.startswith('" the"'))
    chapter = next(line for line in lines(expected.block(SMOLLM2, "sky-forces").text) if line.startswith('" the"'))
    assert the.split()[-1] == chapter.split()[-1]
    assert float(the.split()[4]) == pytest.approx(float(chapter.split()[4]), abs=5e-7)


def test_json_holds_the_unrounded_values_and_says_of_which_weights(onematrix):
    said = onematrix("neighbours", " dog", "--format", "json", "--model", SMOLLM2)
    answer = json.loads(said.out)
    model = load(SMOLLM2)
    found = [(row["id"], row["cosine"]) for row in answer["neighbours"]]
    assert found == neighbours(model.W, model.id(" dog"), 10)
    assert [row["token"] for row in answer["neighbours"]][:2] == [" Dog", " dogs"]
    assert answer["model"]["sha256"] == model.sha256
    assert said.out.isascii()


def test_every_command_answers_in_json(onematrix, tiny):
    folder = str(tiny / "untied")
    for arguments, keys in (
        (("next", "The dog"), {"model", "prompt", "next"}),
        (("lens", "The dog"), {"model", "prompt", "layers"}),
        (("step", "The dog", " cat"), {"model", "prompt", "target", "pushed"}),
    ):
        said = onematrix(*arguments, "--model", folder, "-f", "json")
        assert json.loads(said.out).keys() == keys
    assert json.loads(onematrix("tied", folder, "-f", "json").out).keys() == {"model", "likeness"}
    assert json.loads(onematrix("compare", folder, folder, "-f", "json").out)["likeness"]["cosine"] == pytest.approx(1)


def test_tied_and_untied(onematrix, tiny):
    tied = lines(onematrix("tied", str(tiny / "tied")).out)
    assert tied[0] == "tied: V = 61, d = 16, 3 blocks, tied"
    assert tied[1].startswith("One matrix at both ends, 976 of ")
    untied = lines(onematrix("tied", str(tiny / "untied")).out)
    assert untied[0] == "untied: V = 61, d = 16, 3 blocks, untied"
    assert untied[1].startswith("Two matrices, each 976 of ")
    assert untied[2].startswith("Nearest rows that both name: ")
    assert untied[3].startswith("Cosine of a token's two rows, median: ")


def test_two_models_are_compared_over_the_tokens_of_both(onematrix, tiny):
    said = lines(onematrix("compare", str(tiny / "tied"), str(tiny / "untied")).out)
    shared = len({*tokenizer().get_vocab()} - {"<s>"})
    assert said[:2] == ["tied: V = 61, d = 16, 3 blocks, tied", "untied: V = 61, d = 16, 3 blocks, untied"]
    assert re.fullmatch(r"\d+ tokens are in both\.", said[2])
    assert abs(int(said[2].split()[0]) - shared) <= 1


# ------------------------------------------------------------------ pictures


@pytest.mark.parametrize("arguments", [("lens", "The dog"), ("step", "The dog", " cat")])
def test_a_picture_is_drawn(onematrix, tiny, tmp_path, arguments):
    for name, magic in (("p.svg", b"<?xml"), ("p.png", b"\x89PNG")):
        said = onematrix(*arguments, "--model", str(tiny / "tied"), "--picture", str(tmp_path / name))
        assert (said.code, said.err) == (0, "")
        assert (tmp_path / name).read_bytes().startswith(magic)
    drawing = (tmp_path / "p.svg").read_text()
    assert "dog" in drawing if arguments[0] == "lens" else " cat" in drawing
    assert "<title>" in drawing


# ------------------------------------------------------------------ wrong questions


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["next"], 2, "Missing argument"),
        (["nxt", "The"], 2, "No such command 'nxt'"),
        (["next", "The", "--topp", "3"], 2, "No such option: --topp"),
        (["next", "The", "--top", "0"], 2, "Invalid value for '--top'"),
        (["next", "The", "--format", "xml"], 2, "Invalid value for '--format'"),
        (["next", "", "--model", "TINY"], 2, "the prompt is empty"),
        (["next", "The dog", "--top", "62", "--model", "TINY"], 2, "k must be 1 to 61, got 62"),
        (["next", "a" * 13, "--model", "TINY"], 2, "the prompt has 13 tokens; tied reads at most 12"),
        (["lens", "The", "dog"], 2, "unexpected extra argument(s) (dog): put a text of several words in quotes"),
        (["neighbours", "dog", "--model", "TINY"], 2, '"dog" is not one token of tied: it reads "d", "o", "g"\n'),
        (
            ["neighbours", "dog ", "--model", "TINY"],
            2,
            'reads "d", "o", "g", " ". A space belongs in front of the word.',
        ),
        (["neighbours", "  ", "--model", "TINY"], 2, 'it reads " ", " "\n'),
        (["step", "The", " bird", "--model", "TINY"], 2, '" bird" is not one token'),
        (["lens", "The", "--model", "./no", "--picture", "p.gif"], 2, "a picture is svg, png or pdf, not .gif"),
        (["step", "The", " c", "--model", "./no", "--picture", "p"], 2, "a picture is svg, png or pdf, not p"),
        (["lens", "The", "--model", "./no", "--picture", "/no/p.svg"], 2, "there is no folder /no to draw into"),
        (["tied", "gpt-2"], 1, "There is no model 'gpt-2' here. Did you mean gpt2?"),
        (["tied", "gpt2-rehersal"], 1, "here. Did you mean gpt2?"),
        (["tied", "zzzz"], 1, "here. Did you mean gpt2 or smollm2-135m or auto?"),
        (["tied", "./nowhere"], 1, "There is no folder ./nowhere."),
        (["tied", "/"], 1, "/ holds no model"),
    ],
)
def test_a_wrong_question_is_told_in_one_line(onematrix, tiny, arguments, code, message):
    said = onematrix(*(str(tiny / "tied") if a == "TINY" else a for a in arguments))
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("onematrix: ")
    assert message in said.err
    assert said.err.count("\n") == 1
    assert "\x1b" not in said.err


def test_without_a_network_gpt2_fails_with_what_to_take(machine, onematrix):
    said = onematrix("next", "The", "-m", "gpt2")
    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("copy the snapshot into that cache, or take smollm2-135m instead.\n")


def test_a_family_without_an_adapter_says_where_one_goes(onematrix, tmp_path):
    network = MptForCausalLM(MptConfig(vocab_size=61, d_model=16, n_layers=2, n_heads=2))
    network.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    said = onematrix("tied", str(tmp_path))
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("onematrix: No adapter for the family 'mpt'")
    assert said.err.endswith("Add a line to FAMILIES in onematrix/families.py: CONTRIBUTING.md, Add a model.\n")


def test_a_mistake_of_ours_is_not_hidden(monkeypatch, onematrix, tiny):
    monkeypatch.setattr(cli, "opened", lambda name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        onematrix("next", "The")


def test_only_the_answer_goes_to_stdout(monkeypatch, onematrix, tiny):
    def talkative(name):
        print("Preparing a model (once).")
        return load(name)

    monkeypatch.setattr(models, "load", talkative)
    said = onematrix("next", "The", "--model", str(tiny / "tied"), "--format", "json")
    assert json.loads(said.out)
    assert said.err == "Preparing a model (once).\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt2", "auto takes gpt2\n"),
        (SMOLLM2, f"auto takes {SMOLLM2}: GPT-2 is not here and the Hub does not answer\n"),
    ],
)
def test_auto_says_on_stderr_which_model_it_took(monkeypatch, onematrix, tiny, name, said):
    tied = load(str(tiny / "tied"))
    taken = LanguageModel(tied.network, tied.tokenizer, MANIFEST | {"name": name})
    monkeypatch.setattr(models, "load", lambda asked: taken)
    for question in (("next", "The"), ("next", "The", "--model", "auto"), ("tied", "auto")):
        answer = onematrix(*question, "--format", "json")
        assert json.loads(answer.out)["model"]["name"] == name
        assert answer.err == said
    assert onematrix("next", "The", "--model", name).err == ""


# ------------------------------------------------------------------ what a terminal is shown


def test_a_small_probability_has_two_digits_and_the_columns_stay_in_line(monkeypatch, onematrix, tiny):
    values = {0.5: "0.500", 0.001: "0.001", 0.000999: "0.0010", 0.0003: "0.00030", 3.14e-5: "3.1e-05", 0.0: "0.0"}
    assert {p: cli.likely(p) for p in values} == values
    model = ("--model", str(tiny / "tied"))
    spread = onematrix("next", "The", "--top", "61", *model).out.splitlines()
    assert min(float(line.split()[-1]) for line in spread) > 0
    assert len({line.rindex('" ') for line in spread}) > 1  # tokens of several widths,
    assert len({len(line) - len(line.split()[-1]) for line in spread}) == 1  # and one column of figures
    layers = onematrix("lens", "The dog", "--top", "61", *model).out.splitlines()
    ends = [[match.end() for match in re.finditer(r'"[^"]*" +(?=\d)', line)] for line in layers]
    assert len(ends[0]) == 61
    assert all(line == ends[0] for line in ends)
    assert not re.search(r" 0\.000\b", "".join(layers))


def test_no_token_and_no_folder_moves_the_cursor(monkeypatch, onematrix, tiny):
    tied = load(str(tiny / "tied"))
    hostile = LanguageModel(tied.network, tied.tokenizer, MANIFEST | {"title": "\x1b]0;mine\x07"})
    monkeypatch.setattr(hostile, "text", lambda index: "\x1b[31m\r\n\x9b2J\u202e" if index % 2 else " 犬\x00")
    monkeypatch.setattr(models, "load", lambda name: hostile)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    for arguments in (("next", "The"), ("neighbours", " dog"), ("lens", "The"), ("step", "The", " cat"), ("tied", "x")):
        for form in ("table", "json"):
            said = onematrix(*arguments, "--format", form)
            assert said.code == 0
            left = re.sub(r"\x1b\[[01]?m", "", said.out)  # bold, and its end
            assert all(c.isprintable() or c == "\n" for c in left)
            if form == "json":
                assert json.loads(said.out)


def test_colours_are_for_terminals_and_NO_COLOR_is_respected(monkeypatch, onematrix, tiny):
    question = ("next", "The", "--model", str(tiny / "tied"))
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in onematrix(*question).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[36m" in onematrix(*question).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in onematrix(*question).out


# ------------------------------------------------------------------ as a program

HELP = """
import sys
from onematrix import cli
sys.argv = ["onematrix", *sys.argv[1:]]
try:
    cli.main()
finally:
    print([name for name in ("torch", "transformers", "matplotlib", "numpy") if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command", [[], ["next"], ["neighbours"], ["lens"], ["step"], ["tied"], ["compare"], ["report"]]
)
def test_help_has_an_example_and_loads_nothing_heavy(command):
    done = subprocess.run([sys.executable, "-c", HELP, *command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == "[]\n"
    assert f"Example: onematrix {' '.join(command)}" in " ".join(done.stdout.split())
    assert "\x1b" not in done.stdout


def test_the_program_is_installed_and_completes_commands_and_models():
    program = Path(sys.executable).parent / "onematrix"
    for words, completed in (("onematrix ne", {"next", "neighbours"}), ("onematrix tied smol", {SMOLLM2})):
        setting = {"_ONEMATRIX_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run([program], env=os.environ | setting, capture_output=True, text=True)
        assert set(done.stdout.split()) == completed


def test_the_random_rehearsal_is_not_offered_but_can_be_asked_for():
    assert cli.known("") == ["gpt2", SMOLLM2, "auto"]
    assert places.resolve("gpt2-rehearsal") == "gpt2-rehearsal"


def test_the_help_says_what_a_name_without_a_revision_is(onematrix):
    assert places.resolve("foo/bar") == "foo/bar@main"
    assert "(main without @revision)" in cli.NAME
    for command in ("next", "tied"):
        said = re.sub(r"[│\s]+", " ", onematrix(command, "--help").out)
        assert cli.NAME in said


def test_the_version_is_the_packages(onematrix):
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    said = onematrix("--version")
    assert (said.code, said.out, said.err) == (0, f"onematrix {project['version']}\n", "")


def test_a_report_is_made_by_the_press():
    """What the press answers and its exit code come through; the page is tested in test_report.py."""
    program = Path(sys.executable).parent / "onematrix"
    done = subprocess.run([program, "report", "gpt-2"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "There is no model 'gpt-2' here. Did you mean gpt2" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_who_leaves_ends_it_quietly(tiny):
    code = "import sys; from onematrix import cli; sys.argv[1:1] = []; cli.main()"
    command = [sys.executable, "-c", code, "lens", "The dog", "--model", str(tiny / "tied"), "-f", "json"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == ""
