"""Processes for the tests of state: something to compete with, and to kill. Run as a script by `start_worker`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lakehouse_maintenance.model.errors import LeaseHeldError
from lakehouse_maintenance.model.events import Event
from lakehouse_maintenance.state import State, open_state


@contextmanager
def start_worker(verb: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a function of this file in a real process, killed at the end; its standard output is a pipe."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, __file__, verb, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def contend(place: str, folder: str, cycles: str) -> None:
    """Take the lease again and again; under it, add one to a number in a way that only exclusion makes safe."""
    leases = _open(place).leases
    counter = Path(folder, "counter")
    for _ in range(int(cycles)):
        while True:
            try:
                lease = leases.acquire("c.d.t", run_id=str(os.getpid()), owner="worker", ttl=timedelta(seconds=60))
                break
            except LeaseHeldError:
                time.sleep(0.001)
        with lease:
            lease.check()
            value = int(counter.read_text())
            time.sleep(0.0002)
            with Path(folder, "fences").open("a") as fences:
                fences.write(f"{lease.fence}\n")
            counter.write_text(str(value + 1))


def add(place: str, times: str) -> None:
    """Add one to the value `n`, by compare-and-swap alone."""
    state = _open(place)
    left = int(times)
    while left:
        stored = state.get("n")
        value, version = (b"0", None) if stored is None else stored
        if state.put("n", str(int(value) + 1).encode(), version) is not None:
            left -= 1


def hold(place: str, ttl: str) -> None:
    """Take the lease, say so, and keep it until killed."""
    leases = _open(place).leases
    lease = leases.acquire("c.d.t", run_id="victim", owner="worker", ttl=timedelta(seconds=float(ttl)))
    print(lease.fence, flush=True)
    time.sleep(3600)


def write(place: str) -> None:
    """Record intents without end, and say each once it is recorded."""
    journal = _open(place).journal
    number = 0
    while True:
        at = datetime.now(UTC).isoformat()
        journal.record(Event(at, "victim", "c.d.t", f"action {number}", "intent", details={"pad": "x" * 200_000}))
        print(number, flush=True)
        number += 1


def _open(place: str) -> State:
    """`place`: JSON with the state's url and properties."""
    return open_state(**json.loads(place))


if __name__ == "__main__":
    {"contend": contend, "add": add, "hold": hold, "write": write}[sys.argv[1]](*sys.argv[2:])
