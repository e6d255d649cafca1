"""`barnabas dump` and `barnabas log`."""

import json
import re
import struct
from pathlib import Path

import pytest

from barnabas_client import ConsumerRecord
from barnabas_client.cli.dump import message
from barnabas_client.membership.member_data import encode_assignment
from barnabas_client.structs import TopicPartition
from barnabas_protocol.codec import encode
from barnabas_protocol.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.schema import Data
from tests.client.cli.conftest import Cli
from tests.client.real_broker import ONLY_BARNABAS, running_broker


def blob(message: Data, version: int) -> bytes:
    return struct.pack(">h", version) + encode(message, version)


def record(key: bytes | None, value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord("__consumer_offsets", 0, 0, 0, 0, key, value, ())


def line(key: bytes | None, value: bytes | None) -> str:
    return json.dumps(message(record(key, value)), separators=(",", ":"))


OFFSET_KEY = blob(OffsetCommitKey(group="readers", topic="flights", partition=2), 1)
GROUP_KEY = blob(GroupMetadataKey(group="readers"), 2)


def test_offsets_look_as_kafkas_formatter_prints_them() -> None:
    value = OffsetCommitValue(offset=3, leader_epoch=-1, metadata="", commit_timestamp=1795216445261)
    start = '{"key":{"type":1,"data":{"group":"readers","topic":"flights","partition":2}},"value":'
    newest = '{"offset":3,"leaderEpoch":-1,"metadata":"","commitTimestamp":1795216445261}}}'
    assert line(OFFSET_KEY, blob(value, 3)) == f'{start}{{"version":3,"data":{newest}'
    assert line(OFFSET_KEY, blob(value, 4)) == f'{start}{{"version":4,"data":{newest}'
    value.topic_id = bytes(range(16))
    with_id = newest.replace("}}}", ',"topicId":"AAECAwQFBgcICQoLDA0ODw"}}}')
    assert line(OFFSET_KEY, blob(value, 4)) == f'{start}{{"version":4,"data":{with_id}'
    assert line(OFFSET_KEY, blob(value, 3)) == f'{start}{{"version":3,"data":{newest}'
    oldest = '{"offset":3,"metadata":"","commitTimestamp":1795216445261,"expireTimestamp":-1}}}'
    assert line(OFFSET_KEY, blob(value, 1)) == f'{start}{{"version":1,"data":{oldest}'
    assert line(OFFSET_KEY, None) == f"{start}null}}"
    assert line(OFFSET_KEY, blob(value, 3)[:1] + b"\x63") == f'{start}{{"version":99,"data":"unknown"}}}}'


def test_groups_look_as_kafkas_formatter_prints_them() -> None:
    assignment = encode_assignment(TopicPartition("flights", number) for number in range(3))
    member = MemberMetadata(
        member_id="m-1",
        client_id="console-consumer",
        client_host="/127.0.0.1",
        rebalance_timeout=300000,
        session_timeout=45000,
        subscription=b"\x00\x03",
        assignment=assignment,
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m-1",
        current_state_timestamp=1795216444803,
        members=[member],
    )
    assert line(GROUP_KEY, blob(value, 3)) == (
        '{"key":{"type":2,"data":{"group":"readers"}},"value":{"version":3,"data":{"protocolType":"consumer",'
        '"generation":1,"protocol":"range","leader":"m-1","currentStateTimestamp":1795216444803,"members":['
        '{"memberId":"m-1","groupInstanceId":null,"clientId":"console-consumer","clientHost":"/127.0.0.1",'
        '"rebalanceTimeout":300000,"sessionTimeout":45000,"subscription":"AAM=",'
        '"assignment":"AAMAAAABAAdmbGlnaHRzAAAAAwAAAAAAAAABAAAAAv////8="}]}}}'
    )


def test_unselected_and_unknown_records_are_skipped() -> None:
    assert message(record(OFFSET_KEY, None), group="others") is None
    assert message(record(OFFSET_KEY, None), only="groups") is None
    assert message(record(GROUP_KEY, None), only="offsets") is None
    assert message(record(struct.pack(">h", 7), None)) is None
    assert message(record(None, b"x")) is None
    with pytest.raises(DecodeError):
        message(record(OFFSET_KEY[:-1], None))
    with pytest.raises(DecodeError):
        message(record(OFFSET_KEY, b"\x00"))


@ONLY_BARNABAS  # Kafka's own topic remembers the groups of other tests
async def test_offsets_are_dumped_from_the_brokers(cli: Cli, numbers: None) -> None:
    assert "no group has committed" in (await cli("dump", "offsets", status=1)).err
    await cli("groups", "reset-offsets", "g", "--to-latest", "-t", "t", "--execute")
    await cli("groups", "reset-offsets", "other", "--to-latest", "-t", "t", "--execute")
    rows = [json.loads(row) for row in (await cli("dump", "offsets", "-g", "g", "--only", "offsets")).lines]
    assert [(row["key"]["data"], row["value"]["data"]["offset"]) for row in rows] == [
        ({"group": "g", "topic": "t", "partition": 0}, 5),
        ({"group": "g", "topic": "t", "partition": 1}, 3),
    ]
    assert len((await cli("dump", "offsets", "--only", "offsets")).lines) == 4
    unknown = await cli("dump", "offsets", "-g", "nosuch", "--only", "offsets", status=1)
    assert unknown.out == ""
    assert unknown.err == (
        "barnabas: topic __consumer_offsets has no committed offsets of group 'nosuch'. To do: check its name with "
        "`barnabas groups list`\n"
    )


@ONLY_BARNABAS
async def test_log_files_are_dumped_and_checked(cli: Cli, numbers: None, tmp_path: Path) -> None:
    partition = tmp_path / "data" / "t-1"
    (file,) = partition.glob("*.log")
    dumped = await cli("dump", "log", str(file), "--records", "--verify")
    head, start, batch, first = dumped.lines[:4]
    assert start == "Log starting offset: 0"
    assert head == f"Dumping {file}"
    assert batch.startswith("baseOffset: 0 lastOffset: 0 count: 1 ")
    assert batch.endswith(" isvalid: true")
    assert " isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 6000 " in batch
    assert re.sub(r"sequence: \d+", "sequence: 0", first) == (
        "| offset: 0 CreateTime: 6000 keySize: 2 valueSize: 1 sequence: 0 headerKeys: [n] key: k5 payload: 5"
    )
    rows = [json.loads(row) for row in (await cli("dump", "log", str(partition), "--records", "--json")).lines]
    assert [row["records"][0]["value"] for row in rows] == ["5", "6", "7"]
    assert "No such file" in (await cli("dump", "log", str(tmp_path / "none"), status=1)).err


@ONLY_BARNABAS
async def test_a_damaged_log_is_found(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    async with running_broker(folder) as broker:
        address = f"{broker.host}:{broker.port}"
        source = tmp_path / "lines"
        source.write_text("text")
        await cli("produce", "t", str(source), "-b", address)
    assert (await cli("log", "check", str(folder / "data"))).out.endswith(" bytes: sound\n")
    (file,) = (folder / "data" / "t-0").glob("*.log")
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    found = await cli("log", "check", str(folder / "data"), status=1)
    assert found.lines[0] == f"{file} at position 0, offset 0: wrong CRC"
    report = (await cli("log", "check", str(folder / "data"), "--json", status=1)).json
    assert [problem["offset"] for problem in report["problems"]][:1] == [0]
    assert "wrong CRC" in (await cli("dump", "log", str(file), "--verify", status=1)).err
    assert "has no logs" in (await cli("log", "check", str(tmp_path), status=1)).err
