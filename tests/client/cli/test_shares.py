"""`barnabas shares`, and `barnabas groups` with share groups."""

import asyncio

import pytest

from barnabas_client import Admin, AlterConfigOp, ConfigResource, NewTopic, ShareConsumer, TopicPartition
from tests.client.cli.conftest import PATIENCE, Cli
from tests.client.real_broker import ONLY_BARNABAS
from tests.client.share_member import share_member

pytestmark = [ONLY_BARNABAS, pytest.mark.usefixtures("numbers")]


@pytest.fixture
async def group(cli: Cli, numbers: None) -> str:
    """An empty share group "queue" that begins at offset 1 of the partitions of "t", which hold 5 and 3 records."""
    async with share_member(cli.address, "queue", "t"):
        pass
    async with Admin(bootstrap_servers=cli.address) as admin:
        await admin.alter_share_group_offsets("queue", {TopicPartition("t", 0): 1, TopicPartition("t", 1): 1})
    return "queue"


async def starts(cli: Cli) -> list[int | None]:
    (found,) = (await cli("shares", "offsets", "queue", "--json")).json
    return [row["start_offset"] for row in found["offsets"]]


OFFSETS = (
    "\n"
    "GROUP           TOPIC           PARTITION  START-OFFSET  LAG\n"
    "queue           t               0          1             4\n"
    "queue           t               1          1             2\n"
)


async def test_groups_knows_share_groups(cli: Cli, group: str) -> None:
    listed = (await cli("groups", "list", "--type", "share", "--json")).json
    assert listed == [{"group": "queue", "state": "Empty", "type": "share", "protocol": "share"}]
    assert (await cli("groups", "list", "--type", "classic")).lines == []
    printed = await cli("groups", "describe", "queue")
    assert (printed.out, printed.err) == (OFFSETS, "\nShare group 'queue' has no active members.\n")
    (found,) = (await cli("groups", "describe", "--all-groups", "--json")).json
    assert (found["type"], found["state"], found["lag"], found["members"]) == ("share", "Empty", 6, [])
    async with share_member(cli.address, "queue", "t"):
        members = await cli("groups", "describe", "queue", "--members", "--verbose")
        assert members.lines[1].split() == [
            "GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT",
        ]  # fmt: skip
        (name, member, host, client, count, _, assignment) = members.lines[2].split()
        assert (name, member, host, client, count, assignment) == (
            "queue", "m", "/127.0.0.1", "worker", "2", "t:0,1",
        )  # fmt: skip
        state = await cli("groups", "describe", "queue", "--state")
        assert state.lines[1].split() == ["GROUP", "COORDINATOR", "(ID)", "STATE", "#MEMBERS"]
        assert state.lines[2].split()[-2:] == ["Stable", "1"]
        assert "NON_EMPTY_GROUP" in (await cli("groups", "delete", "queue", status=1)).err
    nobody = await cli("groups", "describe", "nobody", status=1)
    assert "GROUP_ID_NOT_FOUND" in nobody.err


async def test_the_doctor_examines_share_groups(cli: Cli, group: str) -> None:
    assert (await cli("groups", "doctor", group)).out == "Nothing is wrong with 1 group.\n"
    assert (await cli("groups", "doctor")).out == "Nothing is wrong with 1 group.\n"


async def test_groups_deletes_share_groups_and_what_they_know_of_topics(cli: Cli, group: str) -> None:
    assert "deleted by topic" in (await cli("groups", "delete", "queue", "-t", "t:0", status=2)).err
    assert (await cli("groups", "delete", "queue", "-t", "t")).lines == ["queue: offset of t deleted"]
    assert await starts(cli) == []
    assert (await cli("groups", "delete", "queue")).lines == ["queue: deleted"]
    assert (await cli("groups", "list")).lines == []


