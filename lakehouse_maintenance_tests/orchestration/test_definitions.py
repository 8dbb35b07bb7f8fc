"""Loading: what Dagster shows before anything runs, and that showing it touches nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse_maintenance.orchestration.building import build_definitions
from lakehouse_maintenance.orchestration.naming import MAINTAINED_KEY, PLAN_KEY, STATE_KEY
from lakehouse_maintenance.orchestration.partitions import TABLES_NAME
from lakehouse_maintenance_tests.orchestration.lake import Lake, facts, make_home

INVENTORY_KEY = dg.AssetKey(["lakehouse", "main", "sales", "inventory"])
ORPHANS_KEY = dg.AssetKey(["lakehouse", "main", "sales", "orphans"])
FOLDER_KEYS = [
    dg.AssetKey(["lakehouse", "main", "sales", name]) for name in ("untracked_candidates", "review", "removed")
]
ALL_KEYS = {STATE_KEY, PLAN_KEY, MAINTAINED_KEY, INVENTORY_KEY, ORPHANS_KEY, *FOLDER_KEYS}
ROOT = Path(__file__).parents[2]
WORKSPACE = ROOT / "workspace.yaml"
DAGSTER = Path(sys.executable).parent / "dagster"
HEAVY = ("pyiceberg", "pyarrow", "obstore", "pyspark", "dagster_pyspark", "duckdb", "fastavro", "numpy")

# Prints which heavy modules loading imported, and which sockets and databases it opened.
LOAD = f"""
import json, sys
seen = []
def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen"):
        seen.append(event)
import dagster
sys.addaudithook(hook)
import lakehouse_maintenance.definitions
print(json.dumps([[name for name in {HEAVY!r} if name in sys.modules], seen]))
"""


def environment(**variables: str) -> dict[str, str]:
    """The process's own, without what could name another configuration."""
    path = os.pathsep.join([variables.pop("PYTHONPATH", ""), str(ROOT)]).strip(os.pathsep)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DAGSTER_", "LAKEHOUSE_"))}
    return {**kept, "PYTHONPATH": path, "NO_COLOR": "1", **variables}


def write(folder: Path, text: str) -> Path:
    """A lakehouse.yaml."""
    file = folder / "lakehouse.yaml"
    file.write_text(text)
    return file


def remote(uri: str) -> str:
    """A configuration of a catalog that needs a credential nobody has set."""
    return (
        f'catalogs:\n  main: {{type: rest, uri: "{uri}", token: "${{CATALOG_TOKEN}}"}}\ndatabases: {{main: [sales]}}\n'
    )


def test_loading_imports_no_engine_and_opens_nothing(tmp_path: Path) -> None:
    config = write(tmp_path, "catalogs:\n  main: {type: sql, uri: 'sqlite:///catalog.db', warehouse: wh}\n")

    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        env=environment(LAKEHOUSE_MAINTENANCE_CONFIG=str(config)),
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )

    assert json.loads(done.stdout) == [[], []]
    assert list(tmp_path.iterdir()) == [config]


def test_what_dagster_shows(tmp_path: Path) -> None:
    definitions = build_definitions(write(tmp_path, remote("http://127.0.0.1:9")))
    graph = definitions.resolve_asset_graph()

    assert graph.get_all_asset_keys() == ALL_KEYS
    assert graph.get(PLAN_KEY).parent_keys == {STATE_KEY}
    assert graph.get(MAINTAINED_KEY).parent_keys == {PLAN_KEY}
    candidates, review, removed = FOLDER_KEYS
    assert graph.get(review).parent_keys == {candidates}
    assert graph.get(removed).parent_keys == {review}
    names = {"healthy", "rows_unchanged", "live_files_present", "all_tables_measured", "all_tables_searched"}
    assert {key.name for key in graph.asset_check_keys} == {*names, "candidates_reviewed"}
    for key in (STATE_KEY, PLAN_KEY, MAINTAINED_KEY):
        node = graph.get(key)
        assert isinstance(node.partitions_def, dg.DynamicPartitionsDefinition)
        assert node.partitions_def.name == TABLES_NAME
        assert node.group_name == "lakehouse_maintenance"
        assert node.kinds == {"iceberg"}
        assert node.description
    assert {job.name for job in definitions.resolve_all_job_defs()} >= {"register_tables", "maintain_tables"}


def test_it_merges_into_definitions_that_have_an_executor(tmp_path: Path) -> None:
    ours = build_definitions(write(tmp_path, remote("http://127.0.0.1:9")))

    merged = dg.Definitions.merge(ours, dg.Definitions(executor=dg.multiprocess_executor))

    dg.Definitions.validate_loadable(merged)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("databasess: {}", "unknown key databasess"),
        ("engine: {memory_limit: much}", "engine.memory_limit"),
        ("engine: {memory_limit: '${MEMORY}'}", "needs the environment variable MEMORY"),
        ("catalogs: {main: {type: rest, uri: '${URI}'}}\ndatabasess: {}", "unknown key databasess"),
        ("engine: [", "line 1"),
    ],
)
def test_a_wrong_configuration_is_one_error_that_names_the_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError) as caught:
        build_definitions(write(tmp_path, text))

    assert named in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_without_a_file_it_loads_and_runs_say_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    monkeypatch.delenv("LAKEHOUSE_MAINTENANCE_CONFIG", raising=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    job = build_definitions().resolve_job_def("register_tables")

    result = job.execute_in_process(instance=lake.instance, raise_on_error=False)

    data = result.failure_data_for_node("add_table_partitions")
    assert data is not None
    assert data.user_failure_data is not None
    assert "lakehouse-maintenance init" in (data.user_failure_data.description or "")
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="no configuration at"):
        build_definitions(empty / "lakehouse.yaml")


