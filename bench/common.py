"""What every section uses: turns, processes that end with the benchmark, the environment of the peers, the place."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "_build" / "bench"  # all that the benchmark makes, but for its results
MODEL = "smollm2-135m"
TELLING = (
    "torch",
    "transformers",
    "jupyter-book",
    "nbmake",
    "scikit-learn",
    "gensim",
    "transformer-lens",
    "playwright",
)


def in_turn(ways: Mapping[str, Callable[[], float | None]], repeat: int) -> dict[str, list[float]]:
    """Try each way once, then each a second time, and so on, so that a busy minute falls on all of them.

    A way returns its own measurement, or None: then the time it took, in seconds, is taken.
    """
    found: dict[str, list[float]] = {name: [] for name in ways}
    with tqdm(total=repeat * len(ways), unit="run") as bar:
        for _ in range(repeat):
            for name, way in ways.items():
                bar.set_description(name)
                start = time.perf_counter()
                own = way()
                found[name].append(time.perf_counter() - start if own is None else own)
                bar.update()
    return found


def run(command: Sequence, *, ok: Sequence[int] = (0,), **settings) -> str:
    """Run a command to its end and return what it printed; nothing that it started outlives it.

    Raises:
        RuntimeError: it failed; the message ends with what it printed.
    """
    command = [str(part) for part in command]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **settings
    ) as process:
        try:
            said, _ = process.communicate()
        finally:
            with suppress(ProcessLookupError):  # the usual case: all of it has ended
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode not in ok:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{said[-3000:]}")
    return said


def tree() -> Path:
    """Where the commit that is measured is laid out, once for a run."""
    return WORK / "tree"


def lay_out(place: Path) -> None:
    """Lay out the last commit's files there, in place of what was; what was built there stays, for what can use it."""
    place.mkdir(parents=True, exist_ok=True)
    for path in place.iterdir():
        if path.name != "_build":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    run(["bash", "-c", f"git archive HEAD | tar -x -C '{place}'"], cwd=ROOT)


def python(libraries: bool = False) -> Path:
    """The interpreter of the peers' environment, which is made first where it is not up to date.

    It sees the book's packages too, so that a peer runs on the same torch; and it takes `onematrix` and `press` from
    the measured tree. There are two: of the builders, and of the libraries that the compute section asks.
    """
    home = WORK / ("libraries" if libraries else "builders")
    requirements = ROOT / "bench" / ("requirements-libraries.txt" if libraries else "requirements.txt")
    interpreter, ready = home / "bin" / "python", home / "ready"
    wanted = requirements.read_text(encoding="utf-8")
    if not ready.is_file() or ready.read_text(encoding="utf-8") != wanted:
        print(f"Installing the {home.name} (once) ...", flush=True)
        run([sys.executable, "-m", "venv", "--clear", home])
        site = next((home / "lib").glob("python3*")) / "site-packages"
        (site / "book.pth").write_text(f"{tree()}\nimport site; site.addsitedir({books_packages()!r})\n")
        pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "-r", requirements, "-c", ROOT / "requirements.txt"])
        ready.write_text(wanted, encoding="utf-8")
    return interpreter


def books_packages() -> str:
    """The directory of the packages that this process runs on."""
    import tqdm as any_package

    return str(Path(any_package.__file__).parent.parent)


def quiet() -> dict[str, str]:
    """The environment of a measured process: offline, threads as many as cores, no reports to anyone."""
    settings = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false"}
    return os.environ | settings | {"OMP_NUM_THREADS": str(cores()), "PYTHONWARNINGS": "ignore"}


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Of the packages that are compared, as the peers' environment has them."""
    places = (WORK / name / "lib" for name in ("builders", "libraries"))
    paths = [str(site) for place in places for site in place.glob("python3*/site-packages")] + [books_packages()]
    there = {d.metadata["Name"].lower(): d.version for d in reversed(list(distributions(path=paths)))}
    return {"python": platform.python_version()} | {name: there[name] for name in TELLING if name in there}


def place() -> dict:
    """Where and when a section was measured."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0] if names else cpu
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": f"{platform.system()} {platform.machine()}, {cpu}",
        "cores": cores(),
        "revision": run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT).strip(),
        "versions": versions(),
    }


def seconds(way: Callable) -> float:
    """How long this took; what it returned is let go after the clock was read."""
    start = time.perf_counter()
    kept = way()
    took = time.perf_counter() - start
    del kept
    return took


def height(way: Callable) -> float:
    """How many bytes more than before torch held at once while this ran."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = way()
    del kept
    held = highest = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            highest = max(highest, held)
    return highest
