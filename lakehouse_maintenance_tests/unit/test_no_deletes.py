"""Deleting has few homes: an unused permission in one of them is a bug, a delete call anywhere else is a data loss.

Read from the syntax trees of the product, so that code which no test runs is covered too. Removing a temporary file
through `tempfile` is not looked at: it can only reach what it made itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakehouse_maintenance.model

PRODUCT = Path(lakehouse_maintenance.model.__file__).parent.parent
# `state` works below its own folder, on what it wrote itself.
PERMITTED_PACKAGES = {"state"}
# The one place where files of tables are deleted.
PERMITTED_MODULES = {("removal", "deleting.py")}
# The write test of `doctor` removes the one object that it wrote.
PERMITTED_FUNCTIONS = {("storage", "remove_scratch")}

# Names that remove, move away or overwrite what they are given, in the standard library, obstore, pyarrow, fsspec,
# boto3, azure-storage-blob, google-cloud-storage and PyIceberg.
DELETING = {
    *("unlink", "rmdir", "rmtree", "removedirs", "renames", "rm_file", "delete_async", "rename_async"),
    *("delete_file", "delete_dir", "delete_dir_contents", "delete_root_dir_contents"),
    *("delete_object", "delete_objects", "delete_blob", "delete_blobs", "delete_bucket", "delete_container"),
    *("drop_table", "drop_view", "drop_namespace", "purge_table", "delete_table"),
}
# Harmless on other receivers (lists, sets, strings): deleting only as a function of these modules.
DELETING_IN_MODULE = {"os": {"remove", "replace", "truncate"}}
# Fields and counts have these names too: deleting only when called, handed to a caller, or taken from a module.
DELETING_WHEN_CALLED = {"delete", "delete_files", "rename", "move", "mv", "rm"}
CALLERS = {"map", "imap", "starmap", "submit", "partial", "to_thread", "run_in_executor", "apply", "apply_async"}
SQL = re.compile(r"\s*(DROP\s+(TABLE|VIEW|SCHEMA|DATABASE|NAMESPACE)|DELETE\s+FROM|TRUNCATE\s+TABLE|VACUUM)\s")


class _Deletes(ast.NodeVisitor):
    """Collects (innermost function or None, line, what) of everything in a module that could delete."""

    def __init__(self) -> None:
        self.found: list[tuple[str | None, int, str]] = []
        self._functions: list[str] = []
        self._modules: dict[str, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._modules[alias.asname or alias.name] = alias.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            module = node.module or ""
            ours = module.partition(".")[0] == PRODUCT.name
            foreign = set() if ours else DELETING_WHEN_CALLED
            if alias.name in DELETING | foreign | DELETING_IN_MODULE.get(module, set()):
                self._report(node, f"{module}.{alias.name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        module = self._modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
        from_module = DELETING_WHEN_CALLED | DELETING_IN_MODULE.get(module, set()) if module else set()
        if node.attr in DELETING | from_module:
            self._report(node, ast.unparse(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        # One bare argument: Path.replace; text takes two, times and dataclasses keywords.
        overwrites = (
            name == "replace" and isinstance(called, ast.Attribute) and len(node.args) == 1 and not node.keywords
        )
        if overwrites or name in DELETING_WHEN_CALLED:
            self._report(node, ast.unparse(called))
        for one in node.args:
            handed = isinstance(one, ast.Attribute) and one.attr in DELETING_WHEN_CALLED and name in CALLERS
            looked_up = isinstance(one, ast.Constant) and one.value in DELETING | DELETING_WHEN_CALLED
            if handed or (looked_up and name in {"getattr", "methodcaller", "attrgetter"}):
                self._report(node, ast.unparse(node))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and SQL.match(node.value):
            self._report(node, node.value.strip())

    def _report(self, node: ast.stmt | ast.expr, what: str) -> None:
        self.found.append((self._functions[-1] if self._functions else None, node.lineno, what))


def _deletes(source: str) -> list[tuple[str | None, int, str]]:
    visitor = _Deletes()
    visitor.visit(ast.parse(source))
    return visitor.found


def _outside_their_homes() -> Iterator[str]:
    for path in sorted(PRODUCT.rglob("*.py")):
        parts = path.relative_to(PRODUCT).parts
        if parts[0] in PERMITTED_PACKAGES or parts in PERMITTED_MODULES:
            continue
        for function, line, what in _deletes(path.read_text()):
            if (parts[0], function) not in PERMITTED_FUNCTIONS:
                yield f"{path.relative_to(PRODUCT)}:{line}: {what}"


def test_delete_calls_exist_only_in_their_homes() -> None:
    assert list(_outside_their_homes()) == []


def test_every_home_is_in_use() -> None:
    for module in PERMITTED_MODULES:
        assert _deletes(PRODUCT.joinpath(*module).read_text())
    for package in PERMITTED_PACKAGES:
        assert any(_deletes(path.read_text()) for path in PRODUCT.joinpath(package).rglob("*.py"))
    for package, function in PERMITTED_FUNCTIONS:
        found = [one for path in PRODUCT.joinpath(package).rglob("*.py") for one in _deletes(path.read_text())]
        assert {name for name, _, _ in found} == {function}


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.remove(path)",
        "import os as system\nsystem.replace(new, old)",
        "from os import remove",
        "from shutil import rmtree as clear",
        "import shutil\nshutil.move(a, b)",
        "path.unlink(missing_ok=True)",
        "path.replace(target)",
        "obstore.delete(store, keys)",
        "io.delete(path)",
        "import obstore\nremove = obstore.delete",
        "from obstore import delete",
        "pool.map(io.delete, paths)",
        "getattr(io, 'delete')(path)",
        "fs.delete_file(path)",
        "fs.delete_files(paths)",
        "client.delete_objects(Bucket=b, Delete=keys)",
        "catalog.purge_table(name)",
        "catalog.drop_table(name)",
        "connection.execute('DROP TABLE t PURGE')",
        "connection.execute(f'DELETE FROM {name}')",
        "async def clean():\n    await obstore.delete_async(store, keys)",
    ],
)
def test_sees(source: str) -> None:
    assert _deletes(source)


@pytest.mark.parametrize(
    "source",
    [
        "names.remove(one)",
        "text.replace('a', 'b')",
        "moment.replace(tzinfo=UTC)",
        "replace(plan, digest=digest)",
        "key.removeprefix('s3://')",
        "health.delete_files + 1",
        "total(count.delete)",
        "for delete in index.deletes: use(delete.path)",
        "del cache[key]",
        "'Deleted rows; DROP TABLE is not ours'",
    ],
)
def test_leaves_alone(source: str) -> None:
    assert _deletes(source) == []


def test_a_permission_covers_its_function_alone() -> None:
    source = "def remove_scratch(self):\n    os.unlink(path)\ndef put(self):\n    path.unlink()"
    assert [function for function, _, _ in _deletes(source)] == ["remove_scratch", "put"]
