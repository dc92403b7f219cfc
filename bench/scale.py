"""How seconds and bytes grow with V, d, blocks, positions and chapters: on random tables and copied chapters.

`python -m bench.scale REPEAT` measures all but the chapters and prints the points as JSON.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from types import SimpleNamespace

from bench import common

AXES = {
    "V": (16_000, 32_000, 64_000, 128_000, 256_000),  # at d = 4096, bfloat16: 2.1 GB at the end
    "d": (256, 512, 1024, 2048, 4096),  # at V = 128000, bfloat16
    "blocks": (8, 16, 32, 64, 128),  # at V = 49152, d = 576, fp32
    "positions": (32, 64, 128, 256, 512),  # of a random LLaMA of 8 blocks, V = 49152, d = 576, fp32
    "chapters": (2, 4, 8, 16),  # copies of one
}
COPIED = "01_two_matrices"
NOTE = """\
The exponent is the slope of the straight line through the points on logarithmic axes: 1 is linear, less is better than
linear (a fixed cost that larger sizes share). `W @ x` is what reading the table costs: where that grows faster than
linear, a part of the smaller tables lay in the processor's cache. Memory is what torch's allocator holds beside what
was there before, by torch.profiler."""

Point = tuple[int, float]


def measure(repeat: int | None) -> dict:
    command = [common.python(), "-m", "bench.scale", str(repeat or 5)]
    said = common.run(command, cwd=common.tree(), env=common.quiet())
    points: dict[str, list[Point]] = json.loads(said.splitlines()[-1])
    seconds = chapters()
    points["execution in chapters"] = seconds
    draw(points)
    body = [[name, *(text(name, value) for _, value in line)] for name, line in points.items()]
    tables = {
        f"Growth with {axis}": {
            "head": [axis, *map(str, sizes)],
            "body": [row for row in body if row[0].endswith(f" in {axis}")],
        }
        for axis, sizes in AXES.items()
    }
    exponents = {f"exponent of {name}": [slope(line)] for name, line in points.items()}
    return {"series": exponents, "notes": [NOTE, "![Seconds against size](scale.svg)"], "tables": tables}


def text(name: str, value: float) -> str:
    return f"{value / 1e6:.3g} MB" if name.startswith("memory") else f"{value * 1e3:.3g} ms"


def slope(line: list[Point]) -> float:
    """The exponent with which this grows: the slope of the line through the points on logarithmic axes."""
    import numpy as np

    sizes, values = np.log(np.array(line)).T
    return float(np.polyfit(sizes, values, 1)[0])


def draw(points: dict[str, list[Point]]) -> None:
    """Each axis's seconds over those at its smallest size, and the linear line beside."""
    from onematrix import figures

    colours = {"neighbours": figures.LOOKUP, "step": figures.UNEMBED, "lens": figures.INK}
    figure, places = figures.new(9.6, 3.4, ncols=len(AXES), sharey=True)
    for place, axis in zip(places, AXES, strict=True):
        first, last = AXES[axis][0], AXES[axis][-1]
        place.plot([first, last], [1, last / first], color=figures.MUTED, linestyle=":", label="linear")
        for name, line in points.items():
            what, _, on = name.rpartition(" in ")
            if on == axis and not what.startswith("memory"):
                values = [value / line[0][1] for _, value in line]
                colour = colours.get(what, figures.MUTED)
                place.plot([size for size, _ in line], values, marker="o", markersize=4, color=colour, label=what)
        place.set(xscale="log", yscale="log", title=axis)
        place.minorticks_off()
        place.set_xticks([first, last], [f"{first:,}", f"{last:,}"])
        place.set_yticks(ticks := [1, 2, 4, 8, 16], list(map(str, ticks)))
    places[0].set_ylabel("seconds, smallest size = 1")
    named = {label: line for place in places for line, label in zip(*place.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named), frameon=False)
    figures.save(figure, common.ROOT / "bench" / "scale.svg", "Seconds against size on logarithmic axes")


def chapters() -> list[Point]:
    """Seconds to execute 2, 4, 8, 16 copies of one chapter with nothing kept."""
    place = common.WORK / "scale"
    common.lay_out(place)
    content = (place / "notebooks" / f"{COPIED}.ipynb").read_bytes()
    for path in (place / "notebooks").glob("[0-9][0-9]_*.ipynb"):
        path.unlink()
    line = []
    for count in AXES["chapters"]:
        for number in range(1, count + 1):
            (place / "notebooks" / f"{number:02d}_copy.ipynb").write_bytes(content)
        shutil.rmtree(place / "_build", ignore_errors=True)
        start = time.perf_counter()
        common.run([common.python(), "-c", EXECUTE], cwd=place, env=common.quiet() | {"PYTHONPATH": str(place)})
        line.append((count, time.perf_counter() - start))
    return line


EXECUTE = f"from press import execute; execute.execute_all(execute.prepare({common.MODEL!r}))"


# ------------------------------------------------------------------ in the child


def points(repeat: int) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for axis, size, ways in (*tables("V"), *tables("d"), *blocks(), *positions()):
        for name, way in ways.items():
            way()
            seconds = [common.seconds(way) for _ in range(repeat)]
            found.setdefault(f"{name} in {axis}", []).append((size, median(seconds)))
            if name in ("step", "lens", "states"):
                memory = f"memory of a {name} in {axis}" if name != "states" else f"memory of states in {axis}"
                found.setdefault(memory, []).append((size, common.height(way)))
        print(axis, size, flush=True)
    return found


def tables(axis: str) -> Iterator[tuple[str, int, dict[str, Callable]]]:
    """Neighbours, a step, a lens of 32 blocks and the floor, `W @ x`, on random tables in bfloat16."""
    import torch

    from onematrix import closed_form, neighbours

    for size in AXES[axis]:
        V, d = (size, 4096) if axis == "V" else (128_000, size)
        W = torch.empty(V, d, dtype=torch.bfloat16).normal_()
        x, stream = W[0] / d**0.5, W[:32] / d**0.5
        ways = {
            "W @ x": lambda W=W, x=x: W @ x,
            "neighbours": lambda W=W: neighbours(W, 5, 10),
            "step": lambda W=W, x=x: closed_form(W, x, 7),
            "lens": lambda W=W, stream=stream: stream @ W.T,
        }
        yield axis, size, ways


def blocks() -> Iterator[tuple[str, int, dict[str, Callable]]]:
    """The lens of a random stream of so many blocks."""
    import torch

    from onematrix import lens
    from onematrix.models import States

    model = llama(1)
    for size in AXES["blocks"]:
        stream = torch.randn(size + 1, 4, 576)
        states = States(torch.arange(4), stream, stream, model.U[:4])
        yield "blocks", size, {"lens": lambda s=states: lens(model, s)}


def positions() -> Iterator[tuple[str, int, dict[str, Callable]]]:
    """The forward pass that keeps the stream, on prompts of so many tokens."""
    model = llama(8)
    for size in AXES["positions"]:
        yield "positions", size, {"states": lambda n=size: model.states(list(range(n)))}


def llama(depth: int):
    """A random model of SmolLM2's widths and so many blocks."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from onematrix.models import LanguageModel

    shape = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": depth}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}
    said = {"name": "random", "title": "random", "revision": "", "sha256": "", "trained": False}
    no_words = SimpleNamespace(model_max_length=AXES["positions"][-1])  # no question here is asked in words
    return LanguageModel(LlamaForCausalLM(LlamaConfig(**shape, **heads)), no_words, said)


if __name__ == "__main__":
    print(json.dumps(points(int(sys.argv[1]))))
