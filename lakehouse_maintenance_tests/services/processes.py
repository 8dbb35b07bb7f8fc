"""Processes that tests start: ports of their own, an end that comes even when the test process is killed, and Java."""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

JAVA_VERSIONS = (17, 21)


def free_port(first: int = 15_000, last: int = 22_000) -> int:
    """A port that is free now; random, so that workers rarely meet."""
    while True:
        port = random.randrange(first, last)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """True where a server could listen there now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    """True where somebody answers."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def dies_with_parent() -> Callable[[], None] | None:
    """For Popen's preexec_fn. On Linux, lets the kernel end the server when the test process is killed: teardown does
    not run then."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(1, signal.SIGKILL)


def java() -> str | None:
    """The Java of JAVA_HOME, or else of PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")


def why_no_java() -> str | None:
    """One line that says what is missing, or None where a Java that fits is there."""
    command = java()
    version = None
    if command is not None:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
        match = re.search(r'version "(\d+)', told)
        version = int(match.group(1)) if match else None
    if version in JAVA_VERSIONS:
        return None
    return f"needs Java 17 or 21: found {'none' if version is None else f'Java {version}'}"
