"""Tools that do the same work: Spark on this machine, others each in a Python of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.running import ROOT

ZAMBONI = "iceberg-zamboni==0.7.0"
COMPACTION = "iceberg-compaction==202604.9.0rc0"


class LocalSpark:
    """A warm session on as many threads as there are cores; catalog `main` is the run's SQLite catalog.

    `run`: folder with `catalog.db`, and `warehouse` where that is not named.
    """

    def __init__(self, run: str, jars: str, warehouse: str | None = None) -> None:
        from pyspark.sql import SparkSession

        prefix = "spark.sql.catalog.main"
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.local.dir": f"{run}/spark",
            # The default of 200 is for clusters; on one machine it is mostly waiting.
            "spark.sql.shuffle.partitions": str(os.cpu_count()),
            "spark.jars": jars,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": f"jdbc:sqlite:{run}/catalog.db",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": f"file://{warehouse or run + '/warehouse'}",
        }
        builder = SparkSession.builder.master("local[*]").appName("benchmark")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self._java = int(self.session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        self._before = cpu_seconds(self._java)

    def cpu_seconds(self) -> float:
        """What Java used since the session was made: it is not in this process's own account."""
        return cpu_seconds(self._java) - self._before


def cpu_seconds(process: int) -> float:
    """User and system seconds of a process that runs."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spark_jars(say: Callable[[str], None]) -> list[Path]:
    """Empty where Spark cannot run here."""
    jars = sorted((ROOT / "build" / "jars").glob("*.jar"))
    if shutil.which("java") is None or importlib.util.find_spec("pyspark") is None or not jars:
        say("  without Spark: needs Java, pyspark (extra spark) and Iceberg's jars (make jars)")
        return []
    return jars


def environment(folder: Path, requirement: str, say: Callable[[str], None]) -> Path | None:
    """A Python that has the peer, in an environment of its own: it is nothing that this project needs."""
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        say(f"  installing {requirement}")
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", requirement], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"  without {requirement}: it could not be installed ({error})")
            return None
        ready.touch()
    return python


def start_rest(run: str, warehouse: str) -> tuple[subprocess.Popen[bytes], str]:
    """Iceberg's REST test catalog over the run's SQLite catalog: for peers without SQL. Process and URI."""
    import socket
    import time

    folder = ROOT / "build" / "iceberg-rest"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    java = ["java", "-cp", f"{folder}/classes:{folder}/*", "org.apache.iceberg.rest.Main", str(port)]
    settings = [f"uri=jdbc:sqlite:{run}/catalog.db", f"warehouse=file://{warehouse}"]
    process = subprocess.Popen([*java, *settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://127.0.0.1:{port}/main"
        time.sleep(0.1)
    process.kill()
    raise RuntimeError("Iceberg's REST catalog does not start")