def test_a_run_without_its_credential_names_the_variable(tmp_path: Path, lake: Lake) -> None:
    lake.config.write_text(remote("http://127.0.0.1:9"))
    job = build_definitions(lake.config).resolve_job_def("register_tables")

    result = job.execute_in_process(instance=lake.instance, raise_on_error=False)

    data = result.failure_data_for_node("add_table_partitions")
    assert data is not None
    assert data.user_failure_data is not None
    assert "CATALOG_TOKEN" in (data.user_failure_data.description or "")


def test_the_command_line_of_dagster_materializes_a_table(lake: Lake) -> None:
    name = lake.table_with_small_files()
    rows = lake.rows(name)
    lake.instance.add_dynamic_partitions(TABLES_NAME, [name.partition_key])

    target = ["--select", "group:lakehouse_maintenance", "--partition", name.partition_key]
    done = subprocess.run(
        [DAGSTER, "asset", "materialize", "-m", "lakehouse_maintenance.definitions", *target],
        env=environment(LAKEHOUSE_MAINTENANCE_CONFIG=str(lake.config), DAGSTER_HOME=str(lake.home)),
        cwd=lake.folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert facts(lake.latest("maintained", name))["status"] == "done"
    assert lake.rows(name) == rows


@contextmanager
def listening() -> Iterator[tuple[int, list[object]]]:
    """A catalog's port, and who called there."""
    calls: list[object] = []
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        try:
            while True:
                connection, address = server.accept()
                calls.append(address)
                connection.close()
        except OSError:
            return

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1], calls
    finally:
        server.close()


@contextmanager
def dagster_dev(folder: Path, **variables: str) -> Iterator[str]:
    """`dagster dev` on the workspace of the repository; yields the address of its GraphQL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "dev.log").open("wb") as log:
        process = subprocess.Popen(
            [DAGSTER, "dev", "-w", WORKSPACE, "-h", "127.0.0.1", "-p", str(port)],
            env=environment(DAGSTER_HOME=str(make_home(folder)), **variables),
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield f"http://127.0.0.1:{port}/graphql"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ask(address: str, query: str) -> Any:
    """The answer of Dagster's GraphQL, as its interface asks it; waits until it is there."""
    request = urllib.request.Request(
        address, json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    for _ in range(2_000):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["data"]
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(address)


def spark_trap(folder: Path) -> Path:
    """A folder for PYTHONPATH whose `pyspark` leaves a mark, the file `imported`, when anybody imports it."""
    package = folder / "trap" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from pathlib import Path\nPath(__file__).parents[1].joinpath('imported').touch()\n"
    )
    return package.parent


ENTRIES = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
  __typename
  ... on PythonError { message }
  ... on RepositoryLocation { repositories { assetNodes { assetKey { path } } } }
} } } } }"""

RELOAD = """mutation { reloadRepositoryLocation(repositoryLocationName: "lakehouse_maintenance") {
  ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
} }"""


@pytest.mark.requirement("DG-01")
def test_dagster_dev_shows_the_assets_without_a_catalog_and_one_error_for_a_wrong_key(tmp_path: Path) -> None:
    trap = spark_trap(tmp_path)
    with listening() as (port, calls):
        config = write(tmp_path, remote(f"http://127.0.0.1:{port}"))
        with dagster_dev(tmp_path, LAKEHOUSE_MAINTENANCE_CONFIG=str(config), PYTHONPATH=str(trap)) as address:
            entries = ask(address, ENTRIES)["workspaceOrError"]["locationEntries"]
            (repository,) = entries[0]["locationOrLoadError"]["repositories"]
            paths = {tuple(node["assetKey"]["path"]) for node in repository["assetNodes"]}
            assert paths == {tuple(key.path) for key in ALL_KEYS}

            config.write_text(config.read_text() + "databasess: {}\n")
            loaded = ask(address, RELOAD)["reloadRepositoryLocation"]["locationOrLoadError"]
        assert calls == []
        assert not (trap / "imported").exists()
    assert loaded["__typename"] == "PythonError"
    in_the_interface = loaded["message"]
    assert "unknown key databasess" in in_the_interface

    validated = subprocess.run(
        [DAGSTER, "definitions", "validate", "-w", WORKSPACE],
        env=environment(LAKEHOUSE_MAINTENANCE_CONFIG=str(config), DAGSTER_HOME=str(tmp_path / "dagster_home")),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert validated.returncode == 1
    on_the_command_line = validated.stdout + validated.stderr
    assert on_the_command_line.count("unknown key databasess") == 1
