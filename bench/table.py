"""What is compared with what, and the verdicts, which come from the medians of `bench/results.json`.

A section measures *series*: a name and several numbers, in seconds, bytes, or plain counts. A comparison sets one
series beside another, or beside a bound.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
REPORT = HERE / "results.md"
README = HERE.parent / "README.md"
MARKS = ("<!-- bench: written by `make bench` -->", "<!-- bench: end -->")

Series = dict[str, list[float]]  # name -> what was measured, in order


@dataclass(frozen=True)
class Comparison:
    """One line of the table.

    Attributes:
        section: which part of the benchmark measures it.
        ours: the series of the book.
        peer: the series it is divided by; None where the goal is a bound.
        goal: the median, or the ratio of the medians, should be at most this; None: told without a goal.
        unit: of a series: "s", "MB" (series in bytes), or "" for a count, a difference or an exponent.
    """

    section: str
    ours: str
    peer: str | None = None
    goal: float | None = None
    unit: str = "s"

    def value(self, series: Series) -> float:
        """What the goal speaks of."""
        ours = median(series[self.ours])
        return ours / median(series[self.peer]) if self.peer else ours

    def met(self, series: Series) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return None if self.goal is None else self.value(series) <= self.goal


WEIGHTS_BYTES = 538_090_408  # SmolLM2's `model.safetensors` in fp32
UNIT_ROUNDOFF = 2.0**-24  # of fp32
# How many terms each result adds up on SmolLM2. Rounding costs such a sum about the root of that many units, in
# whatever order it is taken (Higham and Mary 2019, "A new approach to probabilistic rounding error analysis").
TERMS = {"neighbours": 576, "lens": 576, "gradient of x": 49152, "gradient of W": 576}

BUILD, LOAD, COMPUTE, SCALE, PAGE = "build", "load", "compute", "scale", "page"
COMPARISONS = (
    Comparison(BUILD, "clean", "jupyter-book, force", 0.5),
    Comparison(BUILD, "one chapter edited", "jupyter-book's cache, one chapter edited", 0.5),
    Comparison(BUILD, "one chapter edited, watched", "jupyter-book's cache, one chapter edited"),
    Comparison(BUILD, "nothing changed", None, 1.0),
    Comparison(BUILD, "prose of a chapter edited", None, 10.0),
    Comparison(BUILD, "prose of another page edited", None, 10.0),
    Comparison(BUILD, "prose of a chapter edited, watched"),
    Comparison(BUILD, "nothing changed", "jupyter-book's cache, nothing changed"),
    Comparison(BUILD, "chapters only, clean", "nbmake"),
    Comparison(BUILD, "chapters that `make test` executes again", None, 0, unit=""),
    Comparison(BUILD, "a chapter's peak memory beyond the weights", None, 600e6, unit="MB"),
    Comparison(LOAD, "load", "from_pretrained", 1.2),
    Comparison(LOAD, "load", "from_pretrained, and the tokenizer"),
    Comparison(LOAD, "peak memory beyond the weights, one prompt", None, 600e6, unit="MB"),
    Comparison(LOAD, "memory of two at once, shared pages halved", "weights twice", unit="MB"),
    Comparison(LOAD, "conversion", None, 10.0),
    Comparison(LOAD, "conversion", "conversion through transformers"),
    Comparison(LOAD, "values that differ from transformers' conversion", None, 0, unit=""),
    Comparison(COMPUTE, "logits", "W @ x", 1.3),
    Comparison(COMPUTE, "neighbours", "W @ x", 1.3),
    Comparison(COMPUTE, "neighbours", "scikit-learn"),
    Comparison(COMPUTE, "neighbours", "gensim"),
    Comparison(COMPUTE, "lens", "lens, block by block", 0.5),
    Comparison(COMPUTE, "lens, from the prompt", "TransformerLens, from the prompt", 1.0),
    Comparison(COMPUTE, "step", "step by autograd", 1 / 20),
    Comparison(COMPUTE, "step", "step by autograd, W not copied"),
    Comparison(COMPUTE, "step", "W @ x"),
    Comparison(COMPUTE, "rank", "rank by sorting"),
    Comparison(COMPUTE, "extra memory of a step", None, 1e6, unit="MB"),
    Comparison(COMPUTE, "extra memory of a step", "extra memory of a step by autograd", unit="MB"),
    *(
        Comparison(COMPUTE, f"largest difference: {what}", None, terms**0.5 * UNIT_ROUNDOFF, unit="")
        for what, terms in TERMS.items()
    ),
    *(
        Comparison(COMPUTE, f"largest difference: {what}", f"largest difference: {what}, plain", unit="")
        for what in TERMS
    ),
    Comparison(COMPUTE, "largest difference: TransformerLens's lens", unit=""),
    *(
        Comparison(SCALE, f"exponent of {what} in {axis}", None, 1.1, unit="")
        for axis, measured in {
            "V": ("neighbours", "step", "lens", "memory of a step", "memory of a lens"),
            "d": ("neighbours", "step", "lens"),
            "blocks": ("lens", "memory of a lens"),
            "positions": ("states", "memory of states"),
            "chapters": ("execution",),
        }.items()
        for what in measured
    ),
    *(Comparison(SCALE, f"exponent of W @ x in {axis}", unit="") for axis in ("V", "d")),
    Comparison(PAGE, "first contentful paint", "jupyter-book's page, first contentful paint"),
    Comparison(PAGE, "interactive", "jupyter-book's page, interactive"),
    Comparison(PAGE, "bytes of the page", "jupyter-book's page, bytes of the page", unit="MB"),
)


# ------------------------------------------------------------------ the results file


def read(path: Path = RESULTS) -> dict:
    """Section -> {"where": machine, versions and date, "series": ..., ...}; empty before the first run."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(results: dict, path: Path = RESULTS) -> None:
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# ------------------------------------------------------------------ the table


