"""`application.json` of the untracked table folders job: read unchanged, and everything wrong with it told at once."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse_maintenance.config import LakehouseConfig, config_from_mapping
from lakehouse_maintenance.config.json_reading import LARGEST
from lakehouse_maintenance.config.untracked_job import (
    UntrackedJob,
    load_untracked_job,
    policy_request,
)
from lakehouse_maintenance.model.errors import ConfigurationError, InputError
from lakehouse_maintenance.model.folders import FolderRequest, HowToRemove

DRY_RUN = """\
{
  "catalog": "spark_catalog",
  "databases": ["analytics"],
  "exclude_paths": [],
  "exclude_database_folders": [],
  "older_than_hours": 24,
  "dry_run": true,
  "delete_enabled": false,
  "max_candidate_folders_per_database": 10
}
"""
DELETE_ENABLED = """\
{
  "catalog": "spark_catalog",
  "databases": ["analytics"],
  "exclude_paths": [
    "s3a://bucket/data/analytics/protected_table"
  ],
  "exclude_database_folders": [],
  "older_than_hours": 24,
  "dry_run": false,
  "delete_enabled": true,
  "max_candidate_folders_per_database": 5
}
"""
SMALL: dict[str, Any] = {"catalog": "main", "databases": ["analytics", "sales"]}


def config(**more: Any) -> LakehouseConfig:
    catalogs = {"main": {"type": "sql"}, "spark_catalog": {"type": "sql"}}
    return config_from_mapping({"catalogs": catalogs, **more}, environment={})


def written(folder: Path, content: object) -> Path:
    path = folder / "application.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def read(folder: Path, content: object, **more: Any) -> FolderRequest:
    return load_untracked_job(written(folder, content), config(**more))[0]


def refused(folder: Path, content: object, **more: Any) -> ConfigurationError:
    path = written(folder, content)
    with pytest.raises(ConfigurationError) as caught:
        load_untracked_job(path, config(**more))
    assert str(path) in caught.value.message
    # The chain of causes would print inputs in a traceback.
    assert caught.value.__cause__ is None
    return caught.value


@pytest.mark.requirement("UF-01")
def test_the_sources_examples_word_for_word(tmp_path: Path) -> None:
    assert read(tmp_path, DRY_RUN) == FolderRequest(
        catalog="spark_catalog", databases=("analytics",), how={"analytics": HowToRemove()}
    )
    request = read(tmp_path, DELETE_ENABLED)
    assert request == FolderRequest(
        catalog="spark_catalog",
        databases=("analytics",),
        exclude_paths=("s3a://bucket/data/analytics/protected_table",),
        dry_run=False,
        delete_enabled=True,
        max_candidates=5,
        how={"analytics": HowToRemove()},
    )
    assert request.removes


@pytest.mark.requirement("UF-01")
def test_defaults_are_the_sources(tmp_path: Path) -> None:
    request = read(tmp_path, SMALL)
    assert (request.older_than_hours, request.max_candidates) == (24, 10)
    assert (request.dry_run, request.delete_enabled, request.removes) == (True, False, False)
    assert (request.exclude_paths, request.exclude_database_folders, request.approved_roots) == ((), (), {})
    assert set(UntrackedJob.model_fields) == {
        *("catalog", "databases", "exclude_paths", "exclude_database_folders", "older_than_hours", "dry_run"),
        *("delete_enabled", "max_candidate_folders_per_database", "report_only_storage_roots"),
    }


@pytest.mark.requirement("UF-01")
@pytest.mark.parametrize(
    ("name", "value", "field", "said"),
    [
        ("catalog", 7, "catalog", "text"),
        ("databases", "analytics", "databases", "a list"),
        ("databases", ["analytics", 7], "databases.1", "text"),
        ("older_than_hours", "24", "older_than_hours", "a number"),
        ("older_than_hours", True, "older_than_hours", "a number"),
        ("older_than_hours", -1, "older_than_hours", "greater than or equal to 0"),
        ("older_than_hours", 1e300, "older_than_hours", "less than"),
        ("dry_run", "false", "dry_run", "true or false"),
        ("dry_run", 0, "dry_run", "true or false"),
        ("delete_enabled", "true", "delete_enabled", "true or false"),
        ("max_candidate_folders_per_database", 1.5, "max_candidate_folders_per_database", "a whole number"),
        ("max_candidate_folders_per_database", -1, "max_candidate_folders_per_database", "greater than or equal to 0"),
        ("exclude_paths", None, "exclude_paths", "a list"),
        ("exclude_paths", "s3://b/x", "exclude_paths", "a list"),
        ("report_only_storage_roots", ["s3://b/x"], "report_only_storage_roots", "a mapping"),
        ("report_only_storage_roots", {"sales": "s3://b/x"}, "report_only_storage_roots.sales", "a list"),
    ],
)
def test_values_of_another_type_are_refused(tmp_path: Path, name: str, value: object, field: str, said: str) -> None:
    error = refused(tmp_path, {**SMALL, name: value})
    assert error.field == field
    assert said in f"{error.message} {error.hint}"


@pytest.mark.requirement("UF-01")
def test_numbers_with_and_without_a_fraction(tmp_path: Path) -> None:
    assert read(tmp_path, {**SMALL, "older_than_hours": 1.5}).older_than_hours == 1.5
    assert read(tmp_path, {**SMALL, "older_than_hours": 0}).older_than_hours == 0


@pytest.mark.requirement("UF-01")
@pytest.mark.parametrize("missing", ["catalog", "databases"])
def test_catalog_and_databases_are_required(tmp_path: Path, missing: str) -> None:
    error = refused(tmp_path, {name: value for name, value in SMALL.items() if name != missing})
    assert error.field == missing
    assert f"{missing} is missing" in error.message


@pytest.mark.requirement("UF-01")
@pytest.mark.parametrize(
    ("databases", "field"),
    [
        ([], "databases"),
        ("all", "databases"),
        ("*", "databases"),
        (["*"], "databases.0"),
        (["sales", "all"], "databases.1"),
        (["ALL"], "databases.0"),
        (["sal*"], "databases.0"),
        ([""], "databases.0"),
        (["a..b"], "databases.0"),
    ],
)
def test_databases_are_named_one_by_one(tmp_path: Path, databases: object, field: str) -> None:
    assert refused(tmp_path, {**SMALL, "databases": databases}).field == field


def test_names_with_dots_and_backticks(tmp_path: Path) -> None:
    request = read(tmp_path, {**SMALL, "databases": ["a.b", "`c.d`", "`all`", "`sales`"]})
    assert request.databases == ("a.b", "`c.d`", "all", "sales")


def test_a_database_that_stands_twice_is_looked_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, {**SMALL, "databases": ["sales", "analytics", "sales"]})
    request, notes = load_untracked_job(path, config())
    assert request.databases == ("sales", "analytics")
    assert ["'sales'" in note for note in notes] == [True]


def test_the_catalog_has_to_be_configured(tmp_path: Path) -> None:
    error = refused(tmp_path, {**SMALL, "catalog": "mian"})
    assert error.field == "catalog"
    assert "'main'" in str(error.hint)
    error = refused(tmp_path, {**SMALL, "catalog": "lake"}, delta={"lake": {"roots": ["s3://lake/delta/"]}})
    assert "Delta" in error.message


@pytest.mark.requirement("UF-02")
@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("dry_runs", "dry_run"),
        ("exclude_path", "exclude_paths"),
        ("older_then_hours", "older_than_hours"),
        ("maxCandidateFoldersPerDatabase", "max_candidate_folders_per_database"),
        ("collect_size_statistic", "older_than_hours"),
        ("Catalog", "catalog"),
    ],
)
def test_an_unknown_field_names_the_nearest(tmp_path: Path, name: str, nearest: str) -> None:
    error = refused(tmp_path, {**SMALL, name: True})
    assert error.field == name
    assert f"unknown field '{name}'" in error.message
    if name != "collect_size_statistic":
        assert f"nearest known field is '{nearest}'" in error.message
    assert "Known here" in str(error.hint) or "known here" in str(error.hint)


@pytest.mark.requirement("UF-02")
@pytest.mark.parametrize("value", [True, False, "yes", None, {"a": []}])
def test_the_deprecated_field_is_ignored_and_told(tmp_path: Path, value: object) -> None:
    path = written(tmp_path, {**SMALL, "collect_size_statistics": value})
    request, notes = load_untracked_job(path, config())
    assert request == read(tmp_path, SMALL)
    assert len(notes) == 1
    assert notes[0].startswith("collect_size_statistics is deprecated")


@pytest.mark.requirement("UF-03")
@pytest.mark.parametrize("enabled", [{}, {"delete_enabled": False}])
def test_deletion_takes_both_words(tmp_path: Path, enabled: dict[str, Any]) -> None:
    error = refused(tmp_path, {**SMALL, "dry_run": False, **enabled})
    assert error.field == "delete_enabled"
    assert "dry_run" in error.message


@pytest.mark.requirement("UF-03")
def test_delete_enabled_in_a_dry_run_removes_nothing(tmp_path: Path) -> None:
    request = read(tmp_path, {**SMALL, "dry_run": True, "delete_enabled": True})
    assert (request.dry_run, request.delete_enabled, request.removes) == (True, True, False)
    assert not read(tmp_path, {**SMALL, "delete_enabled": True}).removes


@pytest.mark.requirement("UF-04")
@pytest.mark.parametrize(
    "path",
    [
        "/data/analytics/manual_archive",
        "data/analytics/manual_archive",
        "manual_archive",
        "",
        "s3:///data/x",
        "s3://",
        "s3:/bucket/x",
        "s3a:bucket/x",
        "hdfs:///data/x",
        "://bucket/x",
        " s3://bucket/x",
        "s3://bucket/x\n",
        "s3://bucket/x\x00",
        "file:///data/../x",
        "file://elsewhere/x",
    ],
)
def test_an_excluded_path_has_scheme_and_bucket(tmp_path: Path, path: str) -> None:
    error = refused(tmp_path, {**SMALL, "exclude_paths": ["s3://bucket/fine", path]})
    assert error.field == "exclude_paths.1"
    assert "exclude_paths.1" in error.message
    assert "s3a://bucket/" in str(error.hint)


def test_excluded_paths_as_they_are_written(tmp_path: Path) -> None:
    paths = ["s3a://bucket/data/x", "s3://bucket", "gs://b/x y", "abfss://c@a.dfs.core.windows.net/x", "file:///data/x"]
    assert read(tmp_path, {**SMALL, "exclude_paths": paths}).exclude_paths == tuple(paths)


def test_an_excluded_path_is_no_pattern(tmp_path: Path) -> None:
    _, notes = load_untracked_job(written(tmp_path, {**SMALL, "exclude_paths": ["s3://b/x_*"]}), config())
    assert [note for note in notes if note.startswith("exclude_paths.0") and "no pattern" in note] == notes != []


@pytest.mark.requirement("UF-05")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("finance.manual_archive", "begins with none of databases"),
        ("Analytics.manual_archive", "begins with none of databases"),
        ("analytics_v2.manual_archive", "begins with none of databases"),
        ("manual_archive", "begins with none of databases"),
        ("analytics", "begins with none of databases"),
        ("", "begins with none of databases"),
        (".manual_archive", "begins with none of databases"),
        ("analytics.", "names no single folder"),
        ("analytics.a/b", "names no single folder"),
        ("analytics.a/", "names no single folder"),
        ("analytics./a", "names no single folder"),
        ("analytics...", "names no single folder"),
    ],
)
def test_a_database_folder_is_one_name_in_a_listed_database(tmp_path: Path, entry: str, said: str) -> None:
    error = refused(tmp_path, {**SMALL, "exclude_database_folders": ["sales.fine", entry]})
    assert error.field == "exclude_database_folders.1"
    assert said in error.message
    assert "'analytics'" in str(error.hint) or "analytics" in str(error.hint)


@pytest.mark.requirement("UF-05")
def test_database_folders_are_told_apart_by_the_listed_names(tmp_path: Path) -> None:
    job = {
        "catalog": "main",
        "databases": ["a", "a.b", "`c.d`"],
        "exclude_database_folders": ["a.x", "a.b.c", "c.d.e", "`c.d`.f", "a.x"],
    }
    assert read(tmp_path, job).exclude_database_folders == (
        ("a", "x"),
        ("a", "b.c"),
        ("a.b", "c"),
        ("`c.d`", "e"),
        ("`c.d`", "f"),
    )


def test_report_only_roots_are_of_listed_databases(tmp_path: Path) -> None:
    roots = {"sales": ["s3a://other-bucket/external/sales_events", "no location"]}
    request = read(tmp_path, {**SMALL, "report_only_storage_roots": roots})
    # What cannot be parsed is reported as `invalid_location` by the run, as in the source.
    assert request.approved_roots == {"sales": ("s3a://other-bucket/external/sales_events", "no location")}
    error = refused(tmp_path, {**SMALL, "report_only_storage_roots": {"sale": []}})
    assert error.field == "report_only_storage_roots.sale"
    assert "'sales'" in str(error.hint)


def test_everything_wrong_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    error = refused(
        tmp_path,
        '{\n"catalog": "main",\n"databases": ["sales"],\n"dry_runs": true,\n"dry_run": false,\n'
        '"exclude_paths": [\n"s3://b/x",\n"/y"\n]}',
    )
    assert "has 3 problems" in error.message
    assert "line 4: unknown field 'dry_runs'" in error.message
    assert "line 8: exclude_paths.1" in error.message
    assert error.field == "dry_runs"
    error = refused(tmp_path, '{"dry_runs": 1,\n"dry_run": 1}')
    for problem in ("line 1: unknown field", "line 2: dry_run is", "catalog is missing", "databases is missing"):
        assert problem in error.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"catalog": "main",\n "databases": ["x"],\n}', "line 3, column 1"),
        ('{"catalog": "main" // the catalog\n}', "line 1, column 20"),
        ("", "line 1, column 1"),
        ("{'catalog': 'main'}", "line 1, column 2"),
        ('["main"]', "no object"),
        ("null", "no object"),
        ('{"older_than_hours": NaN}', "NaN"),
        ('{"older_than_hours": -Infinity}', "-Infinity"),
        ('{"older_than_hours": ' + "9" * 5_000 + "}", "too many digits"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (r'{"catalog": "\ud800"}', "surrogate"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b" " * (LARGEST + 1), "larger than"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_is_no_json(tmp_path: Path, text: str | bytes, said: str) -> None:
    error = refused(tmp_path, text)
    assert said in error.message
    assert error.field == "FILE.json"
    assert error.hint


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"catalog": "main",\n"databases": ["x"], "dry_run": true,\n"dry_run": false}', "dry_run"),
        (
            '{"catalog": "main", "databases": ["x"],\n"exclude_paths": ["s3://b/x"],\n"exclude\\u005fpaths": []}',
            "exclude_paths",
        ),
        ('{"report_only_storage_roots": {\n"x": [],\n"x": ["s3://a"]}}', "report_only_storage_roots.x"),
        ('{"zzz": [{"a": 1}, {\n"a": 1,\n"a": 2}]}', "zzz.1.a"),
    ],
)
def test_a_field_that_stands_twice_is_refused(tmp_path: Path, text: str, field: str) -> None:
    error = refused(tmp_path, text)
    assert error.field == field
    assert "line 2 and line 3" in error.message


def test_the_same_name_in_two_places_is_no_repetition(tmp_path: Path) -> None:
    read(
        tmp_path,
        '{"catalog": "main", "databases": ["catalog"], "report_only_storage_roots": {"catalog": ["s3://catalog"]}}',
    )


def test_a_mark_of_byte_order_and_odd_spaces(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbf" + json.dumps(SMALL).encode().replace(b",", b"\t,\r\n")).catalog == "main"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path / "missing.json", "No such file"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "no regular file"),
    ):
        with pytest.raises(ConfigurationError, match=said) as caught:
            load_untracked_job(path, config())
        assert caught.value.field == "FILE.json"


def test_long_names_do_not_fill_the_message(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    job = {**SMALL, long: 1, "exclude_paths": [long], "exclude_database_folders": [long]}
    assert len(str(refused(tmp_path, job))) < 5_000


def test_nothing_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "sales")
    assert read(tmp_path, {**SMALL, "databases": ["${NAME}"]}).databases == ("${NAME}",)


# How a folder goes


@pytest.mark.requirement("UF-44")
def test_without_a_policy_folders_are_deleted_without_review(tmp_path: Path) -> None:
    request = read(tmp_path, SMALL)
    assert request.how == {name: HowToRemove("delete", timedelta(days=30), False) for name in ("analytics", "sales")}
    other = {"default": {"untracked_folders": {"every": "2 days", "max_candidates": "1", "older_than": "9 days"}}}
    request = read(tmp_path, SMALL, policies=other)
    assert request.how["sales"] == HowToRemove("delete", timedelta(days=30), False)
    assert (request.max_candidates, request.older_than_hours) == (10, 24), "the file's own fields decide"


@pytest.mark.requirement("UF-44")
def test_what_policies_write_counts_key_by_key(tmp_path: Path) -> None:
    policies = {
        "default": {"untracked_folders": {"purge_after": "7 days", "exclude_paths": ["s3://b/default"]}},
        "databases": {
            "main.sales": {"untracked_folders": {"removal": "quarantine", "exclude_paths": ["s3://b/sales"]}},
            "main.a.b": {"untracked_folders": {"review": "true", "purge_after": "2 days"}},
            "main.`c.d`": {"untracked_folders": {"removal": None, "review": "false"}},
            "spark_catalog.analytics": {"untracked_folders": {"removal": "quarantine"}},
        },
    }
    job = {
        "catalog": "main",
        "databases": ["analytics", "sales", "a.b", "`c.d`"],
        "exclude_paths": ["s3://b/own", "s3://b/default"],
    }
    request = read(tmp_path, job, policies=policies)
    assert request.how == {
        "analytics": HowToRemove("delete", timedelta(days=7), False),
        "sales": HowToRemove("quarantine", timedelta(days=7), False),
        "a.b": HowToRemove("delete", timedelta(days=2), True),
        "`c.d`": HowToRemove("delete", timedelta(days=7), False),
    }
    # A path that is kept for one database is kept for all: more is kept, never less.
    assert request.exclude_paths == ("s3://b/own", "s3://b/default", "s3://b/sales")


@pytest.mark.requirement("UF-44")
def test_a_database_by_its_policy_is_quarantined_after_review() -> None:
    request = policy_request(config(), "main.analytics", removes=True)
    assert request == FolderRequest(
        catalog="main",
        databases=("analytics",),
        dry_run=False,
        delete_enabled=True,
        how={"analytics": HowToRemove("quarantine", timedelta(days=30), True)},
    )
    assert request.removes
    assert not policy_request(config(), "main.analytics", removes=False).removes


def test_a_database_by_its_policy_has_what_is_in_force() -> None:
    policies = {
        "default": {"untracked_folders": {"older_than": "36h", "review": "false"}},
        "databases": {
            "main.a.`b.c`": {
                "untracked_folders": {"max_candidates": "3", "exclude_paths": ["s3://b/x"], "removal": "delete"}
            }
        },
    }
    request = policy_request(config(policies=policies), "main.a.`b.c`", removes=False)
    assert request == FolderRequest(
        catalog="main",
        databases=("a.`b.c`",),
        exclude_paths=("s3://b/x",),
        older_than_hours=36,
        max_candidates=3,
        how={"a.`b.c`": HowToRemove("delete", timedelta(days=30), False)},
    )


@pytest.mark.parametrize("name", ["main", "analytics", "main.*", "mian.analytics", "lake.analytics", "", "main..x"])
def test_what_is_no_database_of_a_catalog(name: str) -> None:
    with pytest.raises(InputError):
        policy_request(config(delta={"lake": {"roots": ["s3://lake/delta/"]}}), name, removes=True)


# The file that lakehouse.yaml names


def test_the_configured_file_is_looked_for_only_when_it_is_asked_for(tmp_path: Path) -> None:
    data = {
        "catalogs": {"main": {"type": "sql"}},
        "jobs": {"untracked_table_folders": {"file": "application.json"}},
    }
    loaded = config_from_mapping(data, base=tmp_path, environment={})
    job = loaded.jobs.untracked_table_folders
    assert job is not None
    with pytest.raises(ConfigurationError) as caught:
        load_untracked_job(job.file, loaded)
    assert str(tmp_path / "application.json") in caught.value.message
    written(tmp_path, SMALL)
    assert load_untracked_job(job.file, loaded)[0].databases == ("analytics", "sales")
