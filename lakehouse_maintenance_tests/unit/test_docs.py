"""The documentation does what it says: links lead somewhere, commands run, samples are what is printed, YAML loads."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakehouse_maintenance.config import LakehouseConfig, config_from_mapping, load_config
from lakehouse_maintenance_tests.documentation import (
    PAGES,
    PROGRAM,
    REPOSITORY,
    Block,
    Command,
    anchors,
    commands,
    links,
    looks_like,
    read,
    samples,
)
from lakehouse_maintenance_tests.small_lakehouse import SmallLakehouse, call

COMMAND_LINE = REPOSITORY / "docs" / "command_line.md"
DAGSTER = REPOSITORY / "docs" / "dagster.md"
FOLDERS = REPOSITORY / "docs" / "untracked_folders.md"
CATALOG = "main: {type: sql, uri: 'sqlite:///catalog.db', warehouse: warehouse}"
# Commands of other programs: known here, and tested where they belong.
OTHERS = (
    re.compile(r"dagster (dev|definitions validate) -w workspace\.yaml"),
    re.compile(r"dagster (job execute|asset materialize) -m lakehouse_maintenance\.definitions .*"),
    re.compile(r"dagster sensor (start|stop) -w workspace\.yaml \w+"),
    re.compile(r"export (\w+=\S+ ?)+"),
    re.compile(r"mkdir -p \$\w+"),
    re.compile(r"\.venv/bin/pre-commit install"),
    re.compile(r"\.venv/bin/python -m pip install --target build/playwright playwright"),
)

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture
def lakehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLakehouse:
    """What the pages work on, without a configuration: main.analytics.events and main.sales.orders are sick."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEHOUSE_MAINTENANCE_CONFIG", raising=False)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    catalog = SqlCatalog("main", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    made = SmallLakehouse(tmp_path, catalog)
    for database in ("analytics", "sales"):
        catalog.create_namespace(database)
    data = pa.table({"day": [1] * 65 + [2] * 65, "id": list(range(130))})
    orders = catalog.create_table("sales.orders", schema=data.schema)
    with orders.update_spec() as spec:
        spec.add_identity("day")
    for start in range(0, 65, 5):
        orders.append(pa.concat_tables([data.slice(start, 5), data.slice(65 + start, 5)]))
    made.add("sales.returns", files=1)
    return made


# Links


@by_page
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert target.is_relative_to(REPOSITORY), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_links_are_found() -> None:
    readme = links(REPOSITORY / "README.md")
    assert {"docs/pictures/demo.svg", "docs/pictures/dagster.png", "docs/command_line.md"} <= set(readme)


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(REPOSITORY / link.partition("#")[0]).resolve() for link in links(REPOSITORY / "README.md")}
    assert [page.name for page in PAGES if page not in linked and page.name != "README.md"] == []


# Commands


@by_page
def test_commands_run(page: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    written = [command for block in _shell(page) for command in commands(block)]
    own = [command for command in written if command.text.startswith(PROGRAM)]
    if own:
        lakehouse: SmallLakehouse = request.getfixturevalue("lakehouse")
        lakehouse.add("analytics.events", files=30)
        if own[0].argv[0] != "init":  # else the other commands have to work with what it writes
            _configure(lakehouse)
    printed: dict[str, str] = {}
    for command in written:
        if command not in own:
            _check_other(command)
            continue
        ended = call(capsys, *command.argv)
        assert ended.code == command.code, f"{command.text}\n{ended.out}{ended.err}"
        printed[command.argv[0]] = ended.out
    if page.name == "README.md":
        assert [*printed] == ["init", "doctor", "health", "plan", "apply", "maintain", "audit", "orphans"]
        assert "main.analytics.events: rewrite_data_files: small_files" in printed["health"]
        assert "files became 1 file," in printed["apply"]
        assert printed["audit"].count("done") == 2


def _shell(page: Path) -> list[Block]:
    return [block for block in read(page)[1] if block.language == "sh"]


def _check_other(command: Command) -> None:
    """Of programs that are not ours: that what they name exists here."""
    text = re.sub(r"\s+#.*$", "", re.sub(r"^(\w+=\S+ )+(?!$)", "", command.text))
    make = re.fullmatch(r"make ([a-z-]+)( \w+=\S+| \w+=\".*\")*", text)
    module = re.fullmatch(r"\.venv/bin/python -m (lakehouse_maintenance[\w.]*)", text)
    script = re.fullmatch(r"\.venv/bin/python (\S+\.py)( .*)?", text)
    if make:
        assert make[1] in _targets(), text
    elif module:
        assert importlib.util.find_spec(module[1]) is not None, text
    elif script:
        assert (REPOSITORY / script[1]).is_file(), text
    else:
        assert any(known.fullmatch(text) for known in OTHERS), f"unknown to this test: {command.text}"


def _targets() -> set[str]:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))