def number(value: float, unit: str) -> str:
    if unit == "MB":
        return f"{value / 1e6:,.2f} MB" if value < 10e6 else f"{value / 1e6:,.0f} MB"
    if unit == "s":
        return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s" if value >= 0.1 else f"{value * 1e3:.2f} ms"
    return f"{value:.3g}"


def spread(values: list[float], unit: str) -> str:
    """The median, and how far apart smallest and largest are."""
    if len(values) == 1 or min(values) == max(values):
        return number(median(values), unit)
    return f"{number(median(values), unit)} ({number(min(values), unit)} to {number(max(values), unit)})"


def row(comparison: Comparison, series: Series) -> list[str]:
    """What, ours, the peer, ratio, goal, verdict."""
    c, value, met = comparison, comparison.value(series), comparison.met(series)
    goal = "" if c.goal is None else f"at most {f'{c.goal:.3g}' if c.peer else number(c.goal, c.unit)}"
    beside = f"{c.peer}: {spread(series[c.peer], c.unit)}" if c.peer else ""
    verdict = {True: "met", False: "**missed**", None: ""}[met]
    return [c.ours, spread(series[c.ours], c.unit), beside, f"{value:.3g}" if c.peer else "", goal, verdict]


def rows(results: dict, section: str) -> list[list[str]]:
    """The rows of a section, of what has been measured."""
    series = results.get(section, {}).get("series", {})
    there = [c for c in COMPARISONS if c.section == section and c.ours in series and (not c.peer or c.peer in series)]
    return [row(c, series) for c in there]


HEAD = ["", "the book", "beside", "ratio", "goal", ""]


def markdown(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def where(place: dict) -> str:
    """One sentence: when, on what, which revision, how busy."""
    versions = ", ".join(f"{name} {version}" for name, version in place["versions"].items())
    return (
        f"{place['date']}, {place['machine']}, {place['cores']} cores, load before {place['load']:.1f}, "
        f"revision {place['revision']}; {versions}."
    )


def report(results: dict) -> str:
    """The whole of `bench/results.md`."""
    parts = [
        "# What `make bench` measured\n",
        "Medians, with the smallest and the largest in parentheses; what stands side by side was measured in turn. "
        "A ratio is the book's median over the one beside it.\n",
    ]
    for section, results_of in results.items():
        parts += [f"## {section.capitalize()}\n", where(results_of["where"]) + "\n"]
        if body := rows(results, section):
            parts.append(markdown(HEAD, body) + "\n")
        for note in results_of.get("notes", []):
            parts.append(note + "\n")
        for title, table in results_of.get("tables", {}).items():
            parts += [f"**{title}**\n", markdown(table["head"], table["body"]) + "\n"]
    return "\n".join(parts)


def goals(results: dict) -> str:
    """README's table: the lines that have a goal, folded under how many are met."""
    body = [line for section in results for line in rows(results, section) if line[4]]
    met = sum(line[5] == "met" for line in body)
    return (
        f"All figures, spreads and machines: `bench/results.md`.\n\n<details><summary>{met} of {len(body)} goals met"
        f"</summary>\n\n{markdown(HEAD, body)}\n\n</details>"
    )


def between_marks(text: str, filling: str) -> str:
    """The text with what stands between the two marks replaced."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{filling}\n{MARKS[1]}{after}" if rest else text


def publish(results: dict) -> None:
    """Write the results, the report and README's block."""
    write(results)
    REPORT.write_text(report(results), encoding="utf-8")
    README.write_text(between_marks(README.read_text(encoding="utf-8"), goals(results)), encoding="utf-8")
