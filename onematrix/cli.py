"""The book's questions, asked on the command line: `onematrix --help`."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

# torch and transformers take seconds to import: only a command that needs them does, so that --help is quick
if TYPE_CHECKING:
    from onematrix.models import LanguageModel

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")


class Form(StrEnum):
    table = "table"
    json = "json"


def known(incomplete: str) -> list[str]:
    """For completion: the book's own models."""
    from onematrix.weights import offered

    return [name for name in offered() if name.startswith(incomplete)]


def drawable(path: Path | None) -> Path | None:
    """The file to draw to, refused before a model is opened where nothing can be drawn."""
    if path and path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise typer.BadParameter(f"a picture is svg, png or pdf, not {path.suffix or path.name}")
    if path and not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent} to draw into")
    return path


def say_version(asked: bool) -> None:
    from importlib.metadata import version

    if asked:
        print(f"onematrix {version('onematrix')}")
        raise typer.Exit


NAME = "A known model (gpt2, smollm2-135m), a folder, or owner/name@revision on the Hub (main without @revision)."
Prompt = Annotated[str, typer.Argument(help="The text that the model reads.")]
Word = Annotated[str, typer.Argument(help="One token, with its leading space if it has one.")]
Name = Annotated[str, typer.Argument(help=NAME, autocompletion=known)]
Model = Annotated[str, typer.Option("--model", "-m", help=f"{NAME} auto: GPT-2 or else SmolLM2.", autocompletion=known)]
Format = Annotated[Form, typer.Option("--format", "-f", help="A table to read, or JSON.")]
Count = Annotated[int, typer.Option("--top", "-k", help="How many tokens to list.", min=1)]
Picture = Annotated[
    Path | None,
    typer.Option("--picture", "-p", help="Also draw it to this file (svg, png or pdf).", callback=drawable),
]
Version = Annotated[bool, typer.Option("--version", help="Say which this is.", callback=say_version, is_eager=True)]


@app.callback()
def about(version: Version = False) -> None:
    """Questions about the matrix that a language model reads tokens from and predicts tokens with.

    Example: [bold]onematrix lens "The dog" --model gpt2 --picture dog.svg[/bold]
    """


@app.command("next")
def next_(prompt: Prompt, model: Model = "auto", top: Count = 10, form: Format = Form.table) -> None:
    """The likeliest next tokens.

    Example: [bold]onematrix next "The sky is" --top 5[/bold]
    """
    lm = opened(model)
    from onematrix.rows import top as largest

    found = largest(lm.states(prompt).logits[-1].softmax(dim=0), top)
    rows = [{"place": n, **token(lm, i), "probability": p} for n, (i, p) in enumerate(found, start=1)]
    answer(form, {"model": described(lm), "prompt": prompt, "next": rows}, listing(rows, "probability"))


@app.command("neighbours")
def neighbours_(word: Word, model: Model = "auto", top: Count = 10, form: Format = Form.table) -> None:
    """The rows of the embedding nearest to a token's row, by cosine. Mind the space: " dog" and "dog" are two tokens.

    Example: [bold]onematrix neighbours " dog" --model gpt2[/bold]
    """
    lm = opened(model)
    from onematrix.rows import neighbours

    found = neighbours(lm.W, lm.id(word), top)
    rows = [{"place": n, **token(lm, i), "cosine": c} for n, (i, c) in enumerate(found, start=2)]
    answer(form, {"model": described(lm), "word": word, "neighbours": rows}, listing(rows, "cosine"))


@app.command("lens")
def lens_(
    prompt: Prompt, model: Model = "auto", top: Count = 3, form: Format = Form.table, picture: Picture = None
) -> None:
    """The logit lens: what the model would predict if it stopped after each block.

    Example: [bold]onematrix lens "The dog" --picture dog.svg[/bold]
    """
    lm = opened(model)
    from onematrix.logit_lens import layer, lens
    from onematrix.rows import top as largest

    found = [largest(p, top) for p in lens(lm, lm.states(prompt)).softmax(dim=1)]
    layers = [
        {"layer": layer(n).replace("  ", " "), "tokens": [token(lm, i) | {"probability": p} for i, p in row]}
        for n, row in enumerate(found)
    ]
    wide = max(width(lm.shown(i)) for row in found for i, _ in row)
    cells = [[f"{padded(lm.shown(i), wide)} {likely(p)}" for i, p in row] for row in found]
    column = max(width(cell) for row in cells for cell in row) + len(",  ")
    lines = [
        f"{layer(n):<10}  " + "".join(padded(f"{cell},", column) for cell in row[:-1]) + row[-1]
        for n, row in enumerate(cells)
    ]
    if picture:
        draw_lens(lm, prompt, found, picture)
    answer(form, {"model": described(lm), "prompt": prompt, "layers": layers}, lines)


