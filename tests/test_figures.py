"""A figure is one inline SVG: readable by a screen reader, in the page's colours, apart from every other figure."""

import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
import torch

from onematrix import figures

ALT = 'A line from 1 to 2, labelled "<b>" & co.'


def drawn():
    """A figure that uses every colour of the book and a clip path, which SVG names by id."""
    fig, ax = figures.new(4, 3)
    for k, colour in enumerate(figures.VARIABLES):
        ax.plot([1, 2], [k, k + 1], color=colour, label=f"line {k}")
    ax.set_xlabel("step")
    return fig


def parsed(markup: str) -> ET.Element:
    return ET.fromstring(markup)


@pytest.fixture
def emitted(monkeypatch):
    sent = []
    monkeypatch.setattr(figures, "emit", lambda data, metadata: sent.append(data))
    return sent


def test_the_svg_says_what_it_shows_and_scales():
    root = parsed(figures.svg(drawn(), "lines", ALT))
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == ALT  # escaped in the markup, whole when read
    assert "viewBox" in root.attrib
    assert "width" not in root.attrib
    assert "height" not in root.attrib
    assert root.tag.endswith("svg")


def test_every_colour_follows_the_readers_switch():
    text = figures.svg(drawn(), "lines", ALT)
    for colour, variable in figures.VARIABLES.items():
        assert f"var({variable}, {colour})" in text
        assert not re.search(rf"(?<!, ){colour}", text)  # never the bare colour
    other = set(re.findall(r"#[0-9a-f]{6}\b", text)) - set(figures.VARIABLES)
    assert other <= {"#000000"}, f"colours that no switch reaches: {other}"


def test_ids_are_the_figures_own_and_every_reference_finds_one():
    ids = []
    for name in ("one", "two"):
        text = figures.svg(drawn(), name, ALT)
        mine = set(re.findall(r'\bid="([^"]+)"', text))
        wanted = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
        assert wanted
        assert wanted <= mine
        ids.append(mine)
    assert not ids[0] & ids[1]


def test_the_same_figure_gives_the_same_bytes_without_a_date():
    one, two = (figures.svg(drawn(), "lines", ALT) for _ in range(2))
    assert one == two
    assert "<metadata>" not in one
    assert "<dc:" not in one


def test_drawing_leaves_matplotlibs_settings_alone():
    before = dict(mpl.rcParams)
    figures.svg(drawn(), "lines", ALT)
    assert dict(mpl.rcParams) == before


def test_text_stays_text_and_a_dollar_sign_is_only_a_sign():
    fig, ax = figures.new()
    ax.set_title(figures.safe("$W$ costs $5"))
    assert "$W$ costs $5" in "".join(parsed(figures.svg(fig, "price", ALT)).itertext())


def test_cells_are_laid_out_first_row_on_top():
    _, ax = figures.new()
    figures.cells(ax, [[0, 0.5, 1], [1, 0, 0]], [["a", "b", "$c"], ["d", "e", "f"]])
    at = {text.get_text(): text.get_position() for text in ax.texts}
    assert at["a"] == (0.5, 0.5)
    assert at["f"] == (2.5, 1.5)
    assert r"\$c" in at
    assert ax.get_ylim() == (2, 0)
    alphas = [patch.get_alpha() for patch in ax.patches]
    assert alphas == pytest.approx([0, 0.3, 0.6, 0.6, 0, 0])


def test_the_table_escapes_tokens_and_has_headers():
    markup = figures.table({"token": ['"<script>"', '" a&b"'], "p": [0.123456, 1e-9], "rank": [1, 50257]})
    root = parsed(markup)
    assert [th.text for th in root.iter("th")] == ["token", "p", "rank"]
    assert all(th.attrib["scope"] == "col" for th in root.iter("th"))
    assert [td.text for td in root.iter("td")] == ['"<script>"', "0.1235", "1", '" a&b"', "1e-09", "50257"]


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        figures.table({"a": [1, 2], "b": [1]})


def test_show_gives_the_figure_its_words_and_its_data_as_plain_values(emitted):
    data = {"token": ['" a"'], "p": torch.tensor([0.5]), "rank": np.array([3])}
    figures.show(drawn(), "lines", caption="See <this>.", alt=ALT, data=data)
    page, record = emitted
    root = parsed(page["text/html"])
    assert root.attrib["id"] == "figure-lines"
    assert root.find("figcaption").text == "See <this>."
    assert page["text/plain"] == ALT
    [kept] = record.values()
    assert kept["figure"] == "lines"
    assert kept["columns"] == ["token", "p", "rank"]
    assert kept["data"] == {"token": ['" a"'], "p": [0.5], "rank": [3]}
    assert [type(kept["data"][column][0]) for column in kept["columns"]] == [str, float, int]


@pytest.mark.parametrize("frame", [True, False])
def test_a_legend_and_plain_text_added_later_are_drawn_in_the_styles_colours(frame):
    """Black would not be seen on dark paper, nor a white box be read in it."""
    figure, ax = figures.new()
    ax.plot([0, 1], [0, 1], label="a line")
    ax.legend(frameon=frame)
    ax.text(0.5, 0.5, "plain")
    ax.text(0.5, 0.2, "coloured", color=figures.LOOKUP)
    drawn = figures.svg(figure, "legend", "A line.")
    for text in ("a line", "plain"):
        (style,) = re.findall(rf'<text style="([^"]*)"[^>]*>{text}</text>', drawn)
        assert f"fill: var(--om-ink, {figures.INK})" in style
    assert f"fill: var(--om-lookup, {figures.LOOKUP})" in re.search(r'<text style="([^"]*)"[^>]*>coloured', drawn)[1]
    assert "#ffffff" not in drawn
    assert "#cccccc" not in drawn
