"""Whatever bytes a token holds, it is shown on one line, in quotes, and opens nothing."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import real_tokenizer

from onematrix.tokens import as_html, shown

NASTY = [
    "\n",
    "\x1b[31m",
    "\u202e",
    "\x00",
    "\u2028",
    "<script>",
    "</code>",
    "&lt;",
    '"',
    "\\n",
    " ",
    "\ufeff",
    "\ud800",
]


class Read(HTMLParser):
    """Tags, attributes and text of a fragment."""

    def __init__(self, fragment: str):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(fragment)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def test_a_leading_space_is_kept_and_seen():
    assert shown(" dog") == '" dog"'
    assert shown("dog") != shown(" dog")
    assert as_html(" dog") == '<code class="token"><span class="space">·</span>dog</code>'
    assert as_html("dog") == '<code class="token">dog</code>'


@pytest.mark.parametrize("text", NASTY)
def test_nothing_moves_a_cursor_or_opens_a_tag(text):
    assert shown(text).isprintable()
    read = Read(as_html(text))
    assert [tag for tag, _ in read.tags] in (["code"], ["code", "span"])
    assert "".join(read.words).replace("·", " ", text.startswith(" ")) == shown(text)[1:-1]


@given(st.text())
def test_any_text_is_one_printable_line_in_quotes(text):
    line = shown(text)
    assert line.isprintable()
    assert line[0] == line[-1] == '"'
    assert "".join(c for c in text if c.isprintable()) == text or len(line) > len(text) + 2
    if text.isprintable():
        assert line[1:-1] == text


@given(st.text())
def test_any_text_as_html_is_one_code_element(text):
    read = Read(as_html(text))
    assert read.tags[0] == ("code", {"class": "token"})
    assert read.tags[1:] in ([], [("span", {"class": "space"})])
    words = "".join(read.words)
    assert (" " + words[1:] if len(read.tags) == 2 else words) == shown(text)[1:-1]


@pytest.fixture(scope="module")
def gpt2():
    return real_tokenizer()


def test_every_token_of_gpt2s_vocabulary_can_be_shown(gpt2):
    texts = [gpt2.decode([i], clean_up_tokenization_spaces=False) for i in range(50257)]
    for text in texts:
        assert shown(text).isprintable()
        assert as_html(text).count("<") == (4 if text.startswith(" ") else 2)


def test_the_tokenizer_of_the_rehearsal_gives_the_documents_ids(gpt2):
    for text, ids in {"The sky is": [464, 6766, 318], "I ate an": [40, 15063, 281], " blue": [4171]}.items():
        assert gpt2.encode(text) == ids
    assert len(gpt2) == 50257