@app.command("step")
def step_(
    prompt: Prompt,
    target: Annotated[str, typer.Argument(help="The token that should have come next.")],
    model: Model = "auto",
    top: Count = 10,
    form: Format = Form.table,
    picture: Picture = None,
) -> None:
    """One training step on the unembedding: which rows a target's loss pulls toward x, and which it pushes away.

    Example: [bold]onematrix step "The sky is" " blue"[/bold]
    """
    lm = opened(model)
    from onematrix.gradients import step
    from onematrix.rows import rank
    from onematrix.rows import top as largest

    t = lm.id(target)
    states = lm.states(prompt)
    made = step(lm, states.x, t)
    share = made.rows / -made.rows[t]  # of the pull
    pushed = largest(share, top)
    rows = [token(lm, i) | {"probability": made.p[i].item(), "share": s} for i, s in pushed]
    place = rank(states.logits[-1], t)
    wide = max(width(lm.shown(i)) for i in (t, *(i for i, _ in pushed)))
    lines = [
        f"{padded(lm.shown(t), wide)}  p = {made.p[t]:.8f}   rank {place}   loss {made.loss:.3f}",
        "Its row is pulled toward x. These are pushed away, by this share of the pull:",
        *(f"{padded(lm.shown(i), wide)}  p = {made.p[i]:.8f}   {100 * s:.2g}%" for i, s in pushed),
    ]
    if picture:
        draw_step(lm, t, pushed, picture)
    said = {"probability": made.p[t].item(), "rank": place, "loss": made.loss}
    answer(form, {"model": described(lm), "prompt": prompt, "target": token(lm, t) | said, "pushed": rows}, lines)


@app.command()
def tied(name: Name, form: Format = Form.table) -> None:
    """Whether a model reads and predicts with one matrix; where it has two, how alike they are.

    Example: [bold]onematrix tied smollm2-135m[/bold]
    """
    lm = opened(name)
    whole = sum(parameter.numel() for parameter in lm.network.parameters())
    said = described(lm) | {"tied": lm.tied, "V": lm.V, "d": lm.d, "blocks": len(lm.blocks), "parameters": whole}
    size = f"{lm.W.numel():,} of {whole:,} numbers ({lm.W.numel() / whole:.0%})"
    if lm.tied:
        answer(form, {"model": said}, [repr(lm), f"One matrix at both ends, {size}. Untied, it would be there twice."])
        return
    from onematrix.tables import likeness

    alike = likeness(lm.W, lm.U)
    answer(
        form,
        {"model": said, "likeness": vars(alike)},
        [repr(lm), f"Two matrices, each {size}.", *likeness_lines(alike)],
    )


@app.command()
def compare(a: Name, b: Name, form: Format = Form.table) -> None:
    """How alike the embeddings of two models are, over the tokens that both have.

    Example: [bold]onematrix compare gpt2 ./my-fine-tune[/bold]
    """
    one, other = opened(a), opened(b)
    from onematrix.tables import common_tokens, likeness

    ids = common_tokens(one, other)
    alike = likeness(one.W[ids[:, 0]], other.W[ids[:, 1]])
    answer(
        form,
        {"models": [described(one), described(other)], "likeness": vars(alike)},
        [repr(one), repr(other), f"{alike.tokens} tokens are in both.", *likeness_lines(alike)],
    )


@app.command()
def report(
    name: Name, out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html")
) -> None:
    """Run the book's chapters on a model and write one HTML page: its figures, and which claims hold.

    Needs the book's checkout, since the chapters are there. Example: [bold]onematrix report gpt2[/bold]
    """
    import subprocess

    checkout = Path(__file__).resolve().parent.parent
    if not (checkout / "notebooks").is_dir():
        raise typer.BadParameter("the chapters are not installed: run it in a checkout of the book")
    out, name = out.resolve(), str(Path(name).resolve()) if Path(name).is_dir() else name
    command = [sys.executable, "-m", "press", "report", name, "--out", str(out)]
    raise typer.Exit(subprocess.run(command, cwd=checkout).returncode)


# ------------------------------------------------------------------ asking and answering


