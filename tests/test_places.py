"""Models that the book does not pin: a folder of this machine, a repository of a Hub at a revision."""

import dataclasses
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import gpt2_network, into_hub_cache, llama_network, tokenizer

from onematrix import ModelError, load, models, places, weights

COMMIT = "f" * 40


pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def folder(machine):
    """An untied LLaMA as `save_pretrained` writes it, in several files."""
    into = machine / "my model"
    llama_network(tie_word_embeddings=False).save_pretrained(into, max_shard_size="8KB")
    tokenizer().save_pretrained(into)
    assert len(list(into.glob("*.safetensors"))) > 1
    return into


def test_a_folder_is_opened_by_its_path(folder, monkeypatch):
    model = load(str(folder))
    assert repr(model) == "my model: V = 61, d = 16, 3 blocks, untied"
    assert (model.name, model.revision, model.trained) == (str(folder), "local", True)
    original = llama_network(tie_word_embeddings=False)
    assert torch.equal(model.W, original.get_input_embeddings().weight)
    assert torch.equal(model.U, original.get_output_embeddings().weight)
    monkeypatch.chdir(folder.parent)
    assert load("./my model") is load("my model") is model


def test_a_folders_hash_tells_its_weights_apart(folder):
    _, before = places.locate(str(folder))
    file = min(folder.glob("*.safetensors"))
    save_file({name: value + 1 for name, value in load_file(file).items()}, file, metadata={"format": "pt"})
    _, after = places.locate(str(folder))
    assert before["sha256"] != after["sha256"]
    assert before["size"] == after["size"] == sum(f.stat().st_size for f in folder.glob("*.safetensors"))


def test_a_known_name_stays_known_where_a_folder_is_called_the_same(machine, folder, monkeypatch):
    folder.rename(machine / "gpt2")
    monkeypatch.chdir(machine)
    assert places.resolve("gpt2") == "gpt2"
    assert places.resolve("./gpt2") == str(machine / "gpt2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt-2", r"There is no model 'gpt-2' here. Did you mean gpt2"),
        ("./nowhere", r"There is no folder \./nowhere\."),
        ("/nowhere/at/all", r"There is no folder /nowhere/at/all\."),
        ("a/b/c", r"There is no model 'a/b/c' here"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(name, message):
    with pytest.raises(ModelError, match=message):
        load(name)


def drop_the_weights(folder):
    for file in folder.glob("*.safetensors"):
        file.rename(file.with_suffix(".bin"))


def ask_for_code(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")


def leave_out_the_head(folder):
    file = next(f for f in folder.glob("*.safetensors") if "lm_head.weight" in load_file(f))
    rest = {name: value for name, value in load_file(file).items() if name != "lm_head.weight"}
    save_file(rest, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "holds no model: its config.json cannot be read"),
        (lambda folder: (folder / "config.json").write_text("{"), "holds no model: its config.json cannot be read"),
        (drop_the_weights, "holds no weights as safetensors. Other formats are not read"),
        (lambda folder: max(folder.glob("*.safetensors")).unlink(), "my model could not be opened"),
        (lambda folder: max(folder.glob("*.safetensors")).write_bytes(b"x" * 99), "my model could not be opened"),
        (leave_out_the_head, "holds no values for lm_head.weight: they would be random"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "my model could not be opened"),
        (ask_for_code, "my model could not be opened"),
    ],
)
def test_a_folder_that_is_no_model_is_told_in_one_line(folder, damage, message):
    damage(folder)
    with pytest.raises(ModelError, match=message) as refused:
        load(str(folder))
    assert "\n" not in str(refused.value)
    assert not (folder / "ran").exists()
    assert models.OPEN == []


# ------------------------------------------------------------------ the Hub


@pytest.fixture
def hub(machine):
    """A Hub client's cache with a tied GPT-2 of somebody."""
    files = machine / "files"
    gpt2_network().save_pretrained(files)
    tokenizer().save_pretrained(files)
    source = dataclasses.replace(weights.SOURCES["gpt2"], origin="some.body/tiny-1", revision=COMMIT)
    return into_hub_cache(machine / "hub", source, files)


def test_a_hub_name_is_opened_at_its_revision(hub):
    model = load(f"some.body/tiny-1@{COMMIT}")
    assert (model.title, model.revision, model.tied) == ("tiny-1", COMMIT, True)
    assert model.sha256 == weights.sha256(hub / weights.WEIGHTS)
    assert load("some.body/tiny-1").name == "some.body/tiny-1@main"
    assert load("some.body/tiny-1").revision == COMMIT  # what main is, not what it is called


def test_a_hub_name_that_is_not_here_needs_a_network():
    with pytest.raises(ModelError, match=r"no/body at revision v2 is not in .*hub, and https://\S+ does not answer\."):
        load("no/body@v2")


def test_a_file_of_the_hubs_cache_that_was_damaged_is_told(hub):
    file = hub / weights.WEIGHTS
    file.resolve().write_bytes(b"\0" + file.read_bytes()[1:])
    with pytest.raises(ModelError, match=r"model.safetensors has SHA-256 .* expected .* Delete it and run again"):
        load("some.body/tiny-1")


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the Hub as a snapshot needs: what a revision holds, and its files."""

    def log_message(self, *args) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        files = self.server.files
        status, content = 404, b"{}"
        if self.path.startswith("/api/models/some.body/tiny-1/"):
            tree = [{"type": "file", "path": name, "size": len(body), "oid": "0" * 40} for name, body in files.items()]
            info = {"id": "some.body/tiny-1", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            status, content = 200, json.dumps(tree if "/tree/" in self.path else info).encode()
        elif (name := self.path.rpartition("/")[2]) in files and "/some.body/tiny-1/resolve/" in self.path:
            status, content = 200, files[name]
        self.server.asked.append(self.path)
        self.send_response(status)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{len(content)}"')
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


CODE = """
import sys
from onematrix import ModelError, load
try:
    print(load(sys.argv[1]), load(sys.argv[1]).revision)
except ModelError as error:
    print("ModelError", error)
"""


@pytest.mark.parametrize("name", ["some.body/tiny-1@v1", "no/body"])
def test_a_snapshot_is_downloaded_from_a_hub(machine, hub, name):
    files = {p.name: p.read_bytes() for p in hub.iterdir()} | {"pytorch_model.bin": b"pickled", "evil.py": b"code"}
    shutil.rmtree(machine / "hub")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.asked = files, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = os.environ | {
        "HF_HOME": str(machine / "home"),
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE, name], env=environment, capture_output=True, text=True, timeout=90
    )
    server.shutdown()
    server.server_close()
    assert done.returncode == 0, done.stderr
    if name == "no/body":
        assert done.stdout.startswith("ModelError no/body at revision main could not be fetched.")
        assert done.stdout.count("\n") == 1
    else:
        assert done.stdout.split("\n")[0] == f"tiny-1: V = 61, d = 16, 3 blocks, tied {COMMIT}"
        assert not any("pytorch_model.bin" in path or "evil.py" in path for path in server.asked)
