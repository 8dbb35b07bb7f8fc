"""One contender's one run, in a process of its own: `python -m benchmarks.child MODULE FUNCTION ARGUMENTS SPAWNED`.

`FUNCTION(**arguments)` imports and opens what the contender needs and returns the work as a function without
arguments, which returns facts about what it did. Both parts are timed apart. Prints one line of JSON.

A fact `elsewhere_cpu_seconds` is what a process used that this one talks to; it is added to its own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path


def main() -> None:
    module, function, arguments, spawned = sys.argv[1:]
    work = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    startup = time.time() - float(spawned)
    startup_cpu = _cpu()
    idle = _memory("VmRSS")
    _forget_peak()
    began = time.perf_counter()
    facts = work()
    seconds = time.perf_counter() - began
    cpu = _cpu() - startup_cpu + facts.pop("elsewhere_cpu_seconds", 0.0)
    peak = _memory("VmHWM")
    print(
        json.dumps(
            {
                "startup_seconds": startup,
                "startup_cpu_seconds": startup_cpu,
                "seconds": seconds,
                "cpu_seconds": cpu,
                "idle_mb": idle / 1e6,
                "memory_mb": max(0, peak - idle) / 1e6,
                "facts": facts,
            }
        )
    )


def _cpu() -> float:
    """User and system seconds of this process and of the children it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _memory(field: str) -> int:
    """Bytes, from the kernel's own account; 0 where there is none (not Linux)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    for line in status.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    """Makes the peak count from here: imports may have needed more for a moment."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Threads of some libraries take their time to end; the work is over.
    os._exit(0)
