"""How a computed value leaves a cell: as hidden output that the site, the tests and the reader's comparison read.

`pin` uses the form MyST-NB's glue understands, so a sentence can say {glue:text}`name`. It needs
nothing but IPython. Outside IPython the calls only check and remember.
"""

import math
import re

PINNED: dict[str, float | int | str] = {}  # what this session has pinned, for `onematrix.your_run`

GLUE = "application/papermill.record/text/plain"
RECORD = "application/vnd.onematrix+json"


def emit(data: dict, metadata: dict) -> None:
    """Show output that no notebook draws, if there is an IPython to show it in."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return
    if get_ipython() is not None:
        display(data, metadata=metadata, raw=True)


def pin(name: str, value: float | int | str) -> None:
    """Keep a value under a name, for prose, for the ledger of facts and for `your_run`.

    Raises:
        ValueError: a name that is not lower_snake_case, or a value that is NaN or infinite.
        TypeError: anything but int, float, str or what converts exactly (numpy and torch scalars do).
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"a pin's name is lower_snake_case, got {name!r}")
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, (int, float, str)):
        raise TypeError(f"pin {name!r} takes an int, a float or a str, got {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"pin {name!r} is {value}: only finite values are pinned")
    PINNED[name] = value
    emit({GLUE: repr(value)}, {"scrapbook": {"name": name, "mime_prefix": "application/papermill.record/"}})


def claim(name: str, holds: bool, measured: str) -> None:
    """Record whether a statement of the documents holds on this model, and the measurement that says so.

    Args:
        name: the claim's id in `book/claims.yml`.
        holds: the verdict, computed.
        measured: one line for the ledger, in words and figures.
    """
    emit({RECORD: {"claim": name, "holds": bool(holds), "measured": measured}}, {})


def reading(convention: str, text: str) -> None:
    """Record what this cell would have printed under another convention.

    The comparison with a document accepts any reading that the document leaves open, and names it.
    """
    emit({RECORD: {"reading": convention, "text": text}}, {})
