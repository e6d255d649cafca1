"""The lake's log without Spark: steps, what they make of a table, and what is refused."""

import json
from pathlib import Path

import pytest

from barnabas_pipeline import lake
from barnabas_pipeline.lake import DataFile, LakeError, Snapshot


def file(path: str, size: int = 10, date: str = "2013-01-01") -> DataFile:
    return DataFile(f"date={date}/{path}", date, size, 5)


def table(*steps: str) -> Snapshot:
    state = Snapshot()
    for version, text in enumerate(steps):
        state.apply(version, text)
    return state


CREATED = lake.entry([lake.protocol(), lake.metadata('{"type":"struct"}', {"a": "b"}, 7, "id")], "CREATE TABLE", 7)


def test_a_step_adds_files_and_moves_offsets_on() -> None:
    one, two = file("1.parquet"), file("2 ä%.parquet", date="2013-01-02")
    state = table(
        CREATED,
        lake.entry([lake.added(one, new_rows=True), *lake.moved_on({0: 5, 3: 9}, 8)], "WRITE", 8, 14),
        lake.entry([lake.added(two, new_rows=True), *lake.moved_on({0: 6}, 9)], "WRITE", 9, 1),
    )
    assert state.version == 2
    assert (state.table_id, state.schema, state.configuration) == ("id", '{"type":"struct"}', {"a": "b"})
    assert state.files == {one.path: one, two.path: two}
    assert state.offsets == {0: 6, 3: 9}
    assert state.rows == 15


def test_a_merge_takes_files_for_others_and_leaves_offsets() -> None:
    small, large = [file(f"{number}.parquet") for number in range(3)], file("all.parquet", 25)
    state = table(
        CREATED,
        lake.entry([*(lake.added(one, new_rows=True) for one in small), *lake.moved_on({0: 5}, 8)], "WRITE", 8, 5),
        lake.entry([*(lake.removed(one, 9) for one in small), lake.added(large, new_rows=False)], "OPTIMIZE", 9),
    )
    assert state.files == {large.path: large}
    assert (state.offsets, state.rows) == ({0: 5}, 5)


def test_the_log_is_deltas() -> None:
    """The shapes that Delta's protocol asks for, of reader version 1 and writer version 2."""
    actions = [json.loads(line) for line in CREATED.splitlines()]
    assert [next(iter(action)) for action in actions] == ["commitInfo", "protocol", "metaData"]
    assert actions[1]["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    meta = actions[2]["metaData"]
    assert meta["format"] == {"provider": "parquet", "options": {}}
    assert meta["partitionColumns"] == ["date"]
    add = lake.added(file("a b.parquet"), new_rows=True)["add"]
    assert add == {
        "path": "date=2013-01-01/a%20b.parquet",
        "partitionValues": {"date": "2013-01-01"},
        "size": 10,
        "modificationTime": 5,
        "dataChange": True,
    }
    assert lake.moved_on({2: 17}, 8) == [{"txn": {"appId": "barnabas/2", "version": 17, "lastUpdated": 8}}]


@pytest.mark.parametrize(
    "broken",
    [b"{", b"[]", b'{"add":{}}', b'{"add":7}', b'{"txn":{"appId":"barnabas/x","version":1}}', b'{"protocol":{}}'],
)
def test_a_step_that_cannot_be_read_is_named(broken: bytes) -> None:
    with pytest.raises(LakeError, match=r"00000000000000000001.json cannot be read"):
        table(CREATED, broken.decode())


def test_a_missing_step_and_a_newer_protocol_are_refused() -> None:
    with pytest.raises(LakeError, match="lacks step 1"):
        table(CREATED).apply(2, "")
    with pytest.raises(LakeError, match="needs Delta reader 3"):
        table('{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}')


def test_actions_of_others_are_left_alone() -> None:
    state = table(CREATED, '{"txn":{"appId":"somebody","version":3}}\n\n{"cdc":{"path":"x"}}\n')
    assert (state.version, state.offsets, state.files) == (1, {}, {})


def test_names_of_steps() -> None:
    assert lake.version_of(lake.name_of(12)) == 12
    for name in (
        ".00000000000000000012.json.crc",
        "00000000000000000012.checkpoint.parquet",
        "12.json",
        "_last_checkpoint",
    ):
        assert lake.version_of(name) is None


def test_live_files_are_read_without_spark(tmp_path: Path) -> None:
    log = tmp_path / lake.LOG
    with pytest.raises(LakeError, match="no table of a lake"):
        lake.live_files(tmp_path)
    log.mkdir()
    (log / lake.name_of(0)).write_text(CREATED)
    (log / lake.name_of(1)).write_text(lake.entry([lake.added(file("1.parquet"), new_rows=True)], "WRITE", 8))
    (log / f".{lake.name_of(2)}.abc").write_text("{unfinished")
    assert lake.live_files(tmp_path) == [str(tmp_path / "date=2013-01-01" / "1.parquet")]


def test_only_many_small_files_of_a_day_are_merged() -> None:
    few = [file(f"{number}.parquet", 10) for number in range(3)]
    many = [file(f"{number}.parquet", 10, "2013-01-02") for number in range(8)]
    large = [file(f"{number}.parquet", 50, "2013-01-03") for number in range(9)]
    assert lake.too_small([*few, *many, *large], target=100, least=8) == {"2013-01-02": many}


def test_a_merge_makes_one_file_of_bounded_size() -> None:
    many = [file(f"{number:02}.parquet", 40) for number in range(20)]
    (chosen,) = lake.too_small(many, target=100, least=8).values()
    assert [one.path for one in chosen] == [one.path for one in many[:3]]
    assert len(chosen) > 1
