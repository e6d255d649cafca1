"""The commit log of a table without Spark: entries, their effect, and errors."""

import json
from pathlib import Path

import pytest

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake import live_files, log
from barnabas_pipeline.lake.log import DataFile, Snapshot


def file(path: str, size: int = 10, date: str = "2013-01-01") -> DataFile:
    return DataFile(f"date={date}/{path}", date, size, 5)


def table(*steps: str) -> Snapshot:
    state = Snapshot()
    for version, text in enumerate(steps):
        state.apply(version, text)
    return state


CREATED = log.entry([log.protocol(), log.metadata('{"type":"struct"}', {"a": "b"}, 7, "id")], "CREATE TABLE", 7)


def test_an_entry_adds_files_and_advances_offsets() -> None:
    one, two = file("1.parquet"), file("2 ä%.parquet", date="2013-01-02")
    state = table(
        CREATED,
        log.entry([log.added(one, new_rows=True), *log.advanced({0: 5, 3: 9}, 8)], "WRITE", 8, 14),
        log.entry([log.added(two, new_rows=True), *log.advanced({0: 6}, 9)], "WRITE", 9, 1),
    )
    assert state.version == 2
    assert (state.table_id, state.schema, state.configuration) == ("id", '{"type":"struct"}', {"a": "b"})
    assert state.files == {one.path: one, two.path: two}
    assert state.offsets == {0: 6, 3: 9}
    assert state.rows == 15


def test_a_merge_replaces_files_and_keeps_offsets() -> None:
    small, large = [file(f"{number}.parquet") for number in range(3)], file("all.parquet", 25)
    state = table(
        CREATED,
        log.entry([*(log.added(one, new_rows=True) for one in small), *log.advanced({0: 5}, 8)], "WRITE", 8, 5),
        log.entry([*(log.removed(one, 9) for one in small), log.added(large, new_rows=False)], "OPTIMIZE", 9),
    )
    assert state.files == {large.path: large}
    assert (state.offsets, state.rows) == ({0: 5}, 5)


def test_the_log_has_the_format_of_delta() -> None:
    """The actions of Delta's protocol, reader version 1 and writer version 2."""
    actions = [json.loads(line) for line in CREATED.splitlines()]
    assert [next(iter(action)) for action in actions] == ["commitInfo", "protocol", "metaData"]
    assert actions[1]["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    meta = actions[2]["metaData"]
    assert meta["format"] == {"provider": "parquet", "options": {}}
    assert meta["partitionColumns"] == ["date"]
    add = log.added(file("a b.parquet"), new_rows=True)["add"]
    assert add == {
        "path": "date=2013-01-01/a%20b.parquet",
        "partitionValues": {"date": "2013-01-01"},
        "size": 10,
        "modificationTime": 5,
        "dataChange": True,
    }
    assert log.advanced({2: 17}, 8) == [{"txn": {"appId": "barnabas/2", "version": 17, "lastUpdated": 8}}]


@pytest.mark.parametrize(
    "broken",
    [b"{", b"[]", b'{"add":{}}', b'{"add":7}', b'{"txn":{"appId":"barnabas/x","version":1}}', b'{"protocol":{}}'],
)
def test_an_unreadable_entry_is_named(broken: bytes) -> None:
    with pytest.raises(LakeError, match=r"00000000000000000001.json cannot be read"):
        table(CREATED, broken.decode())


def test_a_missing_entry_and_a_newer_protocol_are_errors() -> None:
    with pytest.raises(LakeError, match="lacks version 1"):
        table(CREATED).apply(2, "")
    with pytest.raises(LakeError, match="needs Delta reader 3"):
        table('{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}')


def test_unknown_actions_are_ignored() -> None:
    state = table(CREATED, '{"txn":{"appId":"somebody","version":3}}\n\n{"cdc":{"path":"x"}}\n')
    assert (state.version, state.offsets, state.files) == (1, {}, {})


def test_file_names_of_versions() -> None:
    assert log.version_of(log.name_of(12)) == 12
    for name in (
        ".00000000000000000012.json.crc",
        "00000000000000000012.checkpoint.parquet",
        "12.json",
        "_last_checkpoint",
    ):
        assert log.version_of(name) is None


def test_live_files_are_read_without_spark(tmp_path: Path) -> None:
    folder = tmp_path / log.LOG
    with pytest.raises(LakeError, match="not a table of a lake"):
        live_files(tmp_path)
    folder.mkdir()
    (folder / log.name_of(0)).write_text(CREATED)
    (folder / log.name_of(1)).write_text(log.entry([log.added(file("1.parquet"), new_rows=True)], "WRITE", 8))
    (folder / f".{log.name_of(2)}.abc").write_text("{unfinished")
    assert live_files(tmp_path) == [str(tmp_path / "date=2013-01-01" / "1.parquet")]


def test_only_many_small_files_of_a_day_are_merged() -> None:
    few = [file(f"{number}.parquet", 10) for number in range(3)]
    many = [file(f"{number}.parquet", 10, "2013-01-02") for number in range(8)]
    large = [file(f"{number}.parquet", 50, "2013-01-03") for number in range(9)]
    assert log.too_small([*few, *many, *large], target=100, least=8) == {"2013-01-02": many}


def test_a_merge_makes_one_file_of_bounded_size() -> None:
    many = [file(f"{number:02}.parquet", 40) for number in range(20)]
    (chosen,) = log.too_small(many, target=100, least=8).values()
    assert [one.path for one in chosen] == [one.path for one in many[:3]]
    assert len(chosen) > 1
