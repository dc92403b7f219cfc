"""The package as others use it: typed, documented, and the page about it says what is true.

`python tests/test_api.py` runs the page's examples and writes what they print into it.
"""

import ast
import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import onematrix
from onematrix import cli, models
from onematrix.expected import Figure, pieces

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "book" / "api.md"
BLOCK = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.M | re.S)


def in_shell(line: str) -> str:
    """What a command prints."""
    said = io.StringIO()
    before, sys.argv = sys.argv, shlex.split(line)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
            cli.main()
    finally:
        sys.argv = before
    return said.getvalue()


def in_python(source: str, names: dict) -> str:
    """What an example prints in an interactive Python; of an error its last line."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(compile(source, "<example>", "single"), names)
        except Exception as error:
            return f"Traceback (most recent call last):\n  ...\n{type(error).__name__}: {error}\n"
    return said.getvalue()


def filled(page: str) -> str:
    """The page with what its examples print now."""
    names: dict = {}

    def run(block: re.Match) -> str:
        kind, text = block[1], block[2]
        if kind == "console":
            shown = [f"{line}\n{in_shell(line[2:])}" for line in text.splitlines() if line.startswith("$ ")]
        else:
            shown = []
            for example in doctest.DocTestParser().get_examples(text):
                first, *more = example.source.splitlines()
                typed = "\n".join([f">>> {first}", *(f"... {line}" for line in more)])
                shown.append(f"{typed}\n{in_python(example.source, names)}")
        return f"```{kind}\n{''.join(shown)}```"

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return BLOCK.sub(run, page)
        finally:
            os.chdir(here)


def same(one: str | Figure, other: str | Figure) -> bool:
    """Whether two pieces of a line agree: words exactly, figures to the places that are printed."""
    if isinstance(one, Figure) and isinstance(other, Figure):
        return one.form == other.form and abs(one.value - other.value) <= one.tolerance()
    return one == other


@pytest.fixture(scope="module")
def now():
    before = list(models.OPEN)
    yield filled(PAGE.read_text(encoding="utf-8"))
    models.OPEN[:] = before


def test_the_pages_examples_print_what_stands_under_them(now):
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(page) == len(now.splitlines())
    for line, ran in zip(page, now.splitlines(), strict=True):
        one, other = pieces(line), pieces(ran)
        assert len(one) == len(other), (line, ran)
        assert all(map(same, one, other)), (line, ran)


def test_the_examples_are_of_every_command(now):
    commands = {shlex.split(line)[2] for line in now.splitlines() if line.startswith("$ onematrix")}
    assert commands == {"next", "neighbours", "lens", "step", "tied", "compare"}


def test_the_page_names_every_public_name():
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("## Names") :]
    assert [name for name in onematrix.__all__ if f"`{name}" not in table] == []
    described = re.search(r"\| `LanguageModel` \| (.*) \|", table)[1]
    fields = set(re.findall(r"`(\w+)(?:\(x\))?`", described))
    public = {name for name in vars(onematrix.LanguageModel) if not name.startswith("_")}
    assert public <= fields


@pytest.mark.parametrize("name", onematrix.__all__)
def test_every_public_name_is_documented_and_typed(name):
    thing = getattr(onematrix, name)
    assert inspect.getdoc(thing)
    if inspect.isfunction(thing):
        untyped = [p for p in inspect.signature(thing).parameters.values() if p.annotation is p.empty]
        assert untyped == []
        assert inspect.signature(thing).return_annotation is not inspect.Signature.empty


def test_type_checkers_see_the_names_that_are_there():
    stub = ast.parse((ROOT / "onematrix" / "__init__.pyi").read_text())
    seen = {alias.asname: node.module for node in stub.body for alias in node.names}
    assert seen == {name: f"onematrix.{home}" for name, home in onematrix.HOMES.items()}
    assert (ROOT / "onematrix" / "py.typed").is_file()


def test_the_types_are_right():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_type_would_be_told(tmp_path):
    (tmp_path / "wrong.py").write_text("from onematrix import load, rank\nrank(load('gpt2').W, 'dog')\n")
    command = [sys.executable, "-m", "mypy", tmp_path / "wrong.py"]  # run here, so that one cache serves both
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert 'Argument 2 to "rank" has incompatible type "str"; expected "int"' in done.stdout


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
