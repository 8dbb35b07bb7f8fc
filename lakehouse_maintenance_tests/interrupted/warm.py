"""A warm process that is forked for every run: all modules loaded, no client opened, one thread alone.

pytest's own process has threads, pools and connections, and a child forked from it may hang on a lock that one of them
held. So the runs are children of a process that does nothing else. Forking it costs a few milliseconds; importing what
an action needs costs two seconds. Which modules those are is learned: each child that ends by itself names what it
imported, and the warm process imports the same before the next fork.

A child is given its function and arguments as a pickle and answers with one, or ends by a SIGKILL that it sends to
itself (counting.py).
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from lakehouse_maintenance_tests.services.processes import dies_with_parent

HUNG_AFTER = 120.0
"""Seconds after which a child counts as hung: its stacks are written down and it is killed. One takes half a second."""

_HEAVY = (
    "pyarrow.parquet",
    "pyarrow.dataset",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "lakehouse_maintenance.lakehouse",
    "lakehouse_maintenance.removal",
)
_STARTS_A_THREAD = ("duckdb", "_duckdb")
"""Never imported before the fork; a child that needs one imports it."""

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended. `killed`: by its own SIGKILL; `said`: its standard error, for people."""

    killed: bool
    value: Any = None
    error: str | None = None
    said: str = ""
    seconds: float = 0.0

    def result(self) -> Any:
        """What the function returned. Raises RuntimeError where it raised or was killed."""
        if self.killed or self.error is not None:
            raise RuntimeError(f"the child {'was killed' if self.killed else 'failed'}: {self.error}\n{self.said}")
        return self.value


@dataclass
class WarmProcess:
    """Starts at the first run. One run at a time."""

    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def run(self, function: Callable[..., Any], *args: Any) -> Ended:
        """Calls a function of a module (not a lambda, not a closure) in a forked child and waits for its end."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        _send(process.stdin, pickle.dumps((function, args)))
        answer = _receive(process.stdout)
        if answer is None:
            raise RuntimeError(f"the warm process ended with code {process.wait()}")
        ended: Ended = pickle.loads(answer)
        return ended

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            root = str(Path(__file__).parents[2])
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]),
                # Memory allocators and linear algebra would start threads at their import.
                "JE_ARROW_MALLOC_CONF": "background_thread:false",
                "OPENBLAS_NUM_THREADS": "1",
            }
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=root,
                env=environment,
                preexec_fn=dies_with_parent(),  # noqa: PLW1509  # one system call, no lock
            )
        return self._process


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    data = stream.read(length)
    return data if len(data) == length else None


def main() -> None:
    """Serves one request after the other until the pipe is closed."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what anybody prints is no answer
    _import(_HEAVY)
    while (request := _receive(requests)) is not None:
        ended, imported = _fork(request)
        _send(answers, pickle.dumps(ended))
        _import(imported)


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        if name.partition(".")[0] not in _STARTS_A_THREAD:
            with contextlib.suppress(Exception):  # made at run time, or not meant to be imported twice
                importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1
    if threads > 1:
        raise RuntimeError(f"the warm process has {threads} threads: a forked child could hang on what they hold")
    gc.collect()
    gc.freeze()


def _fork(request: bytes) -> tuple[Ended, tuple[str, ...]]:
    started = time.monotonic()
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _child(request, writing, said.fileno())
        os.close(writing)
        answer, hung = _read_all(reading, pid)
        _, status = os.waitpid(pid, 0)
        said.seek(0)
        text = said.read().decode(errors="replace")[-20_000:]
    seconds = time.monotonic() - started
    if hung:
        return Ended(False, None, f"the child hung for {HUNG_AFTER:.0f} seconds", text, seconds), ()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Ended(True, answer.decode(), None, text, seconds), ()
    if status != 0 or not answer:
        return Ended(False, None, f"the child ended with wait status {status}", text, seconds), ()
    value, error, imported = pickle.loads(answer)
    return Ended(False, value, error, text, seconds), imported


def _read_all(descriptor: int, pid: int) -> tuple[bytes, bool]:
    """Until the child's end of the pipe is closed, by its end too; whether it had to be killed for that."""
    parts: list[bytes] = []
    hung = False
    give_up = time.monotonic() + HUNG_AFTER
    while True:
        if not hung and not select.select([descriptor], [], [], max(0.0, give_up - time.monotonic()))[0]:
            hung = True
            os.kill(pid, signal.SIGUSR1)  # it writes its stacks
            time.sleep(1)
            os.kill(pid, signal.SIGKILL)
        part = os.read(descriptor, 1 << 16)
        if not part:
            os.close(descriptor)
            return b"".join(parts), hung
        parts.append(part)


def _child(request: bytes, answer_to: int, said: int) -> None:
    """Never returns: no clean-up of the parent's is ours to run."""
    global _last_words_to
    _last_words_to = answer_to
    try:
        die = dies_with_parent()
        if die is not None:
            die()
        os.dup2(said, 1)
        os.dup2(said, 2)
        faulthandler.register(signal.SIGUSR1, file=2)
        os.fsync = lambda fd: None  # what a killed process wrote stays: only a machine that stops loses it
        before = set(sys.modules)
        value, error = None, None
        try:
            function, args = pickle.loads(request)
            value = function(*args)
        except BaseException:
            error = traceback.format_exc()
        imported = tuple(name for name in sys.modules if name not in before)
        with os.fdopen(answer_to, "wb") as stream:
            stream.write(pickle.dumps((value, error, imported)))
        sys.stderr.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


_last_words_to: int | None = None


def last_words(text: str) -> None:
    """Of a child that is about to kill itself: what `Ended.value` will be."""
    if _last_words_to is not None:
        os.write(_last_words_to, text.encode())
