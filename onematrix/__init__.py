"""What a chapter of *One Matrix, Two Meanings* imports.

Names are loaded when they are first used, so that the press can read `onematrix.expected` without torch.
`__init__.pyi` lists the same names for type checkers.
"""

from importlib import import_module

HOMES = {
    "load": "models",
    "LanguageModel": "models",
    "States": "models",
    "ModelError": "weights",
    "shown": "tokens",
    "cosine": "rows",
    "neighbours": "rows",
    "rank": "rows",
    "top": "rows",
    "lens": "logit_lens",
    "layer": "logit_lens",
    "closed_form": "gradients",
    "by_autograd": "gradients",
    "step": "gradients",
    "likeness": "tables",
    "common_tokens": "tables",
    "pin": "pins",
    "claim": "pins",
    "reading": "pins",
    "document": "documents",
    "your_run": "documents",
}
__all__ = list(HOMES)


def __getattr__(name: str):
    if name not in HOMES:
        raise AttributeError(f"module 'onematrix' has no attribute {name!r}")
    return getattr(import_module(f"onematrix.{HOMES[name]}"), name)
