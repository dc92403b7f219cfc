"""The live pieces' data: computed once for a model, kept, and copied into the staged tree.

`build(manifest, into)` is the whole interface. The data are written whole or not at all, and computed again
only when the weights or the code that reads them change.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from onematrix import weights
from press import execute

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("live", "models", "families", "rows", "logit_lens", "many", "tokens")  # that the data depend on
KEY = "made-from"


class LiveError(RuntimeError):
    """The live pieces' data could not be computed; what went wrong stands above it."""


def build(manifest: Mapping, into: Path) -> None:
    """Bring the data of the live pieces up to date and copy them.

    Args:
        manifest: of a model whose folder is ready.
        into: a directory that is not there yet, `extra/live` of the staged tree.

    Raises:
        LiveError: the computation failed. What was kept before stays.
    """
    if not current(kept(manifest), manifest):
        compute(kept(manifest), manifest)
    shutil.copytree(kept(manifest), into, ignore=shutil.ignore_patterns(KEY))


def kept(manifest: Mapping) -> Path:
    """Where a model's data are kept between builds."""
    return execute.BUILD / "live" / manifest["name"]


def key(manifest: Mapping) -> str:
    """Hash of what the data depend on: the weights and the code that reads them."""
    digest = hashlib.sha256(manifest["sha256"].encode())
    for name in SOURCES:
        digest.update((ROOT / "onematrix" / f"{name}.py").read_bytes())
    return digest.hexdigest()


def current(folder: Path, manifest: Mapping) -> bool:
    """Whether the data in a folder were made from what is there now."""
    noted = folder / KEY
    return noted.is_file() and noted.read_text(encoding="utf-8") == key(manifest)


def compute(target: Path, manifest: Mapping) -> None:
    """Run `onematrix.live` in a process of its own, since the press has no torch, on all cores."""
    made_from = key(manifest)
    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # what a killed run left behind
    settings = {name: os.environ[name] for name in execute.ENVIRONMENT if name in os.environ}
    settings |= {"OMP_NUM_THREADS": str(execute.cores()), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    settings["OMP_WAIT_POLICY"] = "PASSIVE"  # a waiting thread sleeps: on a busy machine it would burn a core
    with weights.whole(target) as scratch:
        done = subprocess.run([sys.executable, "-m", "onematrix.live", manifest["name"], str(scratch)], env=settings)
        if done.returncode:
            raise LiveError(f"The live pieces' data for {manifest['title']} could not be computed (see above).")
        (scratch / KEY).write_text(made_from, encoding="utf-8")
