"""The press's command line: `python -m press COMMAND`. The Makefile calls it for the reader."""

import argparse
import errno
import functools
import http.server
import json
import shutil
import signal
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

from nbformat import NotebookNode

from onematrix import weights
from press import UsageError, claims, compare, execute, ledger, live, pages, site, unchanged
from press import chapter as new_chapter
from press import report as one_page
from press import watch as watching

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def timed(times: dict[str, float], what: str):
    """Say what begins, and note how long it took."""
    print(f"{what} ...", flush=True)
    start = time.perf_counter()
    yield
    times[what] = time.perf_counter() - start


def html() -> Path:
    """Where the site lies."""
    return execute.BUILD / "html"


def chosen(model: str) -> str:
    """The model's name, said aloud where `auto` chose it."""
    name = weights.resolve(model)
    if model == "auto":
        print(f"auto takes {name}" + ("" if name == "gpt2" else ": GPT-2 is not here and the Hub does not answer"))
    return name


def run_chapters(name: str, times: dict[str, float]) -> list[execute.Run]:
    """Make the model ready and bring every chapter up to date on it.

    Raises:
        onematrix.ModelError, ChapterError: see there.
    """
    with timed(times, "model"):
        manifest = execute.prepare(name)
    with timed(times, "chapters"):
        return execute.execute_all(manifest)


def checked(runs: list[execute.Run]) -> dict[str, NotebookNode]:
    """Chapter -> its executed notebook.

    Raises:
        PageError: pins or verdicts that no page can show.
    """
    executed = execute.read_all(runs)
    if faults := compare.pin_faults(executed) + claims.unlisted(executed):
        raise pages.PageError("\n".join(faults))
    return executed


def took(times: dict[str, float]) -> str:
    return "Took " + ", ".join(f"{what} {seconds:.1f} s" for what, seconds in times.items()) + "."


def book(args: argparse.Namespace) -> int:
    """Execute what changed, gather the facts, build the site; do nothing where nothing changed."""
    name = chosen(args.model)
    ready = weights.cache() / name / weights.MANIFEST
    if ready.is_file() and (said := unchanged.said(html(), weights.manifest(ready.parent))):
        print(f"Nothing changed since the last build.\n{said}")
        return 0
    unchanged.forget(html())
    times: dict[str, float] = {}
    runs = run_chapters(name, times)
    made_from = unchanged.key(runs[0].model)
    executed = checked(runs)
    facts = claims.gather(runs, executed)
    ledger_file = execute.BUILD / "facts.json"
    ledger_file.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
    model = runs[0].model
    stage = execute.BUILD / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    pages.stage(executed, facts, stage)
    ledger.publish(facts, stage)
    with timed(times, "live pieces"):
        live.build(model, stage / "extra" / "live")
    with timed(times, "site"):
        site.build(stage, html())
    held = sum(claim["holds"] for claim in facts["claims"])
    said = (
        f"Measured on {model['title']} ({model['revision']}): {len(runs)} chapters, {len(facts['pins'])} figures;\n"
        f"of the documents' {len(facts['claims'])} claims {held} hold on it.\n"
        f"Start page: {html() / 'index.html'}   (make serve shows it)"
    )
    unchanged.note(html(), made_from, said)
    print(f"\n{took(times)}\n{said}")
    return 0


def reproduce(args: argparse.Namespace) -> int:
    """Run the chapters and hold every claim of the documents against them; 0 only when each does what it must."""
    times: dict[str, float] = {}
    runs = run_chapters(chosen(args.model), times)
    facts = claims.gather(runs, checked(runs))
    print(claims.table(facts))
    print(took(times))
    return 0 if claims.as_it_must(facts) else 1


def report(args: argparse.Namespace) -> int:
    """Run the chapters on any model and write one page: its figures, and which claims hold."""
    times: dict[str, float] = {}
    with timed(times, "model"):
        manifest = execute.prepare(chosen(args.model) if args.model == "auto" else args.model)
    with timed(times, "chapters"):
        facts = one_page.write(manifest, args.out)
    print(one_page.tally([claim for claim in facts["claims"] if claim["kind"] == "statement"]))
    print(took(times))
    print(args.out)
    return 0


