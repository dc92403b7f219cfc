"""The live pieces' data: the same values as `onematrix` gives, in small files, written whole or not at all."""

import gzip
import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import needed
from small_models import tiny

from onematrix import closed_form, cosine, lens, live, load, neighbours, rank, top, weights
from press import execute
from press import live as press_live

ROOT = Path(__file__).resolve().parent.parent
ONE_LOOK_UP = 50_000  # bytes at most
ALL = {"slot": 5_000_000, "": 11_000_000}  # of the explorer, and of everything


def read(path: Path):
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.fixture(scope="module")
def model():
    return load("smollm2-135m")


@pytest.fixture(scope="module")
def data() -> Path:
    """What `make book` kept for SmolLM2."""
    kept = execute.BUILD / "live" / "smollm2-135m"
    manifest = weights.cache() / "smollm2-135m"
    if not manifest.is_dir() or not press_live.current(kept, weights.manifest(manifest)):
        needed("the live pieces' data are not there or not current: `make book MODEL=smollm2-135m` computes them")
    return kept


@pytest.fixture(scope="module")
def row_of(model) -> dict[str, int]:
    """A token's name in the files -> its row."""
    return {name: i for i, name in enumerate(live.names(model))}


@pytest.fixture(scope="module")
def vocabulary(data, row_of) -> dict[int, tuple[dict, int]]:
    """Row -> the file that holds it, and its place there."""
    files = [read(data / f"slot-{k}.json.gz") for k in range(len(read(data / "slot.json.gz")["starts"]))]
    return {row_of[name]: (file, n) for file in files for n, name in enumerate(file["tokens"][: file["own"]])}


def test_every_token_is_there_once_under_a_name_of_its_own(vocabulary, model):
    assert sorted(vocabulary) == list(range(model.V))
    assert len(set(live.names(model))) == model.V


