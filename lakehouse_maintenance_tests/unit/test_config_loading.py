"""Finding, reading and resolving `lakehouse.yaml`."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from lakehouse_maintenance.config import LakehouseConfig, MinGain, Trigger, load_config
from lakehouse_maintenance.model.errors import ConfigurationError
from lakehouse_maintenance.model.names import TableName

EVERYTHING = """
catalogs:
  main:
    type: sql
    uri: sqlite:///catalog.db
    warehouse: file:///data/warehouse
databases: {main: [analytics, sales]}
delta:
  lake:
    roots: [s3://lake/delta/]
    tables: {orders: s3://lake/orders}
    storage_options: {}
sources:
  clicks:
    path: s3://landing/clicks/
    checkpoints: [s3://state/checkpoints/clicks]
    checkpoint_roots: [s3://state/checkpoints/]
    cloudFiles.cleanSource: MOVE
    cloudFiles.cleanSource.retentionDuration: 14 days
    cloudFiles.cleanSource.moveDestination: s3://landing/archive/clicks/
    cloudFiles.cleanSource.waitForCompletion: false
    only_after_new_batch: true
    prove_against: main.analytics.clicks
engine: {use: auto, memory_limit: 4GB, spark_above: 200GB}
spark: {master: "local[*]", remote: null, conf: {}, procedures_delete: false}
state: {url: .lakehouse-maintenance}
audit: {catalog: main, namespace: iomete_system_db}
jobs:
  data_compaction: {file: application.conf, schedule: "0 12 * * 0"}
  untracked_table_folders: {file: application.json, schedule: "0 3 * * *"}
readers: {longest: 24h, checkpoints: []}
volumes: {}
quarantine: {prefix: _lakehouse_maintenance_quarantine}
limits: {removed_share: 0.3, removed_files: 100000, first_run_files: 1000}
shared_locations: []
policies:
  default:
    rewrite_data_files: {trigger: {of: small_files, base: 20, scale: 0.1, size: data_files}, min_gain: 5 files, cooldown: 1h, settle: 0s, options: {target-file-size-bytes: 128MB}}
    expire_snapshots:   {trigger: {of: expired_snapshots, base: 10}, older_than: 5 days, retain_last: 10, allow_short_retention: false}
    rewrite_manifests:  {trigger: {of: manifests, base: 100}}
    remove_orphan_files: {every: 7 days, older_than: 3 days, review: false}
    untracked_folders:  {every: 7 days, older_than: 24h, max_candidates: 10, exclude_paths: [], review: true, removal: quarantine, purge_after: 30 days}
    vacuum:             {every: 7 days, retention: 168h}
    budget: {bytes_per_day: 1TB}
    window: {start: "01:00", duration: 5h, timezone: UTC}
    engine: auto
  databases: {main.analytics: {expire_snapshots: {older_than: 30 days}}}
  tables: {main.analytics.events: {rewrite_data_files: {strategy: sort, sort_order: "user_id ASC NULLS LAST"}}}
"""  # noqa: E501

SMALL = "catalogs: {main: {type: sql, uri: 'sqlite:///catalog.db', warehouse: warehouse}}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "lakehouse.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str, **environment: str) -> LakehouseConfig:
    return load_config(write(folder, text), environment=environment)


def test_every_key_loads(tmp_path: Path) -> None:
    config = load(tmp_path, EVERYTHING)
    assert config.groups == ("main", "lake")
    assert config.databases == {"main": ("analytics", "sales")}
    assert config.engine.memory_limit == 4 << 30
    assert config.readers.longest == timedelta(hours=24)
    assert config.sources["clicks"].clean_source == "MOVE"
    policy = config.policy_for(TableName("main", ("analytics",), "events"))
    assert policy.rewrite_data_files.trigger == (Trigger(of="small_files", base=20, scale=0.1, size="data_files"),)
    assert policy.rewrite_data_files.options == {"target-file-size-bytes": "128MB"}
    assert policy.expire_snapshots.older_than == timedelta(days=30)
    assert policy.budget is not None
    assert policy.budget.bytes_per_day == 1 << 40


def test_defaults_where_nothing_is_written(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    policy = config.policy_for(TableName("main", ("a",), "t"))
    assert policy.rewrite_data_files.trigger == (
        Trigger(of="small_files", base=20, scale=0.1, size="data_files"),
        Trigger(of="delete_files", base=10, scale=0.05, size="data_files"),
    )
    assert policy.rewrite_data_files.min_gain == MinGain(files=5)
    assert policy.rewrite_data_files.options == {}
    assert (policy.window, policy.budget) == (None, None)
    assert policy.untracked_folders.removal == "quarantine"
    assert config.audit.catalog is None


def test_paths_start_from_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        SMALL
        + "delta: {lake: {roots: [delta/, s3://lake/delta/]}}\n"
        + "state: {url: state, cache: cache}\njobs: {data_compaction: {file: application.conf}}\n"
    )
    path = write(tmp_path, text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    config = load_config("../lakehouse.yaml")
    base = Path("../lakehouse.yaml").absolute().parent
    properties = config.catalogs["main"].properties()
    assert Path(properties["uri"].removeprefix("sqlite:///")).resolve() == tmp_path / "catalog.db"
    assert Path(properties["warehouse"]).resolve() == tmp_path / "warehouse"
    assert config.base == base
    config = load_config(path)
    assert config.catalogs["main"].properties()["uri"] == f"sqlite:///{tmp_path}/catalog.db"
    assert config.delta["lake"].roots == (f"{tmp_path}/delta/", "s3://lake/delta/")
    assert config.state.url == str(tmp_path / "state")
    assert config.state.cache == str(tmp_path / "cache")
    assert config.jobs.data_compaction is not None
    assert config.jobs.data_compaction.file == str(tmp_path / "application.conf")


@pytest.mark.parametrize(
    ("properties", "uri", "warehouse"),
    [
        ({"type": "sql", "uri": "sqlite:////abs/c.db", "warehouse": "/abs/w"}, "sqlite:////abs/c.db", "/abs/w"),
        ({"type": "sql", "uri": "sqlite:///:memory:", "warehouse": "s3://b/w"}, "sqlite:///:memory:", "s3://b/w"),
        ({"uri": "sqlite+pysqlite:///sub/c.db?timeout=5"}, "sqlite+pysqlite:///BASE/sub/c.db?timeout=5", None),
        ({"type": "rest", "uri": "https://c.example.com", "warehouse": "prod"}, "https://c.example.com", "prod"),
        ({"uri": "postgresql://u@h/db", "warehouse": "wh"}, "postgresql://u@h/db", "BASE/wh"),
    ],
)
def test_only_paths_are_resolved(tmp_path: Path, properties: dict[str, str], uri: str, warehouse: str | None) -> None:
    lines = "".join(f"    {key}: {value!r}\n" for key, value in properties.items())
    found = load(tmp_path, f"catalogs:\n  main:\n{lines}").catalogs["main"].properties()
    assert found["uri"] == uri.replace("BASE", str(tmp_path))
    assert found.get("warehouse") == (None if warehouse is None else warehouse.replace("BASE", str(tmp_path)))


def test_properties_keep_the_text_that_was_written(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "catalogs:\n  main:\n    type: glue\n    glue.id: 012345678901\n    s3.x: 1.10\n    a: 1e5\n    b: yes\n"
        "    c: 2026-01-01\n    d: 12:30:00\n    e: off\n    f: True\n",
    )
    assert config.catalogs["main"].properties() == {
        "type": "glue",
        "glue.id": "012345678901",
        "s3.x": "1.10",
        "a": "1e5",
        "b": "yes",
        "c": "2026-01-01",
        "d": "12:30:00",
        "e": "off",
        "f": "True",
    }


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        load_config(environment={})
    assert "lakehouse-maintenance init" in str(caught.value.hint)
    here = write(tmp_path, SMALL)
    other = tmp_path / "other.yaml"
    other.write_text(SMALL)
    assert load_config(environment={}).path == here
    assert load_config(environment={"LAKEHOUSE_MAINTENANCE_CONFIG": str(other)}).path == other
    assert load_config(here, environment={"LAKEHOUSE_MAINTENANCE_CONFIG": str(other)}).path == here
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml"):
        load_config("nowhere.yaml")
    with pytest.raises(ConfigurationError, match="is a folder"):
        load_config(tmp_path)


def test_substitution(tmp_path: Path) -> None:
    text = (
        "catalogs: {main: {type: sql, uri: '${URI}', warehouse: '${WAREHOUSE:-warehouse}', x: 'a$${B}', y: $5}}\n"
        "limits: {removed_files: '${FILES}', removed_share: '${SHARE:-0.5}'}\n"
        "policies: {default: {expire_snapshots: {allow_short_retention: '${SHORT}', older_than: '${AGE:-}5 days'}}}\n"
    )
    config = load(tmp_path, text, URI="sqlite:////x/c.db", FILES="7", SHORT="true", WAREHOUSE="")
    properties = config.catalogs["main"].properties()
    assert properties["uri"] == "sqlite:////x/c.db"
    assert properties["warehouse"] == str(tmp_path / "warehouse")
    assert (properties["x"], properties["y"]) == ("a${B}", "$5")
    assert (config.limits.removed_files, config.limits.removed_share) == (7, 0.5)
    assert config.policies.default.expire_snapshots.allow_short_retention is True


def test_an_unset_variable_names_itself_and_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, "catalogs:\n  main:\n    type: sql\n    uri: ${NO_SUCH}\n")
    assert caught.value.field == "catalogs.main.uri"
    assert "NO_SUCH" in caught.value.message
    assert "line 4" in caught.value.message
    with pytest.raises(ConfigurationError, match="without the name of a variable"):
        load(tmp_path, "catalogs: {main: {type: sql, uri: '${'}}\n")


def test_variables_are_not_read_from_what_variables_hold(tmp_path: Path) -> None:
    config = load(tmp_path, "catalogs: {main: {type: sql, x: '${A}'}}\n", A="${B} $${C}")
    assert config.catalogs["main"].properties()["x"] == "${B} $${C}"


def test_empty_sections_and_anchors(tmp_path: Path) -> None:
    text = SMALL + ("policies:\n  default:\nengine:\nlimits:\n  removed_files:\n")
    assert load(tmp_path, text).limits.removed_files == 100_000
    text = SMALL + (
        "policies:\n"
        "  databases:\n"
        "    main.a: {expire_snapshots: &e {older_than: 9 days, retain_last: 3}}\n"
        "    main.b: {expire_snapshots: {<<: *e, retain_last: 4}}\n"
    )
    policy = load(tmp_path, text).policy_for_database("main.b")
    assert (policy.expire_snapshots.older_than, policy.expire_snapshots.retain_last) == (timedelta(days=9), 4)


def test_importing_the_configuration_imports_nothing_heavy() -> None:
    program = (
        "import sys, lakehouse_maintenance.config; "
        "print([m for m in ('yaml', 'pyarrow', 'pyiceberg', 'obstore', 'duckdb', 'pyspark', 'fastavro', 'dagster')"
        " if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
