"""Run the benchmark's sections one after the other, and write what they measured after each."""

import argparse
import os
import signal
import sys
from importlib import import_module

from bench import common, table

SECTIONS = ("build", "profile", "load", "compute", "scale", "page")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS) + "; all if none is named")
    parser.add_argument("--repeat", type=int, help="how often each way is tried (default: as often as it is short)")
    args = parser.parse_args(argv)
    if unknown := set(args.sections) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}; choose from {', '.join(SECTIONS)}")
    common.lay_out(common.tree())
    common.python()
    for section in args.sections or SECTIONS:
        print(f"\n{section} ...", flush=True)
        load = os.getloadavg()[0]
        measured = import_module(f"bench.{section}").measure(args.repeat)
        where = common.place() | {"load": load}  # afterwards, when all that it needs is installed
        results = table.read() | {section: {"where": where, **measured}}
        table.publish({name: results[name] for name in SECTIONS if name in results})
        for line in table.rows(results, section):
            print("  " + "  ".join(filter(None, line)))
    print(f"\nWritten: {table.RESULTS.relative_to(common.ROOT)}, {table.REPORT.relative_to(common.ROOT)}, README.md.")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end stops what was started, too
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nStopped; finished sections are kept.", file=sys.stderr)
        sys.exit(130)
