"""Opening the weights: `load` beside transformers alone, two at once, and the conversion that is made once.

Each measurement is a fresh process: `python -m bench.load WAY [FOLDER]` prints one line of JSON.
"""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import common
from bench.table import WEIGHTS_BYTES


def measure(repeat: int | None) -> dict:
    found = common.in_turn(
        {
            "load": lambda: child("load")["seconds"],
            "from_pretrained": lambda: child("from_pretrained")["seconds"],
            "from_pretrained, and the tokenizer": lambda: child("from_pretrained", "tokenizer")["seconds"],
            "peak memory beyond the weights, one prompt": lambda: child("prompt")["peak"] - WEIGHTS_BYTES,
            "memory of two at once, shared pages halved": two_at_once,
        },
        repeat or 7,
    )
    with tempfile.TemporaryDirectory(dir=common.WORK) as scratch:
        ours, plain = Path(scratch) / "ours", Path(scratch) / "plain"
        found |= common.in_turn(
            {
                "conversion": lambda: child("convert", ours)["seconds"],
                "conversion through transformers": lambda: child("convert_plainly", plain)["seconds"],
            },
            min(repeat or 3, 3),
        )
        found["values that differ from transformers' conversion"] = [child("compare", ours, plain)["differing"]]
    found["weights twice"] = [2 * WEIGHTS_BYTES]
    return {"series": found, "notes": [NOTE]}


NOTE = """\
`load` finds and checks the folder, opens the network and the tokenizer; `from_pretrained` opens the network of the same
folder and nothing else. Both after torch and transformers are imported, each in a fresh process, with the file in the
system's cache. Memory of two at once: both have answered a prompt and are still there; a page that both hold counts
half for each. A conversion's seconds do not count the imports."""


def child(*arguments) -> dict:
    command = [common.python(), "-m", "bench.load", *arguments]
    return json.loads(common.run(command, cwd=common.tree(), env=common.quiet()).splitlines()[-1])


def two_at_once() -> float:
    """Bytes that two processes with a loaded model hold together."""
    command = [str(common.python()), "-m", "bench.load", "wait"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    both = [subprocess.Popen(command, cwd=common.tree(), env=common.quiet(), **pipes) for _ in range(2)]
    try:
        for process in both:
            while process.stdout.readline().strip() != "ready":
                if process.poll() is not None:
                    raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        return sum(proportional(process.pid) for process in both)
    finally:
        for process in both:
            process.kill()
            process.communicate()


def proportional(pid: int) -> int:
    """Bytes a process holds, a page that n processes hold counted as one nth (Linux)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


# ------------------------------------------------------------------ in the child


def load(*_) -> dict:
    from onematrix import models

    return {"seconds": common.seconds(lambda: models.load(common.MODEL))}


def from_pretrained(*and_the_tokenizer) -> dict:
    from onematrix import weights

    folder = weights.cache() / common.MODEL

    def plain():
        network = transformers.AutoModelForCausalLM.from_pretrained(folder)
        return network, transformers.AutoTokenizer.from_pretrained(folder) if and_the_tokenizer else None

    return {"seconds": common.seconds(plain)}


def prompt(*_) -> dict:
    from onematrix import models

    models.load(common.MODEL).states("The dog")
    return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)}


def wait(*_) -> dict:
    prompt()
    print("ready", flush=True)
    sys.stdin.read()
    return {}


def convert(into: str) -> dict:
    from onematrix import weights

    Path(into).mkdir(exist_ok=True)
    source = weights.source(common.MODEL)
    return {"seconds": common.seconds(lambda: source.make(source, Path(into)))}


def convert_plainly(into: str) -> dict:
    """As transformers' own documentation has it, and a fresh model, since it does not save what it read from GGUF."""
    from onematrix import weights

    gguf = weights.gguf_in_wheel()

    def plain():
        here = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
        read = transformers.AutoModelForCausalLM.from_pretrained(**here)
        settings = {k: v for k, v in read.config.to_dict().items() if k != "quantization_config"}
        fresh = type(read)(type(read.config).from_dict(settings))
        fresh.load_state_dict(read.state_dict())
        fresh.save_pretrained(into)
        transformers.AutoTokenizer.from_pretrained(**here).save_pretrained(into)

    return {"seconds": common.seconds(plain)}


def compare(ours: str, plain: str) -> dict:
    """How many numbers differ in any bit, a tensor that is missing on either side counted whole."""
    from safetensors.torch import load_file

    a, b = (load_file(Path(folder) / "model.safetensors") for folder in (ours, plain))
    differing = sum(t.numel() for name, t in (a | b).items() if name not in a or name not in b)
    for name in a.keys() & b.keys():
        differing += int((a[name].view(dtype=torch.int32) != b[name].view(dtype=torch.int32)).sum())
    return {"differing": differing}


if __name__ == "__main__":
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401 (imported when first named)

    transformers.utils.logging.disable_progress_bar()
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
