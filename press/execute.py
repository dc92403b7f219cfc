"""Run chapters with papermill, as many at once as the machine holds, and never one that has not changed.

An executed chapter lies at `_build/executed/MODEL/NN_name.ipynb` beside a small record of what it was made
from. It is written whole or not at all, and it is current while the record's key matches.
"""

import asyncio
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import nbformat
import papermill
import psutil
from filelock import FileLock, Timeout
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from tqdm import tqdm

from onematrix import places, weights
from press import warm

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
PRINTED = ROOT / "tests" / "printed"
BUILD = ROOT / "_build"

CELL_SECONDS = 600  # a cell that takes longer is taken to hang
KERNEL_BYTES = 2 << 30  # what one chapter may need: the weights, torch, and room to compute
MEMORY_BYTES = max(3 * KERNEL_BYTES, psutil.virtual_memory().total // 2)  # where a chapter that fills memory is stopped
OUTPUT_BYTES = 20 << 20  # a cell that says more is taken to print without end
UNUSED = ("cli", "convert", "live", "tables")  # of onematrix: what no chapter imports
TELLING = ("torch", "transformers", "matplotlib", "numpy", "papermill")  # versions that every page names

# What a chapter sees of the machine's environment; secrets stay outside.
ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT", "USERPROFILE"),
    *(warm.KEPT, "ONEMATRIX_CACHE", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "LD_LIBRARY_PATH"),
)

LIMIT = """\
import resource
resource.setrlimit(resource.RLIMIT_DATA, ({bytes}, {bytes}))"""

OURS = "press-"  # how the ids of the cells begin that the press adds, first and last
MEASURE = """\
import resource, sys
_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kB on Linux, bytes on macOS
print(_peak * (1 if sys.platform == "darwin" else 1024))"""


class ChapterError(RuntimeError):
    """A chapter did not run to its end: says which, where and why."""


@dataclass(frozen=True)
class Run:
    """One executed chapter.

    Attributes:
        chapter: `NN_name`.
        path: the executed notebook.
        key: hash of all it depends on.
        seconds: how long its cells and its kernel took.
        peak_bytes: the kernel's largest resident size.
        date: UTC, ISO 8601.
        versions: of the packages every page names.
        model: the manifest of the weights.
    """

    chapter: str
    path: Path
    key: str
    seconds: float
    peak_bytes: int
    date: str
    versions: dict[str, str]
    model: dict


