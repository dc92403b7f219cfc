"""Kernels that start warm: one process pays for the imports and the weights, and each chapter's kernel is its fork.

Importing torch and transformers and opening a model takes several seconds, more than most chapters compute. A
fork shares those pages and starts in a fraction of a second, and what one chapter does to its copy no other
sees. Where there is no safe fork (anywhere but Linux) chapters get ordinary kernels.

    press -- kernelspec `warm` --> `python warm.py DOOR CONNECTION_FILE`   a small process a kernel: asks for a
                                        |                                  fork, passes signals on, and ends with
                                        v                                  the kernel's exit status
                              the warm parent: imports, loads, forks
"""

import ctypes
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

READY = b"ready\n"
KEPT = "PRESS_WARM"  # names the place of a warm parent that outlives this press: `press.watch` keeps one
PR_SET_CHILD_SUBREAPER = 36  # of Linux


@contextmanager
def kernels(model: str) -> Iterator[str]:
    """The name of the kernelspec to run chapters with; the warm parent lives as long as the block.

    Args:
        model: the model that every chapter is going to open.
    """
    if sys.platform != "linux":
        yield "python3"
        return
    if KEPT in os.environ:
        os.environ["JUPYTER_PATH"] = os.environ[KEPT]
        yield "warm"
        del os.environ["JUPYTER_PATH"]
        return
    with tempfile.TemporaryDirectory(prefix="press-warm-") as scratch:
        door = Path(scratch) / "door"
        spec = Path(scratch) / "kernels" / "warm"
        spec.mkdir(parents=True)
        argv = [sys.executable, "-S", "-E", str(Path(__file__).resolve()), str(door), "{connection_file}"]
        (spec / "kernel.json").write_text(
            json.dumps({"argv": argv, "display_name": "warm", "language": "python"}), encoding="utf-8"
        )
        command = [sys.executable, "-m", "press.warm", str(door), model]
        os.environ["JUPYTER_PATH"] = scratch
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            try:
                # the end of the file instead of the word: the parent died, and said why
                yield "warm" if parent.stdout.readline() == READY else "python3"
            finally:
                parent.terminate()
                del os.environ["JUPYTER_PATH"]


def ask(door: str, connection_file: str) -> int:
    """Beside each kernel: ask for the fork, hand signals on, return the kernel's exit status."""
    press = os.getppid()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(door)
        request = {"connection_file": connection_file, "cwd": os.getcwd(), "environment": dict(os.environ)}
        line.sendall(json.dumps(request).encode() + b"\n")
        answers = line.makefile()
        kernel = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda n, _: os.kill(kernel, n))
        while not select.select([line], [], [], 1)[0]:
            if os.getppid() != press:
                return 1  # it was killed: our end of the line closes, and the kernel ends
        return int(answers.readline() or 1)


class Parent:
    """The warm parent: a kernel for each connection, and no kernel without one."""

    def __init__(self, door: str):
        self.kernels: dict[int, socket.socket] = {}  # process id -> the connection that asked
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a kernel leaves running becomes our child
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(door)
        self.listener.listen()
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.leave)
        self.selector.register(self.listener, selectors.EVENT_READ, self.fork)
        self.selector.register(woken, selectors.EVENT_READ, self.reap)
        self.selector.register(sys.stdin, selectors.EVENT_READ, self.leave)

    def serve(self) -> None:
        while True:
            for key, _ in self.selector.select():
                key.data(key.fileobj)

    def fork(self, listener: socket.socket) -> None:
        line, _ = listener.accept()
        request = json.loads(line.makefile().readline())
        kernel = os.fork()
        if kernel == 0:
            become_kernel(request)
        line.sendall(f"{kernel}\n".encode())
        self.kernels[kernel] = line
        # Whatever comes after the request is the end: the process beside the kernel is gone.
        self.selector.register(line, selectors.EVENT_READ, lambda _: self.stop(kernel))

    def stop(self, kernel: int) -> None:
        self.selector.unregister(self.kernels[kernel])
        os.kill(kernel, signal.SIGKILL)

    def reap(self, woken: int) -> None:
        os.read(woken, 4096)
        while self.kernels:
            kernel, status = os.waitpid(-1, os.WNOHANG)
            if kernel == 0:
                return
            if kernel not in self.kernels:
                continue  # something that a kernel had left running
            line = self.kernels.pop(kernel)
            self.end_orphans()
            with line:
                if line in self.selector.get_map():
                    self.selector.unregister(line)
                    line.sendall(f"{abs(os.waitstatus_to_exitcode(status))}\n".encode())

    def end_orphans(self) -> None:
        """End what the chapters that are over have left running."""
        for child in psutil.Process().children():
            if child.pid not in self.kernels:
                child.kill()

    def leave(self, *_) -> None:
        """The press is gone, however it went: leave nothing running."""
        for kernel in self.kernels:
            os.kill(kernel, signal.SIGKILL)
            os.waitpid(kernel, 0)
        self.kernels.clear()
        self.end_orphans()
        os._exit(0)  # at once: to take torch apart in order takes a second


def become_kernel(request: dict) -> None:
    """In the fork: run a kernel until it is told to stop."""
    import torch
    from ipykernel.kernelapp import IPKernelApp

    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])  # of the press that asks, which may not be the one that started us
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    IPKernelApp.launch_instance(argv=["-f", request["connection_file"], "--log-level=CRITICAL"])
    os._exit(0)


def warm_up(model: str) -> None:
    """Import what chapters import and open the model, on one thread: OpenMP's pool does not survive a fork."""
    import torch

    torch.set_num_threads(1)
    for name in ("ipykernel.kernelapp", "onematrix.documents", "onematrix.figures", "onematrix.logit_lens"):
        import_module(name)
    import_module("onematrix").load(model).states([0])


if __name__ == "__main__":
    if "-S" in sys.orig_argv:
        sys.exit(ask(*sys.argv[1:]))
    import psutil

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the press's to answer, which then ends us
    door, model = sys.argv[1:]
    warm_up(model)
    parent = Parent(door)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    parent.serve()
