"""Where a model can be: on the book's own list, in a folder of this machine, or on the Hub at a revision.

The book's own models are pinned by hash and made whole in the cache (`onematrix.weights`). Any other is read where it
lies, from safetensors only and without running code of its own, and says in its manifest exactly what was read.
"""

import hashlib
import json
import re
from pathlib import Path

from onematrix import weights
from onematrix.weights import SOURCES, ModelError, Source

HUB_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
FILES = ("*.safetensors", "*.safetensors.index.json", "config.json", "tokenizer*", "vocab*", "merges.txt", "*_map.json")
OTHERS = ("*/*", "consolidated*")  # other formats of the same weights


def resolve(name: str) -> str:
    """The name under which a model is kept: a known one, a folder's absolute path, or `owner/name@revision`.

    Raises:
        ModelError: nothing of that name; a known name that is near is offered.
    """
    if name == "auto" or name in SOURCES:
        return weights.resolve(name)
    if (folder := Path(name).expanduser()).is_dir():
        return str(folder.resolve())
    if name.startswith((".", "/", "~")):
        raise ModelError(f"There is no folder {name}.")
    if asked := HUB_NAME.fullmatch(name):
        return f"{asked['repository']}@{asked['revision'] or 'main'}"
    return weights.resolve(name)


def locate(name: str) -> tuple[Path, dict]:
    """A model's directory, and the manifest that says what is in it.

    Args:
        name: from `resolve`.

    Raises:
        ModelError: it cannot be had, or is not a causal model in safetensors.
    """
    if name in SOURCES:
        directory = weights.folder(name)
        return directory, weights.manifest(directory)
    if (asked := HUB_NAME.fullmatch(name)) and not Path(name).is_absolute():
        repository, revision = asked["repository"], asked["revision"]
        directory = snapshot(repository, revision)
        described = {"title": repository.partition("/")[2], "origin": repository, "revision": directory.name}
    else:
        directory = Path(name)
        described = {"title": directory.name, "origin": "a folder", "revision": "local"}
    return directory, {"name": name, **described, "trained": True, **identity(directory)}


def snapshot(repository: str, revision: str) -> Path:
    """The Hub client's folder of a repository at a revision, downloaded where the Hub answers."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    wanted = Source(repository, repository, repository, revision, None, None, make=lambda *_: None)
    answers = weights.ask_hub(wanted) is not None
    try:
        return Path(
            snapshot_download(
                repository,
                revision=revision,
                allow_patterns=list(FILES),
                ignore_patterns=list(OTHERS),
                local_files_only=not answers,
            )
        )
    except LocalEntryNotFoundError as nowhere:
        raise ModelError(
            f"{repository} at revision {revision} is not in {constants.HF_HUB_CACHE}, and {constants.ENDPOINT} does "
            "not answer. Connect to a network, or name a folder that holds the model."
        ) from nowhere
    except Exception as failure:  # the client lets through whatever its transport raises
        told = " ".join(str(failure).split())
        raise ModelError(f"{repository} at revision {revision} could not be fetched. {told}") from failure


def identity(directory: Path) -> dict:
    """Size in bytes and SHA-256 of a folder's weights; of several files the hash of their names and hashes.

    Raises:
        ModelError: no configuration, no safetensors, or a file of the Hub client's that is not what its name says.
    """
    try:
        json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise ModelError(f"{directory} holds no model: its config.json cannot be read ({failure}).") from failure
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{directory} holds no weights as safetensors. Other formats are not read: they can run code.")
    hashes = {file: weights.sha256(file) for file in files}
    for file, found in hashes.items():
        blob = file.resolve().name  # the Hub client names a large file after its SHA-256
        if re.fullmatch("[0-9a-f]{64}", blob) and blob != found:
            raise ModelError(f"{file} has SHA-256 {found}, expected {blob}. Delete it and run again.")
    listed = "".join(f"{file.name} {found}\n" for file, found in hashes.items())
    whole = next(iter(hashes.values())) if len(files) == 1 else hashlib.sha256(listed.encode()).hexdigest()
    return {"size": sum(file.stat().st_size for file in files), "sha256": whole}
