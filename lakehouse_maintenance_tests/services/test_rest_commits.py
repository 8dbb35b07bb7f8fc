"""Commits to real catalogs whose answers are lost, refused or repeated on the way, and races with other writers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lakehouse_maintenance import Lakehouse
from lakehouse_maintenance.model.actions import Action, Status
from lakehouse_maintenance.model.outcomes import TableOutcome
from lakehouse_maintenance.planning.tables import Request
from lakehouse_maintenance_tests.engine.tables import append, before_commit, ids, lakehouse, many_small_files
from lakehouse_maintenance_tests.services import faults
from lakehouse_maintenance_tests.services.catalogs import AnyCatalog
from lakehouse_maintenance_tests.services.faults import Answer, FaultProxy, Lose, fault_proxy

COMPACT = Request(actions=(Action.REWRITE_DATA_FILES,))
EXPIRE = Request(actions=(Action.EXPIRE_SNAPSHOTS,))
POLICY = {"default": {"expire_snapshots": {"older_than": "0s", "retain_last": 1, "allow_short_retention": True}}}
ONE_CATALOG = pytest.mark.parametrize("rest_catalog", ["rest"], indirect=True)
"""What a gateway says does not depend on the catalog behind it."""

BOTH = pytest.mark.parametrize("request_", [COMPACT, EXPIRE], ids=["compaction", "expiry"])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    for commit in ("commit.ReplaceCommit", "expiry.ExpireCommit"):
        monkeypatch.setattr(f"lakehouse_maintenance.iceberg.{commit}.pause", staticmethod(lambda attempt: None))


@pytest.fixture
def proxy(rest_catalog: AnyCatalog) -> Iterator[FaultProxy]:
    """What stands between us, not the writer, and the catalog. The table `db.t` has six commits."""
    many_small_files(rest_catalog.writer)  # type: ignore[arg-type]
    address = urlsplit(rest_catalog.properties["uri"])
    with fault_proxy(f"{address.scheme}://{address.netloc}") as made:
        yield made


@pytest.fixture
def ours(rest_catalog: AnyCatalog, proxy: FaultProxy, tmp_path: Path) -> Lakehouse:
    return lakehouse(tmp_path, rest_catalog.behind(proxy.endpoint), policies=POLICY)


def is_commit(request: faults.Request) -> bool:
    return request.method == "POST" and request.target.endswith("/tables/t")


def on_commit(proxy: FaultProxy, *given: Answer | Lose | Callable[[], Answer | Lose | None] | None) -> list[int]:
    """The proxy's answers to our commits in their order; the last one stays. Returns the numbers of the commits."""
    seen: list[int] = []

    def rule(request: faults.Request) -> Answer | Lose | None:
        if not is_commit(request):
            return None
        seen.append(request.number)
        answer = given[min(len(seen), len(given)) - 1]
        return answer() if callable(answer) else answer

    proxy.rule = rule
    return seen


def run(ours: Lakehouse, request: Request) -> TableOutcome:
    return ours.maintain((), request).tables[0]


def check_done(outcome: TableOutcome, rest_catalog: AnyCatalog, request: Request) -> None:
    """It worked, once: the same rows, one more snapshot or only one left."""
    assert outcome.status is Status.DONE, outcome
    assert ids(rest_catalog.writer) == [*range(60)]  # type: ignore[arg-type]
    snapshots = rest_catalog.writer.load_table("db.t").metadata.snapshots
    assert len(snapshots) == (7 if request is COMPACT else 1)
    if request is EXPIRE:
        assert outcome.actions[0].actual.expired_snapshots == 5
        assert outcome.actions[0].actual.deleted_files > 0


@BOTH
def test_a_lost_answer_is_found_in_the_table(
    rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy, request_: Request
) -> None:
    commits = on_commit(proxy, Lose(), None)
    check_done(run(ours, request_), rest_catalog, request_)
    assert len(commits) == 1, "seen before a second attempt was made"


@ONE_CATALOG
@BOTH
@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_a_request_that_a_gateway_refused_is_made_again(
    rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy, request_: Request, status: int
) -> None:
    commits = on_commit(proxy, Answer(status), None)
    check_done(run(ours, request_), rest_catalog, request_)
    assert len(commits) == 2


@BOTH
def test_a_conflict_with_our_own_repeated_request_is_none(
    rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy, request_: Request
) -> None:
    """A gateway sends the request again after it lost the answer, and hands on what the catalog says to the copy."""
    conflict = {"error": {"message": "branch main has changed", "type": "CommitFailedException", "code": 409}}
    commits = on_commit(proxy, Answer(409, json.dumps(conflict).encode(), after=True), None)
    check_done(run(ours, request_), rest_catalog, request_)
    assert len(commits) == 1


@BOTH
def test_nobody_to_ask_after_a_conflict_is_not_known(
    rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy, request_: Request
) -> None:
    """The same, and the catalog does not answer from then on: it may be done, so it is not called failed."""
    plan = ours.plan((), request_)

    def rule(request: faults.Request) -> Answer | None:
        if is_commit(request):
            proxy.rule = lambda request: Answer(503)
            return Answer(409, b"{}", after=True)
        return None

    proxy.rule = rule
    outcome = ours.apply(plan).tables[0]
    assert outcome.status is Status.UNKNOWN, outcome
    proxy.rule = lambda request: None
    assert ids(rest_catalog.writer) == [*range(60)]  # type: ignore[arg-type]
    # The next run tells, and finishes what there is to finish.
    append(rest_catalog.writer, "db.t", 100, 10)  # type: ignore[arg-type]
    rewrite_all = Request(actions=(Action.REWRITE_DATA_FILES,), options={"rewrite-all": "true"})
    assert run(ours, rewrite_all).status is Status.DONE
    assert ids(rest_catalog.writer) == [*range(60), *range(100, 110)]  # type: ignore[arg-type]