def chapters() -> list[str]:
    """Names of all chapters, in the book's order."""
    return sorted(p.stem for p in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def prepare(model: str) -> dict:
    """Make a model's folder where it is not there yet, and return its manifest.

    One of the book's own is made in a process of its own, because that needs torch and the press does not.

    Raises:
        onematrix.ModelError: the model is unknown or cannot be had.
    """
    name = places.resolve(model)
    if name not in weights.SOURCES:
        return places.locate(name)[1]
    code = (
        "import sys\nfrom onematrix import weights\n"
        "try: weights.folder(sys.argv[1])\nexcept weights.ModelError as e: print(e); sys.exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code, name], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise weights.ModelError(done.stdout.strip() or f"{name} could not be made ready (see above).")
    return weights.manifest(weights.cache() / name)


def key(chapter: str, manifest: dict) -> str:
    """Hash of what a chapter's outcome depends on: source, package, what the package quotes, model, versions."""
    digest = hashlib.sha256(f"{chapter}\0".encode() + what_runs(NOTEBOOKS / f"{chapter}.ipynb"))
    sources = [
        ROOT / "requirements.txt",
        *sorted(path for path in (ROOT / "onematrix").rglob("*.py") if path.stem not in UNUSED),
        *sorted((PRINTED / "gpt2").iterdir()),  # what `document` quotes
        *sorted((PRINTED / manifest["name"]).glob(f"{chapter}.pins.json")),  # what `your_run` compares with
    ]
    for path in sources:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(f"{manifest['sha256']} {platform.python_version()} {platform.machine()}".encode())
    return digest.hexdigest()


def what_runs(path: Path) -> bytes:
    """Of a notebook, all that its outcome can depend on: its code. Of what is no notebook, everything."""
    raw = path.read_bytes()
    try:
        notebook = json.loads(raw)
        code = [
            {k: v for k, v in cell.items() if k not in ("outputs", "execution_count")}  # `source` drops them
            for cell in notebook["cells"]
            if cell["cell_type"] == "code"
        ]
        return json.dumps([notebook["metadata"], code], sort_keys=True).encode()
    except (ValueError, RecursionError, TypeError, KeyError):
        return raw


def home(manifest: dict) -> Path:
    """Where a model's executed chapters lie. A model's name may be a path."""
    return BUILD / "executed" / re.sub(r"[^\w.@-]+", "_", manifest["name"]).strip("_")


def current(chapter: str, manifest: dict) -> Run | None:
    """The chapter's last run on this model, if nothing it depends on has changed since."""
    path = home(manifest) / f"{chapter}.ipynb"
    try:
        record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if record["key"] != key(chapter, manifest) or hashlib.sha256(path.read_bytes()).hexdigest() != record["sha256"]:
        return None
    fields = {k: v for k, v in record.items() if k != "sha256"}
    return Run(path=path, **fields)


def read(run: Run) -> nbformat.NotebookNode:
    """An executed chapter in the words of today: its prose may have been edited since it ran.

    Raises:
        ChapterError: the chapter as it stands now is no notebook.
    """
    executed = nbformat.read(run.path, as_version=4)
    code = iter([cell for cell in executed.cells if cell.cell_type == "code"])
    executed.cells = []
    for cell in source(run.chapter).cells:
        if cell.cell_type == "code":
            cell = next(code)
        executed.cells.append(cell)
        if "parameters" in cell.metadata.get("tags", []):
            executed.cells.append(next(code))  # papermill's own cell, with the model's name
    return executed


def read_all(runs: list[Run]) -> dict[str, nbformat.NotebookNode]:
    """Chapter -> its executed notebook, in the order of the runs."""
    return {run.chapter: read(run) for run in runs}


@contextmanager
def environment(threads: int, **settings: str) -> Iterator[None]:
    """Give kernels only what they need of this process's environment, no network, and a place for their own files."""
    # papermill keeps directories in process-wide variables that chapters side by side overwrite, and may go back to
    # one from an earlier run. So there is one directory for all chapters, and it is never removed.
    desk = BUILD / "desk"
    desk.mkdir(parents=True, exist_ok=True)
    for left in desk.iterdir():  # by an earlier run: no chapter may depend on it
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    before, stood = dict(os.environ), Path.cwd()
    kept = {name: before[name] for name in ENVIRONMENT if name in before}
    scratch = tempfile.TemporaryDirectory(prefix="press-")
    if not kept.keys() & {"HOME", "USERPROFILE"}:  # Jupyter cannot do without one
        kept |= {"HOME": scratch.name, "ONEMATRIX_CACHE": str(weights.cache())}
    os.environ.clear()
    os.environ.update(kept)
    os.environ.update(
        IPYTHONDIR=scratch.name,
        JUPYTER_RUNTIME_DIR=scratch.name,
        OMP_NUM_THREADS=str(threads),
        TOKENIZERS_PARALLELISM="false",
        HF_HUB_OFFLINE="1",
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        PYTHONHASHSEED="0",
        PYDEVD_DISABLE_FILE_VALIDATION="1",
        PYTHONWARNINGS="ignore:IProgress not found",  # a bar without a widget is still a bar
        **settings,
    )
    try:
        with scratch:
            os.chdir(desk)
            yield
    finally:
        os.chdir(stood)
        os.environ.clear()
        os.environ.update(before)


@dataclass
class Watch:
    """Where a chapter is, for the bar and for the message should it fail."""

    on_cell: Callable[[str], None]
    cell: str = "the start"
    bytes: int = 0  # that this cell has said
    stopping: asyncio.Future | None = None  # what interrupts it

    def start(self, cell_id: str) -> None:
        self.cell, self.bytes = cell_id, 0
        if not cell_id.startswith(OURS):
            self.on_cell(cell_id)


class Client(PapermillNotebookClient):
    """papermill's client, which interrupts a cell that prints without end and keeps no more of it."""

    def process_message(self, msg, cell, cell_index):
        watch = self.nb_man.watch
        if msg["msg_type"] in ("stream", "display_data", "update_display_data", "execute_result"):
            before, watch.bytes = watch.bytes, watch.bytes + len(str(msg["content"]))
            if watch.bytes > OUTPUT_BYTES:
                if before <= OUTPUT_BYTES:
                    watch.stopping = asyncio.ensure_future(self.km.interrupt_kernel())
                return None
        return super().process_message(msg, cell, cell_index)


class Watching(NBClientEngine):
    """papermill's own engine, which also says which cell it starts."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, watch: Watch, execution_timeout: int, **_):
        begin = nb_man.cell_start

        def start(cell, cell_index=None, **more):
            watch.start(cell["id"])
            return begin(cell, cell_index, **more)

        nb_man.watch, nb_man.cell_start = watch, start
        settings = {"kernel_name": kernel_name, "timeout": execution_timeout, "startup_timeout": 60}
        Client(nb_man, force_raise_errors=True, **settings).execute()  # a tag on a cell allows no error


papermill_engines.register("watching", Watching)


def source(chapter: str) -> nbformat.NotebookNode:
    """A chapter as its author wrote it; what an earlier run left in it is dropped.

    Raises:
        ChapterError: it is no notebook, cells cannot be told apart, or it would not take the model that it is given.
    """
    path = NOTEBOOKS / f"{chapter}.ipynb"

    def wrong(what: str) -> ChapterError:
        return ChapterError(f"{chapter}: {what}.\n  Mend notebooks/{path.name}; the other chapters are kept.")

    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        ids = [cell.get("id") for cell in raw["cells"]]
    except OSError as failure:
        raise wrong(f"it cannot be read ({failure.strerror})") from failure
    except (ValueError, RecursionError) as failure:
        raise wrong(f"it is not JSON ({failure})") from failure
    except (TypeError, KeyError, AttributeError) as failure:
        raise wrong("it is JSON, but no notebook: expected an object with a list of cells") from failure
    for place, name in enumerate(ids, start=1):
        if not name or not isinstance(name, str):
            raise wrong(f"cell {place} has no id. Every cell needs one, a name for what it shows")
        if name in ids[: place - 1]:
            raise wrong(f"cells {ids.index(name) + 1} and {place} both have the id {name}; an id is used once")
    written_in = raw.get("nbformat"), raw.get("nbformat_minor")
    if written_in[0] != 4 or not isinstance(written_in[1], int) or written_in[1] < 5:
        raise wrong(f"it is written in notebook format {written_in[0]}.{written_in[1]}, expected 4.5")
    try:
        nbformat.validate(raw)
        notebook = nbformat.v4.to_notebook(raw)
    except (nbformat.ValidationError, ValueError, TypeError, KeyError, AttributeError) as failure:
        raise wrong(f"it is not a valid notebook ({getattr(failure, 'message', failure)})") from failure
    parameters = [cell.id for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(parameters) != 1:
        told = "no cell" if not parameters else f"cells {', '.join(parameters)}"
        raise wrong(f'{told} tagged "parameters", expected one. It would not run on the model that the page names')
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def execute(chapter: str, manifest: dict, into: Path, on_cell: Callable[[str], None], kernel: str = "python3") -> Run:
    """Run one chapter on one model and put the outcome in its place.

    Args:
        chapter: `NN_name` in `notebooks/`.
        manifest: of a model whose folder is ready.
        kernel: the kernelspec to run it with.
        on_cell: called with the id of each cell as it starts.

    Raises:
        ChapterError: a cell raised, hung, or took the kernel with it; the message names it.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    watch = Watch(on_cell)
    try:
        made_from = key(chapter, manifest)
        target = into / f"{chapter}.ipynb"
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{chapter}-", dir=into) as scratch:
            asked, result = Path(scratch) / "source.ipynb", Path(scratch) / "result.ipynb"
            notebook = source(chapter)
            notebook.cells.insert(0, nbformat.v4.new_code_cell(LIMIT.format(bytes=MEMORY_BYTES), id=f"{OURS}limit"))
            notebook.cells.append(nbformat.v4.new_code_cell(MEASURE, id=f"{OURS}measure"))
            nbformat.write(notebook, asked)
            papermill.execute_notebook(
                asked,
                result,
                parameters={"MODEL": manifest["name"]},
                engine_name="watching",
                kernel_name=kernel,
                progress_bar=False,
                request_save_on_cell_execute=False,
                execution_timeout=CELL_SECONDS,
                watch=watch,
            )
            executed = nbformat.read(result, as_version=4)
            executed.cells.pop(0)
            peak = int("".join(o["text"] for o in executed.cells.pop()["outputs"] if o["output_type"] == "stream"))
            nbformat.write(executed, result)
            run = Run(
                chapter=chapter,
                path=target,
                key=made_from,
                seconds=time.monotonic() - clock,  # the date may be set back meanwhile
                peak_bytes=peak,
                date=started.isoformat(timespec="seconds"),
                versions={"python": platform.python_version()} | {name: version(name) for name in TELLING},
                model=manifest,
            )
            record = {k: v for k, v in asdict(run).items() if k != "path"}
            record["sha256"] = hashlib.sha256(result.read_bytes()).hexdigest()
            note_file = Path(scratch) / "record.json"
            note_file.write_text(json.dumps(record, indent=1), encoding="utf-8")
            # The record goes first out and last in: a kill between the two leaves a chapter that is not current.
            target.with_suffix(".json").unlink(missing_ok=True)
            result.replace(target)
            note_file.replace(target.with_suffix(".json"))
    except ChapterError:
        raise
    except Exception as error:
        raise ChapterError(explain(chapter, watch, error)) from error
    return run


def explain(chapter: str, watch: Watch, error: Exception) -> str:
    """One message for a chapter that failed: chapter, cell, the line it stopped at, the error, what to do."""
    where = ""
    todo = f"Open notebooks/{chapter}.ipynb and run it up to this cell."
    match error:
        case papermill.PapermillExecutionError():
            plain = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error.traceback))
            stopped = re.findall(r"^-+> (\d+ .*)$", plain, flags=re.M)  # innermost last; the cell's own line is first
            where = f", line {stopped[0]}" if stopped else ""
            what = f"{error.ename}: {error.evalue}"
        case CellTimeoutError():
            what = f"CellTimeoutError: it did not end within {CELL_SECONDS} seconds"
        case DeadKernelError():
            what = "DeadKernelError: its kernel ended in the middle: killed, out of memory, or told to exit"
        case OSError():
            what = f"its outcome could not be written ({error}). What was there before is kept"
            todo = "Make room, or let the folder be written to, and run again."
        case _:
            what = traceback.format_exception_only(error)[-1].strip()
    if watch.bytes > OUTPUT_BYTES:
        what = f"it printed more than {OUTPUT_BYTES >> 20} MB and was stopped ({what.partition(':')[0]})"
    if watch.cell == f"{OURS}measure" and isinstance(error, ValueError):
        what = "it has replaced print or sys.stdout, so that nothing it says can be trusted"
    return f"{chapter}, cell {watch.cell}{where}\n  {what}\n  {todo}"


