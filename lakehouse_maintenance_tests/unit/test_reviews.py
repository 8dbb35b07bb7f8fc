"""Reviews in every kind of state: a plan keeps its decisions, and no decision covers what was not looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from lakehouse_maintenance.execution.explaining import past_decisions
from lakehouse_maintenance.model.errors import InputError, LakehouseError, StorageError
from lakehouse_maintenance.model.reviews import FolderPlan, PlannedFolder, Review, ReviewState
from lakehouse_maintenance.planning.untracked_folders import plan_digest, run_digest
from lakehouse_maintenance.state import State, layout
from lakehouse_maintenance.state.copying import copy_store
from lakehouse_maintenance_tests.services.states import KINDS, Place, new_place

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SUBJECT = "main.sales"
ONE, TWO, THREE = (f"s3://lake/sales/{name}" for name in ("one", "two", "three"))


def plan(*paths: str, subject: str = SUBJECT, at: datetime = NOW, size: int = 10) -> FolderPlan:
    folders = tuple(PlannedFolder(path, 2, size, 1_700_000_000_000, "no table owns it") for path in paths)
    digest = plan_digest(subject, folders)
    assert digest is not None
    return FolderPlan(digest, subject, at, "run 1", folders)


def paths(review: Review | None, now: datetime = NOW) -> list[str]:
    """What may be removed now."""
    return [] if review is None else [folder.path for folder in review.may_go(now)]


def contents(state: State) -> dict[str, bytes]:
    """Every value, and so whether anything was recorded."""
    found = {}
    for key in state.keys(""):
        stored = state.get(key)
        assert stored is not None
        found[key] = stored[0]
    return found


def test_looking_writes_nothing(place: Place) -> None:
    reviews = place.open().reviews
    assert reviews.all() == []
    assert reviews.latest(SUBJECT) is None
    reviews.record_nothing(SUBJECT)
    with pytest.raises(InputError, match="no plan has the digest") as caught:
        reviews.find("sha256:" + "0" * 64)
    assert caught.value.field == "digest"
    assert "review list" in (caught.value.hint or "")
    assert place.is_empty()


def test_a_plan_is_found_again_as_it_was_recorded(place: Place) -> None:
    first = plan(ONE, TWO)
    recorded = place.open().reviews.record(first)
    assert recorded == Review(first)
    reviews = place.open().reviews
    assert reviews.latest(SUBJECT) == recorded
    assert reviews.all() == reviews.find(first.digest) == [recorded]
    assert recorded.state(NOW) is ReviewState.PENDING
    assert paths(recorded) == []
    assert place.store().check_version() == layout.latest()


def test_a_plan_of_ten_thousand_folders(place: Place) -> None:
    many = plan(*(f"s3://lake/sales/{number:05}/ü" for number in range(10_000)))
    reviews = place.open().reviews
    reviews.record(many)
    reviews.approve(many.digest, None, by="ann", now=NOW)
    (found,) = place.open().reviews.find(many.digest)
    assert found.plan == many
    assert paths(found) == [folder.path for folder in many.folders]


@pytest.mark.requirement("DG-10")
def test_who_when_what_and_until_when_are_recorded(place: Place) -> None:
    state, first = place.open(), plan(ONE, TWO)
    state.reviews.record(first)
    (decided,) = state.reviews.approve(first.digest, [TWO + "/"], by=" ann ", until=NOW + DAY, now=NOW)
    (found,) = place.open().reviews.find(first.digest)
    assert found == decided
    assert (found.by, found.at, found.until) == ("ann", NOW, NOW + DAY)
    assert (found.approved, found.rejected) == ((TWO,), ())
    assert found.state(NOW) is ReviewState.PARTLY_APPROVED
    assert paths(found) == [TWO]
    shown = found.as_json(NOW)
    assert {"digest", "kind", "subject", "folders", "state", "by", "at", "until"} <= set(shown)
    assert [(one["path"], one["decision"], one["by"]) for one in shown["folders"]] == [
        (ONE, "pending", None),
        (TWO, "approved", "ann"),
    ]
    (event,) = state.journal.events(table=SUBJECT)
    assert (event.action, event.phase, event.status, event.digest) == (
        "untracked_folders",
        "outcome",
        "done",
        first.digest,
    )
    assert (event.files, event.bytes) == (0, 0), "nothing was removed by it"
    assert event.details == {
        "review": "approved",
        "by": "ann",
        "until": (NOW + DAY).isoformat(),
        "folders": 1,
        "of": 2,
        "paths": [TWO],
    }
    assert event.run_id != first.run_id, "an outcome of the plan's run would end what that run has open"


@pytest.mark.requirement("DG-10")
def test_an_approval_never_covers_what_is_not_in_the_plan(place: Place) -> None:
    state, first = place.open(), plan(ONE, TWO)
    state.reviews.record(first)
    before = contents(state)
    for folders in ([THREE], [ONE, THREE], [ONE + "/data"], ["s3://lake/sales"], []):
        for decide in (state.reviews.approve, state.reviews.reject):
            with pytest.raises(InputError) as caught:
                decide(first.digest, folders, by="ann", now=NOW)
            assert caught.value.field == "--folder"
    with pytest.raises(InputError, match="s3://lake/sales/on is not in the plan") as caught:
        state.reviews.approve(first.digest, ["s3://lake/sales/on"], by="ann", now=NOW)
    assert f"did you mean '{ONE}'" in (caught.value.hint or "")
    assert contents(state) == before
    assert state.journal.events() == []

    state.reviews.approve(first.digest, None, by="ann", now=NOW)
    later = plan(ONE, TWO, THREE)
    assert paths(state.reviews.record(later)) == [], "the same folders in another plan were not approved"
    assert paths(state.reviews.record(plan(ONE, TWO, size=11))) == [], "nor are the same folders with other content"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"by": " \n"}, "--by"),
        ({"until": NOW}, "--until"),
        ({"until": NOW - DAY}, "--until"),
        ({"until": datetime(2026, 5, 9)}, "--until"),  # noqa: DTZ001  # what it is about
        ({"digest": "sha256:nothing"}, "digest"),
        ({"digest": "sha256:" + "0" * 11}, "digest"),
    ],
)
def test_bad_input_records_nothing(place: Place, given: dict[str, object], field: str) -> None:
    state, first = place.open(), plan(ONE)
    state.reviews.record(first)
    before = contents(state)
    asked: dict[str, object] = {"digest": first.digest, "folders": None, "by": "ann", "now": NOW, **given}
    with pytest.raises(InputError) as caught:
        state.reviews.approve(**asked)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert contents(state) == before
    assert state.journal.events() == []


def test_approvals_expire_each_at_its_own_time(place: Place) -> None:
    reviews, first = place.open().reviews, plan(ONE, TWO)
    reviews.record(first)
    reviews.approve(first.digest, [ONE], by="ann", until=NOW + DAY, now=NOW)
    (review,) = reviews.approve(first.digest, [TWO], by="ben", now=NOW)
    assert review.state(NOW) is ReviewState.APPROVED
    assert review.until == NOW + DAY
    assert (paths(review), paths(review, NOW + DAY)) == ([ONE, TWO], [TWO]), "a later word on another prolongs nothing"
    assert review.state(NOW + DAY) is ReviewState.PARTLY_APPROVED
    assert paths(review, NOW + 7 * DAY - timedelta(seconds=1)) == [TWO], "seven days where nobody says"
    assert paths(review, NOW + 7 * DAY) == []
    assert review.state(NOW + 7 * DAY) is ReviewState.EXPIRED
    (review,) = reviews.reject(first.digest, [TWO], by="ben", now=NOW)
    assert (paths(review), paths(review, NOW + DAY)) == ([ONE], []), "a rejection does not make the other last for ever"


def test_the_last_word_on_a_folder_counts(place: Place) -> None:
    reviews, first = place.open().reviews, plan(ONE, TWO)
    reviews.record(first)
    reviews.approve(first.digest, None, by="ann", now=NOW)
    (review,) = reviews.reject(first.digest, [ONE], by="ben", now=NOW + timedelta(hours=1))
    assert (review.approved, review.rejected, review.by) == ((TWO,), (ONE,), "ben")
    assert paths(review, NOW) == [TWO]
    (review,) = reviews.reject(first.digest, None, by="ben", now=NOW)
    assert review.state(NOW) is ReviewState.REJECTED
    assert review.until is None
    (review,) = reviews.approve(first.digest, [ONE], by="ann", now=NOW)
    assert paths(review) == [ONE]


def test_a_later_plan_takes_the_place_of_an_earlier_one(place: Place) -> None:
    reviews, first, later = place.open().reviews, plan(ONE), plan(ONE, TWO, at=NOW + DAY)
    reviews.record(first)
    reviews.approve(first.digest, None, by="ann", now=NOW)
    reviews.record(later)
    assert [review.plan.digest for review in reviews.all()] == [later.digest, first.digest], "newest first"
    (old,) = reviews.find(first.digest)
    assert old.state(NOW) is ReviewState.SUPERSEDED
    assert paths(old) == []
    with pytest.raises(InputError, match="not its latest plan") as caught:
        reviews.approve(first.digest, None, by="ann", now=NOW)
    assert later.digest in (caught.value.hint or "")

    again = reviews.record(plan(ONE, at=NOW + 2 * DAY))
    assert (again.is_latest, paths(again)) == (True, [ONE]), "what was said of the very same folders holds"
    assert again.plan.at == NOW + 2 * DAY
    assert reviews.latest(SUBJECT) == again
    (newer,) = reviews.find(later.digest)
    assert newer.state(NOW) is ReviewState.SUPERSEDED


def test_an_approval_of_a_superseded_plan_can_be_taken_back(place: Place) -> None:
    reviews, first = place.open().reviews, plan(ONE)
    reviews.record(first)
    reviews.approve(first.digest, None, by="ann", now=NOW)
    reviews.record(plan(TWO))
    reviews.reject(first.digest, None, by="ben", now=NOW)
    assert paths(reviews.record(first)) == []


def test_where_nothing_is_found_nothing_is_pending(place: Place) -> None:
    reviews, first = place.open().reviews, plan(ONE)
    reviews.record(first)
    reviews.record(plan(TWO, subject="main.other"))
    reviews.approve(first.digest, None, by="ann", now=NOW)
    reviews.record_nothing(SUBJECT)
    assert reviews.latest(SUBJECT) is None
    assert reviews.latest("main.other") is not None
    (old,) = reviews.find(first.digest)
    assert (old.state(NOW), paths(old)) == (ReviewState.SUPERSEDED, [])
    with pytest.raises(InputError) as caught:
        reviews.approve(first.digest, None, by="ann", now=NOW)
    assert "found nothing" in (caught.value.hint or "")


def test_the_digest_of_a_run_stands_for_its_databases(place: Place) -> None:
    reviews = place.open().reviews
    sales, other = plan(ONE, TWO), plan(THREE, subject="main.other")
    for one in (sales, other):
        reviews.record(one)
    whole = run_digest([sales.digest, other.digest])
    assert whole is not None
    for _ in range(2):
        reviews.record_run(whole, [sales.digest, other.digest])
    assert {review.plan.subject for review in reviews.find(whole)} == {"main.sales", "main.other"}
    before = [paths(review) for review in reviews.find(whole)]
    with pytest.raises(InputError, match="not in the plan"):
        reviews.approve(whole, [THREE, "s3://lake/sales/four"], by="ann", now=NOW)
    assert [paths(review) for review in reviews.find(whole)] == before
    reviews.approve(whole, [THREE], by="ann", now=NOW)
    assert (paths(reviews.latest(SUBJECT)), paths(reviews.latest("main.other"))) == ([], [THREE])
    reviews.approve(whole, None, by="ann", now=NOW)
    assert paths(reviews.latest(SUBJECT)) == [ONE, TWO]

    reviews.record(plan(ONE))
    with pytest.raises(InputError, match="not its latest plan"):
        reviews.approve(whole, None, by="ann", now=NOW)
    reviews.approve(whole, [THREE], by="ann", now=NOW)


def test_a_run_of_which_a_database_has_nothing_to_review(place: Place) -> None:
    """Something stands against removing anything there, so that no plan of it was recorded."""
    reviews, sales, blocked = place.open().reviews, plan(ONE), plan(THREE, subject="main.other")
    reviews.record(sales)
    digests = (run_digest([sales.digest, blocked.digest]), run_digest([blocked.digest]))
    both, alone = (digest or "" for digest in digests)
    reviews.record_run(both, [sales.digest, blocked.digest])
    reviews.record_run(alone, [blocked.digest])
    assert [review.plan for review in reviews.find(both)] == [sales]
    with pytest.raises(InputError, match="can be reviewed"):
        reviews.find(alone)


def test_the_first_digits_of_a_digest_are_enough(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews, first = place.open().reviews, plan(ONE)
    reviews.record(first)
    digits = first.digest.removeprefix("sha256:")
    for text in (digits, digits[:12], f"sha256:{digits[:12]}", digits[:20].upper()):
        assert [review.plan for review in reviews.find(text)] == [first]
    twin = FolderPlan(first.digest[:-1] + ("0" if first.digest[-1] != "0" else "1"), "main.other", NOW, "r", ())
    reviews.record(twin)
    with pytest.raises(InputError, match="2 digests begin with"):
        reviews.find(digits[:12])
    assert [review.plan for review in reviews.find(digits)] == [first]


def test_two_reviewers_at_once_lose_no_decision(place: Place) -> None:
    """Threads with a state each, as two machines would have; each decides on folders of its own, all of one plan."""
    names = [f"s3://lake/sales/{number}" for number in range(12)]
    first = plan(*names)
    place.open().reviews.record(first)
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def decide(part: int) -> None:
        reviews = place.open().reviews
        barrier.wait()
        try:
            for name in names[part::4]:
                word: Callable[..., object] = reviews.reject if part == 3 else reviews.approve
                word(first.digest, [name], by=f"reviewer {part}", now=NOW)
        except LakehouseError as error:
            failures.append(error)

    threads = [threading.Thread(target=decide, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    (review,) = place.open().reviews.find(first.digest)
    said = {one.path: (one.is_approved, one.by) for one in review.decisions}
    assert said == {name: (at % 4 != 3, f"reviewer {at % 4}") for at, name in enumerate(names)}
    assert len(place.open().journal.events(table=SUBJECT)) == 12


def test_no_approval_is_in_force_that_the_journal_does_not_know(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    state, first = place.open(), plan(ONE)
    state.reviews.record(first)

    def refuse(*_: object) -> None:
        raise StorageError("no journal")

    monkeypatch.setattr("lakehouse_maintenance.state.journal.Journal.record", refuse)
    with pytest.raises(StorageError):
        state.reviews.approve(first.digest, None, by="ann", now=NOW)
    assert paths(state.reviews.latest(SUBJECT)) == []


@pytest.mark.parametrize("key", ["reviews/{}", "reviews-latest/main.sales"])
def test_a_damaged_review_is_no_approval(place: Place, key: str) -> None:
    state, first = place.open(), plan(ONE)
    state.reviews.record(first)
    state.reviews.approve(first.digest, None, by="ann", now=NOW)
    named = key.format(first.digest.removeprefix("sha256:"))
    stored = state.get(named)
    assert stored is not None
    assert state.put(named, b"garbage", stored[1]) is not None
    with pytest.raises(StorageError, match="damaged"):
        state.reviews.latest(SUBJECT)


def test_explain_tells_what_was_said_of_a_folder(place: Place) -> None:
    state, first = place.open(), plan(ONE, TWO)
    state.reviews.record(first)
    state.reviews.approve(first.digest, [ONE], by="ann", until=NOW + DAY, now=NOW)
    state.reviews.reject(first.digest, [TWO], by="ben", now=NOW)
    for path in (ONE, ONE + "/data/1.parquet", "s3a://lake/sales/one/"):
        (told,) = past_decisions(state, path)
        assert (told.path, told.fate, told.digest) == (ONE, "approved for removal", first.digest)
        assert told.why == f"by ann, until {(NOW + DAY).isoformat()}"
        assert told.evidence["why"] == "no table owns it"
    (told,) = past_decisions(state, TWO)
    assert (told.fate, told.why) == ("rejected for removal", "by ben")
    assert past_decisions(state, ONE + "s") == []


@pytest.mark.parametrize("kind", KINDS)
def test_reviews_move_with_the_state(kind: str, place: Place, request: pytest.FixtureRequest) -> None:
    scratch = place.scratch / "target"
    scratch.mkdir()
    target = new_place(kind, request, scratch)
    reviews, first = place.open().reviews, plan(ONE, TWO)
    reviews.record(first)
    whole = run_digest([first.digest])
    assert whole is not None
    reviews.record_run(whole, [first.digest])
    reviews.approve(first.digest, [ONE], by="ann", now=NOW)
    copy_store(place.store(), target.store())
    moved = target.open().reviews
    assert moved.all() == reviews.all()
    assert moved.find(whole) == reviews.find(whole)
    assert paths(moved.latest(SUBJECT)) == [ONE]
