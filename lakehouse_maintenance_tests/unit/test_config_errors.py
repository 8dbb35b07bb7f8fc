"""What is wrong with a `lakehouse.yaml` is told by dotted key, line, and what is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehouse_maintenance.config import load_config
from lakehouse_maintenance.model.errors import ConfigurationError

SMALL = "catalogs: {main: {type: sql, uri: 'sqlite:///catalog.db', warehouse: warehouse}}\n"
POLICY = SMALL + "policies: {default: {rewrite_data_files: {%s}}}\n"


def refused(folder: Path, text: str | bytes) -> ConfigurationError:
    path = folder / "lakehouse.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigurationError) as caught:
        load_config(path, environment={"NUMBER": "many"})
    assert str(path) in caught.value.message
    assert caught.value.code == "bad_configuration"
    # The chain of causes would print inputs in a traceback.
    assert caught.value.__cause__ is None
    return caught.value


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        (SMALL + "engin: {use: auto}\n", "engin", "'engine'"),
        (SMALL + "engine: {us: auto}\n", "engine.us", "'use'"),
        (SMALL + "engine: {memory-limit: 1GB}\n", "engine.memory-limit", "'memory_limit'"),
        (SMALL + "zzz: 1\n", "zzz", "nearest known name"),
        (
            SMALL + "policies: {tables: {main.a.vacuum: {rewrite_data_file: {}}}}\n",
            "policies.tables.main.a.vacuum.rewrite_data_file",
            "'rewrite_data_files'",
        ),
        (POLICY % "trigger: {off: small_files, base: 1}", "policies.default.rewrite_data_files.trigger.off", "'of'"),
        (
            SMALL + "sources: {s: {path: x, cloudFiles.cleansource: MOVE}}\n",
            "sources.s.cloudFiles.cleansource",
            "'cloudFiles.cleanSource'",
        ),
        (SMALL + "jobs: {data_compaction: {files: x}}\n", "jobs.data_compaction.files", "'file'"),
    ],
)
def test_unknown_keys_name_the_nearest(tmp_path: Path, text: str, field: str, said: str) -> None:
    error = refused(tmp_path, text)
    assert error.field == field
    assert said in str(error.hint)


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        (SMALL + "jobs: {data_compaction: {}}\n", "jobs.data_compaction.file", "add file"),
        (SMALL + "engine: {memory_limit: lots}\n", "engine.memory_limit", "'lots' is not a size"),
        (SMALL + "engine: {memory_limit: 0}\n", "engine.memory_limit", "greater than 0"),
        (SMALL + "engine: {memory_limit: [1]}\n", "engine.memory_limit", "a list"),
        (SMALL + "engine: auto\n", "engine", "a mapping of keys to values"),
        (SMALL + "engine: {use: duckdb}\n", "engine.use", "auto, embedded or spark"),
        (SMALL + "spark: {procedures_delete: maybe}\n", "spark.procedures_delete", "true or false"),
        (SMALL + "limits: {removed_files: some}\n", "limits.removed_files", "a whole number"),
        (SMALL + "limits: {removed_share: 3}\n", "limits.removed_share", "less than or equal to 1"),
        (SMALL + "limits: {removed_files: '${NUMBER}'}\n", "limits.removed_files", "${NUMBER}"),
        (SMALL + "databases: {main: analytics}\n", "databases.main", "a list"),
        (SMALL + "readers: {longest: 24}\n", "readers.longest", "'24' is not a duration"),
        (SMALL + "jobs: {data_compaction: {file: a, schedule: daily}}\n", "jobs.data_compaction.schedule", "cron"),
        (SMALL + "quarantine: {prefix: a/b}\n", "quarantine.prefix", "one name"),
        (POLICY % "min_gain: 5", "policies.default.rewrite_data_files.min_gain", "5 files, 1GB"),
        (POLICY % "strategy: hilbert", "policies.default.rewrite_data_files.strategy", "zorder"),
        (
            POLICY % "trigger: {of: smal_files, base: 1}",
            "policies.default.rewrite_data_files.trigger.of",
            "small_files",
        ),
        (
            POLICY % "trigger: [{of: manifests, base: x}]",
            "policies.default.rewrite_data_files.trigger.0.base",
            "number",
        ),
        (POLICY % "trigger: {of: manifests, base: 1, scale: 1}", "policies.default.rewrite_data_files.trigger", "size"),
        (
            POLICY % "options: {min-input-file: 5}",
            "policies.default.rewrite_data_files.options.min-input-file",
            "'min-input-files'",
        ),
        (
            POLICY % "options: {min-input-files: few}",
            "policies.default.rewrite_data_files.options.min-input-files",
            "whole number from 1",
        ),
        (
            POLICY % "options: {rewrite-all: 3}",
            "policies.default.rewrite_data_files.options.rewrite-all",
            "true or false",
        ),
        (POLICY % "strategy: zorder", "policies.default.rewrite_data_files.sort_order", "user_id, country"),
        (SMALL + "policies: {default: {window: {start: '25:00'}}}\n", "policies.default.window.start", "01:00"),
        (SMALL + "policies: {default: {window: {duration: 25h}}}\n", "policies.default.window.duration", "24h"),
        (
            SMALL + "policies: {default: {window: {timezone: Europe/Berln}}}\n",
            "policies.default.window.timezone",
            "Europe/Berlin",
        ),
        (
            SMALL + "policies: {default: {untracked_folders: {exclude_paths: [a/b]}}}\n",
            "policies.default.untracked_folders.exclude_paths.0",
            "s3://bucket/folder",
        ),
        ("catalogs: {main: {type: sqll}}\n", "catalogs.main.type", "'sql'"),
        ("catalogs: {main: {warehouse: x}}\n", "catalogs.main", "type and uri"),
        ("catalogs: {main: }\n", "catalogs.main", "a mapping of keys to values"),
        ("catalogs: {main: {type: sql, s3: {region: x}}}\n", "catalogs.main.s3", "s3.region"),
        (SMALL + "sources: {s: {path: x, cloudFiles.cleanSource: MOVE}}\n", "sources.s", "moveDestination"),
        (
            SMALL + "sources: {s: {path: x, cloudFiles.cleanSource: DELETE, "
            "cloudFiles.cleanSource.retentionDuration: 7 days}}\n",
            "sources.s",
            "more than 7 days",
        ),
    ],
)
def test_wrong_values_name_key_and_what_is_accepted(tmp_path: Path, text: str, field: str, said: str) -> None:
    error = refused(tmp_path, text)
    assert error.field == field
    assert said in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("engine: {use: auto}\n", "catalogs", "nothing to maintain"),
        ("", "catalogs", "nothing to maintain"),
        ("catalogs: {sources: {type: sql}}\n", "catalogs.sources", "taken"),
        ("catalogs: {overview: {type: sql}}\n", "catalogs.overview", "taken"),
        (SMALL + "delta: {main: {}}\n", "delta.main", "names a catalog and a group"),
        (SMALL + "databases: {mian: ['*']}\n", "databases.mian", "not a configured catalog"),
        (SMALL + "databases: {main: ['a*']}\n", "databases.main.0", "pattern"),
        (SMALL + "audit: {catalog: other}\n", "audit.catalog", "not a configured catalog"),
        (SMALL + "policies: {databases: {mian.a: {}}}\n", "policies.databases.mian.a", "not a configured catalog"),
        (SMALL + "policies: {tables: {mian.a.t: {}}}\n", "policies.tables.mian.a.t", "not a configured catalog"),
        (SMALL + "policies: {tables: {t: {}}}\n", "policies.tables.t", "not a full name"),
        (SMALL + "policies: {tables: {main.a.*: {}}}\n", "policies.tables.main.a.*", "pattern"),
        (SMALL + "policies: {tables: {main..t: {}}}\n", "policies.tables.main..t", "not a table name"),
        (SMALL + "policies: {tables: {main.a.t: {}, a.t: {}}}\n", "policies.tables.a.t", "name the same table"),
        (SMALL + "volumes: {/mnt/x: s3://b/x}\n", "volumes./mnt/x", "no path of a volume"),
        (
            SMALL + "shared_locations: [{tables: [main.a.t, main.a.u], files: {main.a.v: [x]}}]\n",
            "shared_locations.0.files.main.a.v",
            "not one of the two",
        ),
        (SMALL + "shared_locations: [{tables: [main.a.t]}]\n", "shared_locations.0.tables", "at least 2 items"),
    ],
)
def test_names_must_fit_one_another(tmp_path: Path, text: str, field: str, said: str) -> None:
    error = refused(tmp_path, text)
    assert error.field == field
    assert said in f"{error.message} {error.hint}"


def test_a_contradiction_between_layers_is_found(tmp_path: Path) -> None:
    text = SMALL + (
        "policies:\n  default: {rewrite_data_files: {strategy: zorder, sort_order: 'a, b'}}\n"
        "  tables: {main.a.t: {rewrite_data_files: {sort_order: null}}}\n"
    )
    assert refused(tmp_path, text).field == "policies.tables.main.a.t.rewrite_data_files.sort_order"


def test_all_problems_are_told_with_their_lines(tmp_path: Path) -> None:
    text = SMALL + "engine:\n  us: auto\n  memory_limit: lots\nlimits:\n  removed_files: some\n"
    error = refused(tmp_path, text)
    assert "3 problems" in error.message
    for told in ("line 3: unknown key engine.us", "line 4: engine.memory_limit", "line 6: limits.removed_files"):
        assert told in error.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("catalogs:\n  main: [a\n", "line 3, column 1"),
        ("catalogs:\n\tmain: x\n", "line 2, column 1"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1"),
        ("a: !!python/object:os.system x\n", "line 1, column 4"),
        ("a: *hunter2\n", "line 1, column 4"),
        ("a: &x {b: *x}\n", "inside its own anchor"),
        ("- a\n- b\n", "no mapping"),
        ("just text\n", "no mapping"),
        ("? [a]\n: b\n", "no plain text"),
        (b"a: \xff\xfe\n", "not UTF-8"),
        (b"a: x\nb: \x00\n", "line 2, column 4"),
        ("[" * 600, "nested too deeply"),
    ],
)
def test_broken_yaml_names_line_and_column(tmp_path: Path, text: str | bytes, said: str) -> None:
    error = refused(tmp_path, text)
    assert said in error.message
    assert "hunter2" not in f"{error.message}{error.hint}"


def test_keys_that_stand_twice(tmp_path: Path) -> None:
    error = refused(tmp_path, "catalogs:\n  main: {type: sql}\n  other: {type: sql}\n  main: {type: rest}\n")
    assert error.field == "catalogs.main"
    assert "line 2 and line 4" in error.message