async def test_a_share_group_is_described_whole(cli: Cli, group: str) -> None:
    assert (await cli("shares", "offsets", "queue")).out == OFFSETS
    async with share_member(cli.address, "queue", "t"):
        printed = (await cli("shares", "describe", "queue")).out
        assert OFFSETS in printed
        assert [block.split(maxsplit=2)[1] for block in printed.split("\n\n")] == [
            "COORDINATOR",
            "TOPIC",
            "CONSUMER-ID",
        ]
        verbose = (await cli("shares", "describe", "queue", "--verbose")).out
        for column in ("GROUP-EPOCH", "ASSIGNMENT-EPOCH", "LEADER-EPOCH", "MEMBER-EPOCH"):
            assert column in verbose
            assert column not in printed
        (found,) = (await cli("shares", "describe", "queue", "--json")).json
    assert [row["lag"] for row in found["offsets"]] == [4, 2]
    (member,) = found["members"]
    assert (member["consumer_id"], len(member["partitions"]), member["target"]) == ("m", 2, None)
    for command in ("describe", "offsets"):
        assert "GROUP_ID_NOT_FOUND" in (await cli("shares", command, "nobody", status=1)).err


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [5, 3]),
        (["--to-offset", "4"], [4, 3]),
        (["--to-current"], [1, 1]),
        (["--to-datetime", "1970-01-01T00:00:08Z"], [5, 2]),
        (["--to-earliest", "-t", "t:1"], [1, 0]),
    ],
)
async def test_every_target_of_reset(cli: Cli, group: str, target: list[str], offsets: list[int]) -> None:
    planned = await cli("shares", "reset", "queue", *target)
    assert "Dry run, nothing was changed. To do: add --execute to set these offsets." in planned.err
    assert await starts(cli) == [1, 1]
    done = (await cli("shares", "reset", "queue", *target, "--execute", "--json")).json
    assert done["executed"] and [row["old_offset"] for row in done["offsets"]] == [1] * len(done["offsets"])
    assert await starts(cli) == offsets


async def test_a_reset_needs_a_group_without_members(cli: Cli, group: str) -> None:
    async with share_member(cli.address, "queue", "t"):
        refused = await cli("shares", "reset", "queue", "--to-latest", "--execute", status=1)
    assert "while share group 'queue' is inactive, but it is Stable with 1 member" in refused.err
    assert await starts(cli) == [1, 1]
    printed = await cli("shares", "reset", "nobody", "--to-latest", status=1)
    assert "share group 'nobody' has no offsets to reset" in printed.err


async def test_members_read_from_where_a_group_was_reset_to(cli: Cli, group: str) -> None:
    await cli("shares", "reset", "queue", "--to-offset", "2", "--execute")
    async with share_member(cli.address, "queue", "t") as member:
        assert await member.acquire() == 4


async def test_records_that_come_back_are_printed_with_keys_members_and_dead_letters(cli: Cli) -> None:
    """Offset 1 is released twice, 2 is rejected, all others are accepted."""
    nothing = await cli("shares", "stuck", "missing", status=1)
    assert "GROUP_ID_NOT_FOUND" in nothing.err
    async with Admin(bootstrap_servers=cli.address) as admin:
        configs = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.t"}
        ops = [AlterConfigOp(*one) for one in configs.items()]
        await admin.incremental_alter_configs({ConfigResource.group("queue"): ops})
        allowed = {"errors.deadletterqueue.group.enable": "true"}
        await admin.create_topics([NewTopic("dlq.t", num_partitions=1, topic_configs=allowed)])
    async with ShareConsumer(
        "t", bootstrap_servers=cli.address, group_id="queue", client_id="slow", share_acknowledgement_mode="explicit"
    ) as consumer:
        async with asyncio.timeout(PATIENCE):
            async for record in consumer:
                if record.key == b"k1" and record.delivery_count == 3:
                    break
                if record.key == b"k1":
                    await record.release()
                elif record.key == b"k2":
                    await record.reject()
                else:
                    await record.accept()
            await consumer.commit()
            # The broker records events a moment after what happened.
            members: list[bool] = []
            while members != [True, True]:
                members = [bool(row["last_member"]) for row in (await cli("shares", "stuck", "queue", "--json")).json]
        rows = [line.split("\t") for line in (await cli("shares", "stuck", "queue")).lines]
        again, letter = (await cli("shares", "stuck", "queue", "--json")).json
    assert rows == [
        ["TOPIC", "PARTITION", "OFFSET", "KEY", "DELIVERIES", "STATE", "LAST-MEMBER", "DEAD-LETTER", "REASON"],
        ["t", "0", "1", "k1", "2", "available", "slow (127.0.0.1)", "-", "-"],
        ["t", "0", "2", "-", "1", "archived", "slow (127.0.0.1)", "dlq.t-0@0", "Offset rejected by client."],
    ]
    assert (again["key"], again["deliveries"], again["dead_letter"]) == ("k1", 2, None)
    assert ["__dlq.errors.delivery.count", "1"] in letter["dead_letter"]["headers"]


async def test_a_queue_without_trouble_has_no_stuck_records(cli: Cli, group: str) -> None:
    printed = await cli("shares", "stuck", "queue")
    assert (printed.out, printed.err) == (
        "", "No record of share group 'queue' was delivered twice, and it has no dead letters.\n",
    )  # fmt: skip
    assert (await cli("shares", "stuck", "queue", "--json")).json == []
