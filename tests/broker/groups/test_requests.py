"""The newest requests of groups: what is kept, and what a flood of requests cannot push out."""

import sys
from typing import Any

import pytest

from barnabas_broker.groups import requests as module
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.requests import ALIKE, GROUPS, MOST, GroupRequest, GroupRequests, changes_group
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
)
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas_protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest

CALLER = Caller("billing-1", "/10.0.0.7")


def heartbeat(member_id: str = "m", generation: int = 1, caller: Caller = CALLER, at: int = 0) -> GroupRequest:
    """A heartbeat that was refused."""
    asked = GroupRequest(HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id), caller, at)
    asked.answered(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    return asked


def commit(at: int = 0) -> GroupRequest:
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=3, member_id="m", topics=[])
    asked = GroupRequest(request, CALLER, at)
    asked.refused(ErrorCode.ILLEGAL_GENERATION)
    return asked


def test_a_request_that_waits_and_its_answer() -> None:
    requests = GroupRequests()
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[], reason="started"
    )
    asked = GroupRequest(request, CALLER, 70)
    assert requests.add("g", asked, 3)
    found = requests.of("g")
    member = {"member_id": "", "client_id": "billing-1", "host": "/10.0.0.7", "instance_id": None}
    row = {
        "time": 70,
        "api": "JoinGroup",
        **member,
        "members": 1,
        "generation": None,
        "reason": "started",
        "answer": None,
        "given": None,
        "waited_ms": 0,
        "more": 0,
        "until": 70,
    }
    assert found == {"kept_since": 70, "requests": [row]}
    before = requests.version("g")
    answer = JoinGroupResponse(
        error_code=0, generation_id=4, protocol_name="range", leader="x", member_id="m-1", members=[]
    )
    requests.answered("g", asked, answer, 3_000)
    assert requests.version("g") != before
    changed = {"member_id": "m-1", "answer": "NONE", "given": 4, "waited_ms": 3_000}
    assert requests.of("g")["requests"] == [{**row, **changed}]


def test_a_leave_of_several_members_has_the_first_error() -> None:
    identities = [MemberIdentity(member_id="a", group_instance_id="one", reason="bye"), MemberIdentity(member_id="b")]
    asked = GroupRequest(LeaveGroupRequest(group_id="g", members=identities), CALLER, 0)
    results = [MemberResponse(member_id="a"), MemberResponse(member_id="b", error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
    asked.answered(LeaveGroupResponse(error_code=0, members=results))
    row = asked.as_data()
    assert (row["member_id"], row["instance_id"], row["members"], row["reason"]) == ("a", "one", 2, "bye")
    assert row["answer"] == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize(
    ("sent", "answer", "kept"),
    [
        ({}, {}, False),
        ({"subscribed_topic_names": ["t"]}, {}, False),
        ({}, {"error_code": ErrorCode.FENCED_MEMBER_EPOCH}, True),
        ({}, {"member_epoch": 6}, True),
        ({}, {"assignment": HeartbeatAssignment(topic_partitions=[])}, True),
        ({"topic_partitions": []}, {}, True),
    ],
)
def test_heartbeats_of_the_consumer_protocol_that_changed_something(
    sent: dict[str, Any], answer: dict[str, Any], kept: bool
) -> None:
    request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "m", "member_epoch": 5, **sent})
    usual = {"throttle_time_ms": 0, "error_code": 0, "member_epoch": 5, "heartbeat_interval_ms": 5}
    assert changes_group(request, ConsumerGroupHeartbeatResponse(**{**usual, **answer})) is kept


def test_a_flood_of_requests_is_counted_and_pushes_nothing_out() -> None:
    requests = GroupRequests()
    requests.add("g", commit(at=5), 3)
    for number in range(100_000):
        requests.add("g", heartbeat(f"m{number}", at=10 + number), 3)
    requests.add("g", commit(at=200_000), 3)
    found = requests.of("g")
    assert [row["api"] for row in found["requests"]] == ["OffsetCommit", *["Heartbeat"] * ALIKE, "OffsetCommit"]
    last = found["requests"][ALIKE]
    assert (last["more"], last["time"], last["until"]) == (100_000 - ALIKE, 10 + ALIKE - 1, 10 + 99_999)
    assert found["kept_since"] == 5
    # The next generation has its own.
    requests.add("g", heartbeat("again", at=300_000), 4)
    assert requests.of("g")["requests"][-1]["member_id"] == "again"


def test_the_oldest_requests_of_a_group_go() -> None:
    requests = GroupRequests()
    for generation in range(MOST + 7):
        requests.add("g", heartbeat(at=generation), generation)
    found = requests.of("g")
    assert [row["time"] for row in found["requests"]] == list(range(7, MOST + 7))
    assert found["kept_since"] == 7


def test_the_groups_without_requests_for_longest_go() -> None:
    requests = GroupRequests()
    for number in range(GROUPS):
        requests.add(f"g{number}", commit(), 1)
    requests.add("g0", commit(), 1)
    requests.add("new", commit(), 1)
    assert [len(requests.of(name)["requests"]) for name in ("g0", "g1", "g2", "new")] == [2, 0, 1, 1]
    assert requests.of("g1") == {"kept_since": None, "requests": []}
    requests.forget("g2")
    assert requests.version("g2") == "0"
    requests.forget("g2")


def test_long_names_are_cut_and_the_memory_of_a_request_is_bounded() -> None:
    long = "x" * 32_000
    asked = heartbeat(long, caller=Caller(long, "/10.0.0.7"))
    row = asked.as_data()
    assert len(row["member_id"]) == len(row["client_id"]) == 120
    parts = [getattr(asked, name) for name in GroupRequest.__slots__]
    assert sys.getsizeof(asked) + sum(map(sys.getsizeof, parts)) < 1_500


def test_the_requests_of_all_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOTAL", 5)
    requests = GroupRequests()
    for name, count in (("a", 2), ("b", 3), ("a", 1), ("c", 2)):
        for number in range(count):
            requests.add(name, heartbeat(), number)
    assert [len(requests.of(name)["requests"]) for name in "abc"] == [3, 0, 2]
    requests.forget("a")
    for number in range(3):
        requests.add("d", heartbeat(), number)
    assert [len(requests.of(name)["requests"]) for name in "cd"] == [2, 3]