def length(chapter: str) -> int:
    """How many cells a chapter has as it runs; none where it cannot, which is told when its turn comes."""
    try:
        return len(source(chapter).cells) + 1  # papermill adds the one with the model's name
    except ChapterError:
        return 0


@contextmanager
def alone() -> Iterator[None]:
    """Keep a second press waiting while one builds in this tree."""
    BUILD.mkdir(parents=True, exist_ok=True)
    lock = FileLock(BUILD / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print("Another press is at work in this tree. Waiting for it.", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers() -> int:
    """How many chapters run at once: no more than there are cores, and what memory holds."""
    return max(1, min(cores(), psutil.virtual_memory().available // KERNEL_BYTES))


def execute_all(manifest: dict, names: list[str] | None = None) -> list[Run]:
    """Every chapter's current run on this model, executing what has changed.

    Raises:
        ChapterError: at least one chapter failed. The others' results are kept.
    """
    names = names or chapters()
    runs = {name: run for name in names if (run := current(name, manifest))}
    stale = [name for name in names if name not in runs]
    if stale:
        side_by_side = min(workers(), len(stale))
        threads = max(1, cores() // side_by_side)
        runs |= {run.chapter: run for run in execute_fresh(manifest, stale, home(manifest), side_by_side, threads)}
    return [runs[name] for name in names]


def execute_fresh(
    manifest: dict, names: list[str], into: Path, side_by_side: int, threads: int, **settings: str
) -> list[Run]:
    """Execute these chapters, so many side by side, with so many threads each.

    Args:
        settings: further environment variables for the kernels.

    Raises:
        ChapterError: at least one chapter failed; the message has every failure.
    """
    runs, failures = [], []
    for leftover in into.glob(".[0-9][0-9]_*"):
        shutil.rmtree(leftover, ignore_errors=True)  # what a killed run left behind
    with (
        environment(threads, **settings),
        warm.kernels(manifest["name"]) as kernel,
        tqdm(total=sum(map(length, names)), unit="cell", disable=None) as bar,
        ThreadPoolExecutor(side_by_side) as pool,
    ):

        def start(chapter: str) -> Run:
            def on_cell(cell_id: str) -> None:
                bar.set_description(f"{chapter}: {cell_id}", refresh=False)
                bar.update()

            return execute(chapter, manifest, into, on_cell, kernel)

        try:
            for done in as_completed([pool.submit(start, name) for name in names]):
                try:
                    run = done.result()
                except ChapterError as failure:
                    failures.append(str(failure))
                else:
                    runs.append(run)
                    tqdm.write(f"  {run.chapter}  {run.seconds:.1f} s, {run.peak_bytes / 1e6:.0f} MB")
        except KeyboardInterrupt:  # the threads would wait for their kernels, minutes in the worst case
            pool.shutdown(wait=False, cancel_futures=True)
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            raise
    if failures:
        raise ChapterError("\n\n".join(failures))
    return runs
