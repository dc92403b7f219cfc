"""Whether the site is already what a build would make, so that a build with nothing to do does nothing.

`key(manifest)` hashes all that a site is made of: the executed chapters, the pages, the press and its theme, the
expected figures, what the live pieces' data come from, the versions. It is taken before the site is made, so that what
is edited meanwhile counts as changed. `note` keeps it beside the site, with what the build said at its end.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from press import execute, live

SOURCES = ("_config.yml", "_toc.yml", "requirements.txt", "book", "notebooks", "onematrix", "press", "tests/printed")


def files(root: Path) -> Iterator[Path]:
    """Every file that the site's sources hold, in a fixed order."""
    for source in SOURCES:
        place = root / source
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)


def key(manifest: Mapping) -> str | None:
    """Hash of all that the site is made of; None where a chapter has changed since it was executed."""
    digest = hashlib.sha256(live.key(manifest).encode())
    for chapter in execute.chapters():
        if execute.current(chapter, manifest) is None:
            return None
        digest.update((execute.home(manifest) / f"{chapter}.json").read_bytes())
    for path in files(execute.ROOT):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(execute.ROOT)} {content}\n".encode())
    return digest.hexdigest()


def place(html: Path) -> Path:
    return html.with_name(f"{html.name}.made-from.json")


def forget(html: Path) -> None:
    """Before the site is made: whatever happens now, it is not current until `note`."""
    place(html).unlink(missing_ok=True)


def note(html: Path, made_from: str | None, said: str) -> None:
    """After the site was made."""
    place(html).write_text(json.dumps({"key": made_from, "said": said}, indent=1), encoding="utf-8")


def said(html: Path, manifest: Mapping) -> str | None:
    """What the build said that made this site, if the site is what a build would make now."""
    if not (html / "index.html").is_file() or not place(html).is_file():
        return None
    if not live.current(live.kept(manifest), manifest):
        return None
    noted = json.loads(place(html).read_text(encoding="utf-8"))
    return noted["said"] if noted["key"] and noted["key"] == key(manifest) else None