@BOTH
def test_an_answer_that_cannot_be_read_is_a_lost_one(
    rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy, request_: Request
) -> None:
    on_commit(proxy, Answer(200, b"<html>welcome to the hotel</html>", after=True), None)
    check_done(run(ours, request_), rest_catalog, request_)


@ONE_CATALOG
@BOTH
@pytest.mark.parametrize("status", [400, 403, 406, 422, 501])
def test_a_refusal_is_definite(
    rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy, request_: Request, status: int
) -> None:
    commits = on_commit(proxy, Answer(status))
    outcome = run(ours, request_)
    assert outcome.status is Status.FAILED, outcome
    assert "refused" in outcome.reason
    assert len(commits) == 1
    assert len(rest_catalog.writer.load_table("db.t").metadata.snapshots) == 6


def test_a_table_dropped_before_our_commit(rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy) -> None:
    on_commit(proxy, lambda: rest_catalog.writer.drop_table("db.t"))
    outcome = run(ours, COMPACT)
    assert outcome.status is Status.FAILED, outcome


@BOTH
def test_a_slow_first_request_that_comes_late_does_no_harm(
    rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy, request_: Request
) -> None:
    """The gateway gives up on the first request, and delivers it right before the second."""
    kept: list[tuple[str, bytes, dict[str, str]]] = []

    def rule(request: faults.Request) -> Answer | None:
        if is_commit(request) and not kept:
            kept.append((request.target, request.body, request.headers))
            return Answer(504)
        if is_commit(request) and len(kept) == 1:
            kept.append(kept[0])
            address = urlsplit(rest_catalog.properties["uri"])
            connection = http.client.HTTPConnection(address.netloc)
            connection.request("POST", *kept[0])
            assert connection.getresponse().status == 200
            connection.close()
        return None

    proxy.rule = rule
    check_done(run(ours, request_), rest_catalog, request_)


def test_a_tag_on_an_expiring_snapshot_keeps_it(
    rest_catalog: AnyCatalog, ours: Lakehouse, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set while the files are listed. The catalog would drop the tag with its snapshot without a word."""
    from lakehouse_maintenance.execution import expiring

    real, tagged = expiring.only_reached_by, rest_catalog.writer.load_table("db.t").metadata.snapshots[2].snapshot_id

    def only_reached_by(*args: object) -> object:
        if "kept" not in rest_catalog.writer.load_table("db.t").metadata.refs:
            rest_catalog.writer.load_table("db.t").manage_snapshots().create_tag(tagged, "kept").commit()
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(expiring, "only_reached_by", only_reached_by)
    outcome = run(ours, EXPIRE)
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].actual.expired_snapshots == 4
    assert ids(rest_catalog.writer, snapshot_id=tagged) == [*range(30)]  # type: ignore[arg-type]


# --- races on PostgreSQL and REST; those on SQLite, many more, are the engine's


def once(work: Callable[[], object]) -> Callable[[int], None]:
    return lambda attempt: work() if attempt == 1 else None  # type: ignore[return-value,func-returns-value]


@BOTH
def test_an_append_right_before_our_commit_survives(
    served_catalog: AnyCatalog, tmp_path: Path, request_: Request
) -> None:
    writer = served_catalog.writer
    many_small_files(writer)  # type: ignore[arg-type]
    here = lakehouse(tmp_path, served_catalog.properties, policies=POLICY)
    with before_commit(here, once(lambda: append(writer, "db.t", 1000, 10))):  # type: ignore[arg-type]
        outcome = run(here, request_)
    assert outcome.status is Status.DONE, outcome
    assert outcome.actions[0].actual.attempts == 2
    assert ids(writer) == [*range(60), *range(1000, 1010)]  # type: ignore[arg-type]


def test_a_commit_to_another_branch_does_no_harm(served_catalog: AnyCatalog, tmp_path: Path) -> None:
    """Our sequence number is taken, and our branch stands where it was: REST answers BadRequest."""
    writer = served_catalog.writer
    table = many_small_files(writer)  # type: ignore[arg-type]
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    here = lakehouse(tmp_path, served_catalog.properties)
    with before_commit(here, once(lambda: append(writer, "db.t", 1000, 10, branch="audit"))):  # type: ignore[arg-type]
        outcome = run(here, COMPACT)
    assert outcome.status is Status.DONE, outcome
    assert ids(writer) == [*range(60)]  # type: ignore[arg-type]
    metadata = writer.load_table("db.t").metadata
    branch = metadata.refs["audit"].snapshot_id
    assert ids(writer, snapshot_id=branch) == [*range(60), *range(1000, 1010)]  # type: ignore[arg-type]
    numbers = [snapshot.sequence_number for snapshot in metadata.snapshots]
    assert len(set(numbers)) == len(numbers)


def test_a_lost_connection_to_postgresql_is_made_anew(
    postgres_catalog: AnyCatalog, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Once while nothing is asked, as by a restart, and once right before our commit."""
    many_small_files(postgres_catalog.writer)  # type: ignore[arg-type]
    here = lakehouse(tmp_path, postgres_catalog.properties)
    here.health()
    server = request.getfixturevalue("postgres")
    database = urlsplit(postgres_catalog.properties["uri"]).path.removeprefix("/")
    server.drop_connections(database)
    assert here.health()[0].error is None
    with before_commit(here, once(lambda: server.drop_connections(database))):
        outcome = run(here, COMPACT)
    assert outcome.status is Status.DONE, outcome
    assert ids(postgres_catalog.again()) == [*range(60)]  # type: ignore[arg-type]
