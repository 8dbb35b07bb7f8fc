"""Lists that are decoded one after the other come out as each alone would."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lakehouse_maintenance.iceberg.avro import read_container, write_container
from lakehouse_maintenance.iceberg.fields import manifest_list_schema
from lakehouse_maintenance.iceberg.lists import ListDecoder, RememberedLists


def row(number: int, sequence_number: int = 1) -> dict[str, Any]:
    counts = ("added_files_count", "existing_files_count", "deleted_files_count")
    rows = ("added_rows_count", "existing_rows_count", "deleted_rows_count")
    return {
        **dict.fromkeys((*counts, *rows), number),
        "manifest_path": f"s3://bucket/t/metadata/{number:04d}-{'m' * (number % 90)}.avro",
        "manifest_length": 1000 + number,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": sequence_number,
        "min_sequence_number": 1,
        "added_snapshot_id": number,
        "partitions": [
            {"contains_null": False, "contains_nan": None, "lower_bound": b"\x01", "upper_bound": bytes(number % 5)}
        ],
        "key_metadata": None,
    }


def written(rows: list[dict[str, Any]]) -> bytes:
    return write_container(rows, manifest_list_schema(2), {})


def test_lists_that_share_rows_in_any_order_are_decoded_as_each_alone() -> None:
    chance = random.Random(7)
    decoder: ListDecoder[dict[str, Any]] = ListDecoder(lambda record: record)
    rows: list[dict[str, Any]] = []
    for number in range(150):
        rows = [row(number), *rows] if number % 3 else [*rows, row(number), row(number + 1000)]
        if number % 7 == 0:
            rows.pop(chance.randrange(len(rows)))
        if number % 11 == 0:
            chance.shuffle(rows)
        if number % 13 == 0:
            # The same path with other values: not the row that is known.
            rows[0] = {**rows[0], "sequence_number": number + 2}
        if number % 17 == 0:
            rows.append(rows[0])
        data = written(rows)
        assert decoder.decode(data)[0] == read_container(data).records


def test_only_new_rows_are_decoded_and_known_ones_are_shared() -> None:
    decoder: ListDecoder[dict[str, Any]] = ListDecoder(lambda record: record)
    before, _ = decoder.decode(written([row(number) for number in range(300)]))

    after, fresh = decoder.decode(written([row(999), *(row(number) for number in range(300))]))

    assert fresh == 1
    assert all(one is other for one, other in zip(after[1:], before, strict=True))


def test_a_list_that_ends_early_or_lies_about_its_records_is_refused() -> None:
    decoder: ListDecoder[dict[str, Any]] = ListDecoder(lambda record: record)
    whole = written([row(number) for number in range(50)])
    decoder.decode(whole)

    for cut in range(0, len(whole) - 1, 7):
        if cut and read_or_none(whole[:cut]) is not None:
            continue  # cut between two blocks: a valid shorter file
        with pytest.raises((ValueError, KeyError)):
            decoder.decode(whole[:cut])


def read_or_none(data: bytes) -> object:
    try:
        return read_container(data)
    except ValueError:
        return None


def test_remembered_lists_stay_within_their_bounds() -> None:
    lists: RememberedLists[int] = RememberedLists(limit=10_000)
    for number in range(20):
        lists.put("main.db.t", f"list-{number}", (1, 2), fresh=2)

    assert list(lists.get_many("main.db.t", [f"list-{number}" for number in range(20)])) == ["list-18", "list-19"]
    assert not lists.get_many("main.db.other", ["list-19"])