@by_page
def test_make_targets_in_the_text_exist(page: Path) -> None:
    named = set(re.findall(r"`make ([a-z][a-z-]*)[^`]*`", read(page)[0]))
    assert named <= _targets()


# Samples


@pytest.mark.parametrize("form", ["text", "json"])
def test_samples_are_what_is_printed(form: str, lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    _, blocks = read(COMMAND_LINE)
    ran, compared = 0, 0
    for index, block in enumerate(blocks):
        for command in samples(block):
            follows = blocks[index + 1] if index + 1 < len(blocks) else block
            wanted = follows if (follows.language, follows.section) == ("json", block.section) else None
            _prepare(lakehouse, command.argv[0])
            ended = call(capsys, *command.argv, *(["--json"] if form == "json" else []))
            ran += 1
            assert ended.code == command.code, f"{command.text}\n{ended.out}{ended.err}"
            if form == "text":
                printed = (ended.out or ended.err).replace(str(lakehouse.folder), "/data")
                assert looks_like(command.output, printed), f"{command.text}\n{printed}"
                compared += 1
            elif wanted is not None:
                printed = json.loads(ended.out.replace(str(lakehouse.folder), "/data"))
                assert _differences(json.loads(wanted.text), printed) == [], command.text
                compared += 1
    # `maintain` answers as `apply` does, and shows no JSON of its own.
    assert (ran, compared) == (8, 8 if form == "text" else 7)


def _prepare(lakehouse: SmallLakehouse, verb: str) -> None:
    """`init` finds no configuration, `doctor` one with a slip, the other verbs a good one."""
    lakehouse.config.unlink(missing_ok=True)
    if verb != "init":
        _configure(lakehouse, "analytics, salse" if verb == "doctor" else "analytics, sales")


def _configure(lakehouse: SmallLakehouse, databases: str = "analytics, sales") -> None:
    lakehouse.config.write_text(f"catalogs:\n  {CATALOG}\ndatabases: {{main: [{databases}]}}\n")


def _differences(shown: Any, real: Any, at: str = "$") -> list[str]:
    """Where a result is not as shown: a key that is missing, another type, another text. Numbers may differ."""
    if isinstance(shown, dict):
        if not isinstance(real, dict):
            return [f"{at}: no object"]
        missing = [f"{at}.{key} is missing" for key in shown if key not in real]
        return missing + [
            found for key in shown if key in real for found in _differences(shown[key], real[key], f"{at}.{key}")
        ]
    if isinstance(shown, list):
        if not isinstance(real, list) or len(real) < len(shown):
            return [f"{at}: too short"]
        pairs = enumerate(zip(shown, real, strict=False))
        return [found for index, (one, other) in pairs for found in _differences(one, other, f"{at}[{index}]")]
    if isinstance(shown, str):
        same = isinstance(real, str) and looks_like(shown, real)
        return [] if same else [f"{at}: {shown!r} is {real!r}"]
    numbers = (int, float)
    if isinstance(shown, bool) or shown is None or not isinstance(shown, numbers):
        return [] if shown == real else [f"{at}: {shown!r} is {real!r}"]
    return [] if isinstance(real, numbers) else [f"{at}: {shown!r} is {real!r}"]


def test_the_demos_result_has_the_keys_that_are_shown(tmp_path: Path) -> None:
    from lakehouse_maintenance.demo.result import DemoResult, LeftAlone, Maintained
    from lakehouse_maintenance.model.actions import Status
    from lakehouse_maintenance.model.outcomes import Check

    (block,) = (block for block in read(COMMAND_LINE)[1] if block.section == "demo")
    shown = json.loads(block.text)
    result = DemoResult(
        config=Path("/home/demo-lakehouse/lakehouse.yaml"),
        built=True,
        before=(),
        after=(),
        left_alone=(LeftAlone("main.db.t", "rewrite_data_files", "why"),),
        tables=(Maintained("main.db.t", Status.DONE, "run", ""),),
        rows_equal=True,
        checks=(Check("rows_equal", True, "all"),),
    ).as_json()
    assert shown.keys() == result.keys()
    for tables in ("before", "after"):
        del shown[tables]
    assert _differences(shown, json.loads(json.dumps(result))) == []


@pytest.mark.parametrize(
    ("shown", "real", "same"),
    [
        ("26 files, 3 KB", "26 files, 1.5 MB", True),
        ("26 files, 3 KB", "27 files, 3 KB", False),
        ("a …\nb", "a long story\nb", True),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\nd", "a\nb\nd", False),
        ("run 1cdb6273-eefe-4ef7-9692-e45a7e3a7f25", "run 04720af1-8184-4c07-ba39-c8e01ba8a2aa", True),
    ],
)
def test_what_a_sample_has_to_show(shown: str, real: str, same: bool) -> None:
    assert looks_like(shown, real) is same


# Untracked table folders


@pytest.fixture
def left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallLakehouse]:
    """What the page about untracked folders works on: `main.sales` with two tables, of which one was renamed; the
    folder of a dropped one, and three others. All is old but for `incoming`. In a folder with a short name: columns
    are as wide as on the page."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    with tempfile.TemporaryDirectory() as short:
        folder = Path(short)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PYICEBERG_HOME", str(folder))
        monkeypatch.delenv("LAKEHOUSE_MAINTENANCE_CONFIG", raising=False)
        catalog = SqlCatalog("main", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
        catalog.create_namespace("sales")
        data = pa.table({"id": list(range(1000))})
        for name in ("orders", "orders_old", "returns"):
            table = catalog.create_table(f"sales.{name}", schema=data.schema)
            table.append(data)
            table.append(data)
        catalog.drop_table("sales.orders_old")
        catalog.rename_table("sales.returns", "sales.returned")
        sales = folder / "warehouse" / "sales"
        for name in ("_temporary", "incoming", "manual_archive"):
            (sales / name).mkdir()
            (sales / name / "part.parquet").write_bytes(b"rows")
        long_ago = time.time() - 70 * 24 * 3600
        for path in sales.rglob("*.*"):
            if path.parent.name != "incoming":
                os.utime(path, (long_ago, long_ago))
        made = SmallLakehouse(folder, catalog)
        _configure(made, "sales")
        yield made


def _follow(page: Path, lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> int:
    """Does what the page says, in its order: `application.json` is the last one shown, and policies join the
    configuration. Digests and ids that differ from call to call are those of the result before. Returns how many
    samples were compared."""
    known: dict[str, str] = {}
    compared = 0
    for block in read(page)[1]:
        if block.language == "json" and '"databases"' in block.text:
            (lakehouse.folder / "application.json").write_text(block.text)
        elif block.language == "yaml" and "untracked_folders" in block.text and "main.sales" in block.text:
            lakehouse.config.write_text(f"{lakehouse.config.read_text()}{block.text}\n")
        for command in samples(block):
            if command.argv[0] not in ("untracked-folders", "explain", "review", "quarantine"):
                continue
            argv = [_known(word, known).replace("/data", str(lakehouse.folder)) for word in command.argv]
            ended = call(capsys, *argv)
            printed = ended.out.replace(str(lakehouse.folder), "/data")
            assert ended.code == command.code, f"{command.text}\n{ended.out}{ended.err}"
            assert looks_like(command.output, printed), f"{command.text}\n{printed}"
            compared += 1
            known |= {kind: match[0] for kind, one in _OWN.items() if (match := one.search(printed))}
    return compared


_OWN = {"digest": re.compile(r"sha256:[0-9a-f]{64}"), "entry": re.compile(r"\b\d{8}-\d{6}-\d{3}-[0-9a-f]{8}\b")}


def _known(word: str, known: Mapping[str, str]) -> str:
    """The same word with the digest or the entry of this lakehouse, as long as the shown one."""
    if re.fullmatch(r"sha256:[0-9a-f]+", word):
        return known["digest"][: len(word)]
    return known["entry"] if _OWN["entry"].fullmatch(word) else word


@pytest.mark.parametrize(("page", "number"), [(FOLDERS, 5), (REPOSITORY / "README.md", 1)], ids=["page", "readme"])
def test_the_way_from_a_dry_run_to_a_restored_folder(
    page: Path, number: int, left_behind: SmallLakehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    first = next(block.text for block in read(FOLDERS)[1] if block.language == "json")
    (left_behind.folder / "application.json").write_text(first)
    assert _follow(page, left_behind, capsys) == number
    assert (left_behind.folder / "warehouse" / "sales" / "orders_old" / "metadata").is_dir()


def test_the_audit_query_that_is_shown_runs(left_behind: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    import duckdb

    (left_behind.folder / "application.json").write_text('{"catalog": "main", "databases": ["sales"]}')
    assert call(capsys, "untracked-folders", "application.json").code == 0
    runs = left_behind.catalog.load_table("iomete_system_db.cleanup_untracked_table_folder_runs").scan().to_arrow()
    (query,) = (block.text for block in read(FOLDERS)[1] if block.language == "sql")
    with duckdb.connect() as connection:
        connection.register("runs", runs)
        shown = query.replace("main.iomete_system_db.cleanup_untracked_table_folder_runs", "runs")
        assert shown != query
        (row,) = connection.sql(shown).to_arrow_table().to_pylist()
    assert (row["database_name"], row["status"], row["candidate_folder_count"]) == ("sales", "SUCCESS", 2)


def test_every_name_of_the_untracked_folders_job_is_explained() -> None:
    from dataclasses import fields

    from lakehouse_maintenance.audit.identity import VARIABLES
    from lakehouse_maintenance.config.untracked_job import DEPRECATED, UntrackedJob
    from lakehouse_maintenance.model.folders import AuditRow, NotScanned, Reason, RootStatus, RowStatus, Verdict

    text = FOLDERS.read_text(encoding="utf-8")
    names = [*UntrackedJob.model_fields, DEPRECATED, *(field.name for field in fields(AuditRow)), *VARIABLES.values()]
    for kind in (NotScanned, Reason, RootStatus, Verdict):
        names += [str(one) for one in kind]
    assert [name for name in names if f"`{name}`" not in text] == []
    assert [status for status in RowStatus if f"| {status} |" not in text] == []


# YAML and Python


@by_page
def test_yaml_is_valid(page: Path, tmp_path: Path) -> None:
    for block in read(page)[1]:
        if block.language != "yaml":
            continue
        shown = yaml.safe_load(block.text)
        where = f"{page.name}:{block.line}"
        if "load_from" in shown:
            assert shown == yaml.safe_load((REPOSITORY / "workspace.yaml").read_text()), where
        elif "ops" in shown:
            _check_run_config(shown, tmp_path)
        else:
            assert shown.keys() <= LakehouseConfig.model_fields.keys(), where
            environment = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block.text), "set")
            shown = {**yaml.safe_load(f"catalogs:\n  {CATALOG}"), **shown}
            config_from_mapping(shown, base=tmp_path, environment=environment)


def _check_run_config(shown: Mapping[str, Any], folder: Path) -> None:
    import dagster as dg

    config = folder / "lakehouse.yaml"
    config.write_text(f"catalogs:\n  {CATALOG}\ndatabases: {{main: [sales]}}\n")
    from lakehouse_maintenance.orchestration.building import build_definitions

    dg.validate_run_config(build_definitions(config).resolve_implicit_global_asset_job_def(), dict(shown))


def test_the_definitions_that_are_shown_load(lakehouse: SmallLakehouse) -> None:
    import dagster as dg

    _configure(lakehouse)
    resources, block = (block for block in read(DAGSTER)[1] if block.language == "python")
    exec(compile(resources.text, DAGSTER.name, "exec"), {})
    code = block.text.replace("/etc/lakehouse/lakehouse.yaml", str(lakehouse.config))
    names: dict[str, Any] = {"my_definitions": dg.Definitions()}
    exec(compile(code, DAGSTER.name, "exec"), names)
    jobs = {job.name for job in names["defs"].resolve_all_job_defs()}
    text = DAGSTER.read_text(encoding="utf-8")
    assert set(re.findall(r"-j (\w+)", text)) <= jobs
    groups = {spec.group_name for spec in names["defs"].resolve_all_asset_specs()}
    assert set(re.findall(r"--select group:(\w+)", text)) <= groups


EXAMPLES = tuple(sorted((REPOSITORY / "examples").glob("*.yaml")))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_load(example: Path) -> None:
    needed = re.findall(r"\$\{(\w+)\}", example.read_text(encoding="utf-8"))
    config = load_config(example, environment=dict.fromkeys(needed, "a-value"))
    assert set(config.databases) == set(config.catalogs) == {"main"}
    comments = " ".join(line for line in example.read_text().splitlines() if line.startswith("#"))
    assert [name for name in needed if name not in comments] == []


def test_the_local_example_works(lakehouse: SmallLakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copyfile(REPOSITORY / "examples" / "local.yaml", lakehouse.config)
    assert call(capsys, "doctor").code == 0
    ended = call(capsys, "health", "--json")
    assert [table["table"] for table in ended.json["tables"]] == ["main.sales.orders", "main.sales.returns"]


# What belongs to one machine

SKIPPED = {".git", ".venv", "build", "dist", "demo-lakehouse", "__pycache__", "warehouse", "work", "node_modules"}
TEXTS = {".md", ".py", ".toml", ".txt", ".yaml", ".yml", ".json", ".xml", ".svg", ".cfg", ".ini", ".sh", ""}
# Put together here, so that this file does not hold what it looks for.
FORBIDDEN = re.compile(
    "|".join(
        [
            *(rf"(?<![\w.$}}/-])/{folder}/" for folder in ("work", "root", "tmp")),
            *(rf"{name}\.{domain}" for name, domain in (("pypi", "org"), ("pythonhosted", "org"), ("repo1", "maven"))),
            "--(extra-)?index" + "-url",
        ]
    )
)


def _texts() -> Iterator[Path]:
    for folder, folders, names in os.walk(REPOSITORY):
        folders[:] = [name for name in folders if name not in SKIPPED and (name == ".ci" or name[0] != ".")]
        yield from (Path(folder) / name for name in names if Path(name).suffix in TEXTS and name != ".git")


def test_nothing_names_a_machines_folders_or_an_index() -> None:
    found = []
    paths = list(_texts())
    for path in paths:
        text = path.read_text(encoding="utf-8")
        found += [f"{path.relative_to(REPOSITORY)}: {match[0]}" for match in FORBIDDEN.finditer(text)]
    assert found == []
    assert {"README.md", "Makefile", "run"} <= {path.name for path in paths}