def test_files_start_where_the_index_says(data):
    starts = read(data / "slot.json.gz")["starts"]
    assert starts == sorted(starts, key=lambda s: s.encode("utf-16-be"))
    for k in (0, len(starts) // 2, len(starts) - 1):
        assert read(data / f"slot-{k}.json.gz")["tokens"][0].lstrip(" ").lower() == starts[k]


def own_rows(data: Path, k: int, row_of: dict[str, int]) -> list[int]:
    """The rows of a shard, in its order."""
    file = read(data / f"slot-{k}.json.gz")
    return [row_of[name] for name in file["tokens"][: file["own"]]]


def close(stored: list[int], values: list[float]) -> bool:
    """Thousandths, rounded: half of one, and what single precision leaves."""
    return all(abs(s / 1000 - v) <= 0.00051 for s, v in zip(stored, values, strict=True))


def same_list(rows: list[int], scores: torch.Tensor) -> bool:
    """Whether rows stand in the order of their scores, the best first; the same score may change places."""
    best = scores.topk(len(rows))
    return len(set(rows)) == len(rows) and torch.allclose(scores[rows], best.values, rtol=1e-4, atol=1e-5)


def test_neighbours_of_random_tokens_are_those_of_onematrix(vocabulary, row_of, model):
    for row in random.Random(0).sample(range(model.V), 250):
        file, place = vocabulary[row]
        near, cosines = file["near"][place]
        assert close(cosines, [value for _, value in neighbours(model.W, row, live.K)])
        scores = cosine(model.W, model.W[row])
        scores[row] = -torch.inf
        assert same_list([row_of[file["tokens"][n]] for n in near], scores), model.shown(row)


def test_predictions_of_random_words_are_those_of_onematrix(vocabulary, row_of, model):
    words = sorted(row for row, (file, place) in vocabulary.items() if file["next"][place])
    assert len(words) == live.WORDS
    assert model.id(" dog") in words
    for row in [model.id(" dog"), *random.Random(0).sample(words, 20)]:
        file, place = vocabulary[row]
        to_row = cosine(model.W, model.W[row])
        near_rows = [row_of[file["tokens"][n]] for n in file["near"][place][0]]
        for frame, (own, of_near, best, p, in_near) in zip(live.FRAMES, file["next"][place], strict=True):
            logits = model.states([*model.ids(frame), row]).logits[-1]
            best_rows = [row_of[file["tokens"][n]] for n in best]
            assert close(p, [value for _, value in top(logits.softmax(dim=0), live.K)])
            assert same_list(best_rows, logits)
            # Scores that differ in the last bit change places: far down, a rank may be off by a few.
            for stored, i in zip([own, *of_near], [row, *near_rows], strict=True):
                assert abs(stored - rank(logits, i)) <= 1 + rank(logits, i) / 1000
            for stored, i in zip(in_near, best_rows, strict=True):
                assert abs(stored - rank(to_row, i)) <= 1 + rank(to_row, i) / 1000


@pytest.mark.parametrize("n", range(len(live.LENS_PROMPTS)))
def test_cells_of_the_lens(data, row_of, model, n):
    file = read(data / f"lens-{n}.json.gz")
    states = model.states(live.LENS_PROMPTS[n])
    rows = [row_of[name] for name in file["tokens"]]
    assert [rows[i] for i in file["positions"]] == states.ids.tolist()
    width, layers = len(states.ids), len(states.stream)
    ranks = read(data / f"lens-{n}-ranks-0.json.gz")
    assert file["own"] == ranks[file["positions"][-1]]
    for half, norm in enumerate((True, False)):
        for position in range(width):
            logits = lens(model, states, position, norm=norm)
            for layer in random.Random(n).sample(range(layers), 4):
                cell = layer * width + position
                best = logits[layer].softmax(dim=0).topk(live.K)
                assert close(file["p"][half][cell], best.values.tolist())
                assert rows[file["top"][half][cell][0]] == best.indices[0]
                followed = file["positions"][position]
                there = ranks[followed][half * layers * width + cell]
                assert abs(there - rank(logits[layer], rows[followed])) <= 1 + there / 1000


@pytest.mark.parametrize("n", range(len(live.LENS_PROMPTS)))
def test_walks_of_random_tokens_are_the_ranks_of_onematrix_rounded(data, row_of, model, n):
    """Decoded as the page decodes them: exact up to 20, else within three in a hundred."""
    prompt = live.LENS_PROMPTS[n]
    logits = lens(model, model.states(prompt))
    last = len(read(data / "slot.json.gz")["starts"]) - 1
    places = {row: (k, at) for k in (0, 100, 200, last) for at, row in enumerate(own_rows(data, k, row_of))}
    for row in random.Random(n).sample(sorted(places), 40):
        k, place = places[row]
        way = torch.tensor(read(data / f"walks-{k}.json.gz")[place][n]).cumsum(0)
        for step, scores in zip(way.tolist(), logits, strict=True):
            decoded, true = round(model.V ** (step / live.STEPS)), rank(scores, row)
            # Scores that differ in the last bit change places: a rank may be off by a few more.
            assert abs(decoded - true) <= (0 if true <= 20 else 1 + 0.03 * true)


@pytest.mark.parametrize("n", range(len(live.STEP_PROMPTS)))
def test_a_step_on_the_shipped_vectors_is_the_step_on_all(data, model, n):
    """Loss, probabilities and gradient from the few directions that are kept, and from every row in full."""
    file = read(data / f"step-{n}.json.gz")
    x = torch.tensor(file["x"], dtype=torch.float64)
    rows = torch.tensor(file["rows"], dtype=torch.float64)
    z = rows @ x
    z[-1] += file["bias"]
    for k in range(file["targets"]):
        target = model.id(file["tokens"][k])
        W, full_x = model.W.double(), model.states(file["prompt"]).x.double()
        step = closed_form(W, full_x, target)
        p = z.softmax(dim=0)
        assert -p[k].log().item() == pytest.approx(step.loss, abs=5e-5)
        assert p[k].item() == pytest.approx(step.p[target].item(), rel=1e-4)
        gradient = p @ rows - rows[k]
        assert gradient.norm().item() == pytest.approx(step.x.norm().item(), rel=1e-4)  # nothing of it lies outside
        # after the step on x that promises to gain 0.1, as chapter 3 takes it
        eta = 0.1 / (step.x @ step.x)
        after = (rows @ (x - eta * gradient)).index_add(0, torch.tensor([len(z) - 1]), z.new_tensor([file["bias"]]))
        moved = torch.log_softmax(W @ (full_x - eta * step.x), dim=0)[target]
        assert -torch.log_softmax(after, dim=0)[k].item() == pytest.approx(-moved.item(), abs=5e-5)


def test_small_enough_for_a_phone(data):
    sizes = {path.name: path.stat().st_size for path in data.glob("*.json.gz")}
    shards = [size for name, size in sizes.items() if name.startswith("slot-")]
    assert max(sizes.values()) <= ONE_LOOK_UP
    assert 2 * max(shards) + sizes["slot.json.gz"] <= ONE_LOOK_UP  # a search can cross into a second file
    for begin, most in ALL.items():
        assert sum(size for name, size in sizes.items() if name.startswith(begin)) <= most


@torch.no_grad()
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_walk_has_a_step_for_every_rank(family):
    model = tiny(family)
    codes = live.walks(model, "The dog")
    scores = lens(model, model.states("The dog"))
    assert codes.shape == (model.V, len(scores))
    ranks = [[rank(row, i) for row in scores] for i in range(model.V)]
    assert torch.tensor(codes / live.STEPS * math.log(model.V)).exp().round().int().tolist() == ranks


def test_names_are_unique_where_tokens_read_the_same():
    model = tiny("llama")
    assert len({model.text(i) for i in range(model.V)}) < model.V
    assert len(set(live.names(model))) == model.V


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@torch.no_grad()
def test_a_frame_read_once_gives_what_the_whole_prompt_gives(family):
    model = tiny(family)
    ids = torch.tensor([3, 17, 30])
    logits = live.after(model, live.read_once(model, "The dog"), ids)
    for row, i in zip(logits, ids.tolist(), strict=True):
        whole = model.states([*model.ids("The dog"), i]).logits[-1]
        assert torch.allclose(row, whole, atol=1e-5)


@torch.no_grad()
def test_nearest_and_ranks_are_those_of_onematrix():
    model = tiny("gpt2")
    unit = torch.nn.functional.normalize(model.W, dim=1)
    for i, (ids, cosines) in enumerate(live.nearest(unit)):
        best = neighbours(model.W, i, live.K)
        assert ids == [j for j, _ in best]
        assert close(cosines, [value for _, value in best])
    scores = model.states("The dog").logits
    chosen = [[0, 5], [7, 60], [1, 1]][: len(scores)]
    assert live.ranks(scores, chosen) == [[rank(s, i) for i in c] for s, c in zip(scores, chosen, strict=True)]


# ------------------------------------------------------------------ how the press keeps them


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A build directory of its own, and a computation that writes one file."""
    monkeypatch.setattr(execute, "BUILD", tmp_path)
    calls = []

    def run(command, **_):
        calls.append(command)
        (Path(command[-1]) / "slot.json.gz").write_bytes(b"data")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    return tmp_path, calls


MANIFEST = {"name": "a-model", "title": "A model", "sha256": "0" * 64}


def test_computed_once_and_copied(place):
    folder, calls = place
    press_live.build(MANIFEST, folder / "one")
    press_live.build(MANIFEST, folder / "two")
    assert len(calls) == 1
    assert [p.name for p in (folder / "two").iterdir()] == ["slot.json.gz"]
    press_live.build(MANIFEST | {"sha256": "1" * 64}, folder / "three")
    assert len(calls) == 2


def test_a_failure_keeps_what_was_there(place, monkeypatch):
    folder, _ = place
    press_live.build(MANIFEST, folder / "one")
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(press_live.LiveError, match="A model"):
        press_live.build(MANIFEST | {"sha256": "1" * 64}, folder / "two")
    assert not (folder / "two").exists()
    assert [p.name for p in (folder / "live").iterdir()] == ["a-model"]
    assert press_live.current(folder / "live" / "a-model", MANIFEST)


def test_the_press_needs_no_torch_for_it():
    code = "import sys, press.live; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ------------------------------------------------------------------ the pages' own code


def test_javascript_modules_in_node():
    node = shutil.which("node")
    if node is None:
        needed("there is no node to run the JavaScript modules' tests with")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    if tuple(map(int, version.lstrip("v").split(".")[:2])) < (20, 19):
        needed(f"node {version} does not recognise modules by their syntax; the tests need 20.19 or newer")
    done = subprocess.run([node, "--test", "tests/js"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_javascript_is_linted_and_formatted():
    done = subprocess.run(
        [Path(sys.executable).parent / "biome", "check", "press/theme/static/live", "tests/js"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
