"""The press's command line: `python -m press COMMAND`. The Makefile calls it for the reader."""

import argparse
import functools
import http.server
import json
import shutil
import sys
import time
from contextlib import contextmanager

from onematrix import weights
from press import execute

HTML = execute.BUILD / "html"
FACTS = execute.BUILD / "facts.json"


@contextmanager
def timed(times: dict[str, float], what: str):
    """Say what begins, and note how long it took."""
    print(f"{what} ...", flush=True)
    start = time.perf_counter()
    yield
    times[what] = time.perf_counter() - start


def run_chapters(model: str, times: dict[str, float]) -> list[execute.Run]:
    """Make the model ready and bring every chapter up to date on it."""
    with timed(times, "model"):
        name = weights.resolve(model)
        if model == "auto":
            print(
                f"  auto: {name}"
                + ("" if name == "gpt2" else " (GPT-2 is not in the cache and the Hub does not answer)")
            )
        manifest = execute.prepare(name)
    with timed(times, "chapters"):
        runs = execute.execute_all(manifest)
    return runs


def book(args: argparse.Namespace) -> int:
    """Execute what changed, gather the facts, build the site."""
    from press import pages, site
    from press.claims import gather

    times: dict[str, float] = {}
    runs = run_chapters(args.model, times)
    with timed(times, "facts"):
        facts = gather(runs)
        FACTS.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
    with timed(times, "site"):
        stage = execute.BUILD / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        pages.stage({run.chapter: run.path for run in runs}, facts, stage)
        site.build(stage, HTML)
    model = runs[0].model
    print(f"\nMeasured on {model['title']} ({model['revision']}): {len(runs)} chapters.")
    print("Took " + ", ".join(f"{what} {seconds:.1f} s" for what, seconds in times.items()) + ".")
    print(f"Start page: {HTML / 'index.html'}   (make serve shows it)")
    return 0


def serve(args: argparse.Namespace) -> int:
    """Show the site on loopback until interrupted."""
    if not (HTML / "index.html").is_file():
        print("There is no site yet: run `make book` first.", file=sys.stderr)
        return 1
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=HTML)
    with http.server.ThreadingHTTPServer(("127.0.0.1", args.port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/   (stop with Ctrl-C)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="press", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(function, *, model: str | None = None):
        sub = commands.add_parser(function.__name__, help=function.__doc__.splitlines()[0])
        if model:
            sub.add_argument("--model", default=model, choices=["auto", *weights.SOURCES])
        sub.set_defaults(function=function)
        return sub

    command(book, model="auto")
    command(serve).add_argument("--port", type=int, default=8000)
    args = parser.parse_args(argv)
    try:
        return args.function(args)
    except (weights.ModelError, execute.ChapterError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; finished chapters are kept.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
