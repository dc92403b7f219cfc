"""Tokens as a reader can see them: quoted, spaces kept, nothing that moves a cursor or opens a tag."""

import html


def shown(text: str) -> str:
    """A token in double quotes on one line; control and unprintable characters as escapes.

    >>> shown(" dog")
    '" dog"'
    """
    inner = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return f'"{inner}"'


def as_html(text: str) -> str:
    """A token for a page: escaped, inside `<code class="token">`, a leading space as a visible dot."""
    inner = shown(text)[1:-1]
    body = html.escape(inner)
    if inner.startswith(" "):
        body = '<span class="space">·</span>' + html.escape(inner[1:])
    return f'<code class="token">{body}</code>'
