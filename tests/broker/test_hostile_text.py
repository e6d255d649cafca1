"""Clients that put escape sequences and newlines into everything that they may name: the broker's log shows them."""

from pathlib import Path

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.broker.command import StartCommand, logged, stop
from tests.cluster.harness import eventually
from tests.wire import Wire

pytestmark = pytest.mark.programs

#: Clears the screen, sets the terminal's title, reverses what follows, and forges a log line.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r\n2026-01-01T00:00:00.000000Z [error    ] disk failed"


def named(kind: str) -> str:
    """A name of its own for each thing, so that one that is missing in the log is noticed."""
    return f"{kind}{HOSTILE}"


async def be_hostile(wire: Wire) -> None:
    """Run a static member of a group through its life, with a new name for everything."""
    client = named("client")
    await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=named("topic"))]), 9, MetadataResponse, client)

    async def coordinated() -> bool:
        find = FindCoordinatorRequest(key=named("group"))
        found = await wire.ask(find, 2, FindCoordinatorResponse, client)
        beat = HeartbeatRequest(group_id=named("group"), generation_id=1, member_id=named("member"))
        loaded = (await wire.ask(beat, 3, HeartbeatResponse, client)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        return found.error_code == ErrorCode.NONE and loaded

    async def join() -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=named("group"),
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            group_instance_id=named("instance"),
            protocol_type=named("type"),
            protocols=[JoinGroupRequestProtocol(name=named("protocol"), metadata=b"x")],
            reason=named("joining"),
        )
        return await wire.ask(request, 9, JoinGroupResponse, client)

    await eventually("there is a coordinator", coordinated)
    joined = await join()
    assert joined.error_code == ErrorCode.NONE
    sync = SyncGroupRequest(
        group_id=named("group"),
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=named("instance"),
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"y")],
    )
    assert (await wire.ask(sync, 4, SyncGroupResponse, client)).error_code == ErrorCode.NONE
    leaving = MemberIdentity(member_id=joined.member_id, group_instance_id=named("instance"), reason=named("leaving"))
    leave = LeaveGroupRequest(group_id=named("group"), members=[leaving])
    assert (await wire.ask(leave, 5, LeaveGroupResponse, client)).error_code == ErrorCode.NONE


async def test_the_log_of_a_broker_stays_readable(start_command: StartCommand, tmp_path: Path) -> None:
    flags = ("--log-level", "debug", "--set", "group.initial.rebalance.delay.ms=0")
    process = await start_command(tmp_path / "data", *flags)
    started = await logged(process, "broker started")
    port = int(started.partition("listeners=PLAINTEXT://127.0.0.1:")[2].split()[0])
    async with await Wire.connect(port) as wire:
        await be_hostile(wire)
    status, log = await stop(process)
    assert status == 0
    lines = log.removesuffix("\n").split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert [line for line in lines if " [broker 1] " not in line] == [], "forged lines"
    for kind in ("client", "group", "instance", "joining", "leaving"):
        assert any(named(kind).encode("unicode_escape").decode() in line for line in lines), kind