def opened(name: str) -> "LanguageModel":
    """The model; what is said while it is opened goes to stderr, so that stdout holds the answer alone."""
    with contextlib.redirect_stdout(sys.stderr):
        from transformers.utils import logging

        from onematrix.models import load

        logging.set_verbosity_error()
        lm = load(name)
        if name == "auto":
            why = "" if lm.name == "gpt2" else ": GPT-2 is not here and the Hub does not answer"
            print(f"auto takes {lm.name}{why}")
        return lm


def described(lm: "LanguageModel") -> dict[str, Any]:
    return {"name": lm.name, "title": lm.title, "revision": lm.revision, "sha256": lm.sha256}


def token(lm: "LanguageModel", index: int) -> dict[str, Any]:
    return {"id": index, "token": lm.text(index)}


def listing(rows: list[dict[str, Any]], value: str) -> list[str]:
    """Lines of place, token and value, as the chapters print them."""
    from onematrix.tokens import shown

    wide = max(width(shown(row["token"])) for row in rows)
    write = likely if value == "probability" else "{:.3f}".format
    return [f"{row['place']:4d}   {padded(shown(row['token']), wide)} {write(row[value])}" for row in rows]


def likely(p: float) -> str:
    """A probability to three places; a smaller one, which a model with random weights gives, to two digits."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:#.2g}"


def likeness_lines(alike: Any) -> list[str]:
    lines = [f"Nearest rows that both name: {alike.neighbours:.1%} (by chance {alike.chance:.2%})"]
    if alike.cosine is not None:
        lines.append(f"Cosine of a token's two rows, median: {alike.cosine:.3f} (of two tokens' {alike.strangers:.3f})")
    return lines


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, wide: int) -> str:
    return text + " " * (wide - width(text))


def answer(form: Form, data: dict[str, Any], lines: Iterable[str]) -> None:
    """Print an answer: JSON in ASCII, or lines whose tokens and figures stand out on a terminal with colours."""
    if form is Form.json:
        print(json.dumps(data, indent=1))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        text = Text("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))
        text.highlight_regex(r'"[^"]*"(?=\s)', "cyan")
        text.highlight_regex(r"(?<=\s)\d[\d.,]*(e-\d+,?)?%?(?!\S)", "bold")
        console.print(text)


def draw_lens(lm: "LanguageModel", prompt: str, found: list[list[tuple[int, float]]], path: Path) -> None:
    from onematrix import figures
    from onematrix.logit_lens import layer
    from onematrix.tokens import shown

    columns = len(found[0])
    figure, ax = figures.new(1.6 + 1.7 * columns, 0.7 + 0.26 * len(found))
    labels = [[f"{lm.shown(i)}  {likely(p)}" for i, p in row] for row in found]
    figures.cells(ax, [[p for _, p in row] for row in found], labels)
    ax.set_xticklabels([f"{n + 1}." for n in range(columns)])
    ax.set_yticklabels([layer(n) for n in range(len(found))])
    ax.set_title(figures.safe(f"{lm.title}: after {shown(prompt)}, layer by layer"))
    figures.save(figure, path, f"The likeliest tokens after {shown(prompt)} at each layer of {lm.title}.")


def draw_step(lm: "LanguageModel", target: int, pushed: list[tuple[int, float]], path: Path) -> None:
    from onematrix import figures

    names = [figures.safe(lm.shown(i)) for i in (target, *(i for i, _ in pushed))]
    values = [1.0, *(-share for _, share in pushed)]
    figure, ax = figures.new(7, 0.9 + 0.3 * len(names))
    ax.barh(range(len(names)), values, color=[figures.UNEMBED, *[figures.MUTED] * len(pushed)])
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.axvline(0, color=figures.INK, linewidth=1)
    ax.set_xlabel(f"away from x  |  toward x   (1 = the pull on {names[0]})")
    figures.save(
        figure, path, f"One step of {lm.title}: {lm.shown(target)} is pulled toward x, {len(pushed)} tokens pushed."
    )


def main() -> None:
    """Run a command; what can go wrong is told in one line on stderr, and the exit code is 2 for a wrong question."""
    from onematrix.weights import ModelError

    try:
        sys.exit(app(standalone_mode=False))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who read us has gone: say no more
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ModelError, OSError) as error:
        code, message = 1, str(error)
    except ValueError as error:
        code, message = 2, str(error)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own: a wrong option, a missing argument
            raise
        code, message = getattr(error, "exit_code", 2), error.format_message()
        if "unexpected extra argument" in message:
            message += ": put a text of several words in quotes"
    print(f"onematrix: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