def record(args: argparse.Namespace) -> int:
    """Write what the chapters print on our own model into tests/printed; a person reviews the diff."""
    runs = run_chapters(chosen(args.model), {})
    for path, is_new in compare.record(runs[0].model["name"], checked(runs)):
        print(f"{'new' if is_new else 'changed'}: {path.relative_to(execute.ROOT)}")
    print("Read it before you commit: git add --intent-to-add tests/printed && git diff tests/printed")
    return 0


def repeat(args: argparse.Namespace) -> int:
    """Run the chapters several ways and report every printed figure that moves."""
    from press import repeat as several

    runs, compared, moved, calls = several.repeat(execute.prepare(weights.resolve(args.model)))
    print(several.report(runs, compared, moved, calls))
    return 1 if several.unsteady(moved) else 0


def changes(args: argparse.Namespace) -> int:
    """Print which facts moved between two ledgers (facts.json), and by how much."""
    before, after = (json.loads(Path(name).read_text(encoding="utf-8")) for name in (args.before, args.after))
    lines = ledger.changes(before, after)
    print("\n".join(lines) if lines else "No fact moved.")
    return 0


def chapter(args: argparse.Namespace) -> int:
    """Make a new chapter to start from: a notebook that runs, and its place in the contents."""
    for path in new_chapter.create(args.name, args.title):
        print(path.relative_to(execute.ROOT))
    print("Next: edit it, and make book; then make record, which writes what it must print from then on.")
    return 0


def address(args: argparse.Namespace) -> int:
    """Write the repository's address into _config.yml and every chapter's set-up cell."""
    for path in site.set_address(args.url):
        print(path.relative_to(execute.ROOT))
    return 0


def pdf(args: argparse.Namespace) -> int:
    """Print the whole book to one PDF with Chromium."""
    out = execute.BUILD / "one-matrix-two-meanings.pdf"
    site.pdf(html(), out)
    print(out)
    return 0


def serve(args: argparse.Namespace) -> int:
    """Show the site on loopback until interrupted."""
    if not (html() / "index.html").is_file():
        print("There is no site yet: run `make book` first.", file=sys.stderr)
        return 1
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=html())
    with http.server.ThreadingHTTPServer(("127.0.0.1", args.port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/   (stop with Ctrl-C)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def watch(args: argparse.Namespace) -> int:
    """Build, show the site on loopback, and build again at each save, until interrupted."""
    watching.watch(chosen(args.model), html(), args.port)
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="press", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(function, *, model: str | None = None) -> argparse.ArgumentParser:
        sub = commands.add_parser(function.__name__, help=function.__doc__.splitlines()[0])
        if model:
            sub.add_argument("--model", default=model, choices=["auto", *weights.SOURCES])
        sub.set_defaults(function=function, alone=model is not None)
        return sub

    command(book, model="auto")
    command(reproduce, model="gpt2")
    command(record, model="smollm2-135m")
    command(repeat, model="smollm2-135m")
    watcher = command(watch, model="auto")
    watcher.add_argument("--port", type=int, default=8000)
    watcher.set_defaults(alone=False)  # each of its builds is
    any_model = command(report)
    any_model.set_defaults(alone=True)
    any_model.add_argument("model", help="a known name, a folder, or owner/name@revision")
    any_model.add_argument("--out", type=Path, default=Path("report.html"))
    both = command(changes)
    both.add_argument("before")
    both.add_argument("after")
    new = command(chapter)
    new.add_argument("name")
    new.add_argument("title")
    command(address).add_argument("url")
    command(pdf)
    command(serve).add_argument("--port", type=int, default=8000)
    args = parser.parse_args(argv)
    try:
        with execute.alone() if args.alone else nullcontext():
            return args.function(args)
    except (weights.ModelError, execute.ChapterError, pages.PageError, live.LiveError, site.SiteError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            print(f"Port {args.port} is taken. Name another: PORT={args.port + 1}", file=sys.stderr)
            return 2
        if not any(f"[Errno {number}]" in str(error) for number in UNWRITABLE):
            raise  # a mistake of ours
        told = error.args[0][0][-1] if isinstance(error, shutil.Error) else error  # the first of many files
        print(
            f"\nThis machine does not let the press write: {told}\n  Finished chapters and the site that was there "
            "are kept. Make room, or build in a folder that can be written.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; finished chapters are kept.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end clears away, too
    sys.exit(main())
