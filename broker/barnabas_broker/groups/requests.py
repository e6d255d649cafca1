"""The requests that changed a group, or were refused: the newest ones of each group, in memory. Pure.

The page shows those around a rebalance. Events say what happened to a group; requests say what each client asked for at
that time, when, and what it got. They are not written to ``__group_events``: a client can send any number of them.

A group of 500 members that rebalances sends 1,500 requests, and a client may send as many as it likes that are refused.
So in one generation at most :data:`ALIKE` requests of an API with the same answer are kept, and further ones counted:
what is alike cannot push out what is not. :data:`MOST` requests of a group are kept, and :data:`TOTAL` of all groups.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Final, get_args

from barnabas_broker.groups.effects import Caller
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_protocol.registry import ApiKey

#: Requests that are kept of a group, of all groups, and groups. Beyond the latter two, the group is dropped that had no
#: request for longest.
MOST: Final = 200
TOTAL: Final = 20_000
GROUPS: Final = 500
#: Requests of one API with the same answer that are kept of one generation.
ALIKE: Final = 16
#: Characters of a name or a reason that are kept: clients choose them, and may choose megabytes.
_MOST_CHARACTERS: Final = 120

MemberRequest = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | ConsumerGroupHeartbeatRequest
    | OffsetCommitRequest
    | TxnOffsetCommitRequest
)
_NAMES: Final[Mapping[type, str]] = {each: ApiKey(each.API_KEY).title for each in get_args(MemberRequest)}
MemberResponse = (
    JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse | ConsumerGroupHeartbeatResponse
)


def changes_group(request: MemberRequest, response: MemberResponse) -> bool:
    """Whether a request that was answered at once has changed its group, or was refused: others are not kept."""
    if isinstance(response, HeartbeatResponse):
        return response.error_code != ErrorCode.NONE
    if isinstance(request, ConsumerGroupHeartbeatRequest) and isinstance(response, ConsumerGroupHeartbeatResponse):
        return (
            response.error_code != ErrorCode.NONE
            or response.member_epoch != request.member_epoch
            or response.assignment is not None
            or request.topic_partitions is not None
        )
    return True


def error_of(response: MemberResponse) -> int:
    """The error code of a response, or the first one of its members; 0 for none."""
    code = response.error_code
    if not code and isinstance(response, LeaveGroupResponse):
        return next((each.error_code for each in response.members if each.error_code), 0)
    return code


class GroupRequest:
    """A request of a member, and its answer.

    Args:
        request: the request.
        caller: the client that sent it.
        time_ms: when it came, in ms since 1970.

    Attributes:
        time: when it came, in ms since 1970.
        answer: the error code of its response, NONE for none; None while it waits for its response.
        waited_ms: for how long it has waited for its response.
        more: further requests of the same API with the same answer, which were not kept.
        until: when the last of these came; `time` if there is none.
    """

    __slots__ = (
        "_api",
        "_client_id",
        "_generation",
        "_given",
        "_host",
        "_instance_id",
        "_member_id",
        "_members",
        "_reason",
        "answer",
        "more",
        "time",
        "until",
        "waited_ms",
    )

    def __init__(self, request: MemberRequest, caller: Caller, time_ms: int) -> None:
        member: Any = request
        self._members = 1
        reason: str | None = None
        if isinstance(request, LeaveGroupRequest) and request.members:
            member = request.members[0]
            self._members = len(request.members)
            reason = member.reason
        elif isinstance(request, JoinGroupRequest):
            reason = request.reason
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            instance_id, generation = request.instance_id, request.member_epoch
        elif isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest):
            instance_id, generation = request.group_instance_id, request.generation_id_or_member_epoch
        elif isinstance(request, JoinGroupRequest | LeaveGroupRequest):
            instance_id, generation = getattr(member, "group_instance_id", None), -1
        else:
            instance_id, generation = request.group_instance_id, request.generation_id
        self._api = _NAMES[type(request)]
        self._member_id = _short(member.member_id)
        self._instance_id = None if instance_id is None else _short(instance_id)
        self._client_id, self._host = _short(caller.client_id), caller.host
        self._generation: int | None = generation if generation >= 0 else None
        self._reason = _short(reason or "")
        #: The generation, or the epoch, that the member got.
        self._given: int | None = None
        self.time = self.until = time_ms
        self.answer: ErrorCode | None = None
        self.waited_ms = 0
        self.more = 0

    def answered(self, response: MemberResponse, waited_ms: int = 0) -> None:
        """Take note of the response."""
        code = error_of(response)
        if code == ErrorCode.NONE and isinstance(response, JoinGroupResponse):
            self._given = response.generation_id
        elif code == ErrorCode.NONE and isinstance(response, ConsumerGroupHeartbeatResponse):
            self._given = response.member_epoch
        if isinstance(response, JoinGroupResponse | ConsumerGroupHeartbeatResponse) and not self._member_id:
            self._member_id = _short(response.member_id or "")
        self.refused(code, waited_ms)

    def refused(self, code: int, waited_ms: int = 0) -> None:
        """Take note of the error code of the response."""
        self.answer = ErrorCode.of(code)
        self.waited_ms = waited_ms

    @property
    def kind(self) -> tuple[str, int | None]:
        """Key of requests that are alike: the fields in which they agree."""
        return self._api, self.answer

    def as_data(self) -> dict[str, Any]:
        """The request, ready for JSON."""
        return {
            "time": self.time,
            "api": self._api,
            "member_id": self._member_id,
            "client_id": self._client_id,
            "host": self._host,
            "instance_id": self._instance_id,
            "members": self._members,
            "generation": self._generation,
            "reason": self._reason,
            "answer": None if self.answer is None else self.answer.name,
            "given": self._given,
            "waited_ms": self.waited_ms,
            "more": self.more,
            "until": self.until,
        }


class _OfGroup:
    """The requests of a group.

    Attributes:
        kept: the newest ones, oldest first.
        since: from when on they are kept, in ms since 1970.
        version: changes whenever they do.
    """

    __slots__ = ("_alike", "_generation", "kept", "since", "version")

    def __init__(self, since: int) -> None:
        self.kept: deque[GroupRequest] = deque(maxlen=MOST)
        self.since = since
        self.version = 0
        self._generation = -1
        #: How many of a kind are kept of the generation, and the last of them.
        self._alike: dict[tuple[str, int | None], tuple[int, GroupRequest]] = {}

    def count(self, kind: tuple[str, int | None], time_ms: int, generation: int) -> bool:
        """Count a request if enough of its kind are kept; returns whether that is so."""
        if generation != self._generation:
            self._generation = generation
            self._alike.clear()
        count, last = self._alike.get(kind, (0, None))
        if last is None or count < ALIKE:
            return False
        self.version += 1
        last.more += 1
        last.until = time_ms
        return True

    def add(self, request: GroupRequest, generation: int) -> bool:
        if self.count(request.kind, request.time, generation):
            return False
        self.version += 1
        count, _ = self._alike.get(request.kind, (0, request))
        self._alike[request.kind] = (count + 1, request)
        if len(self.kept) == MOST:
            self.since = self.kept[0].time + 1
        self.kept.append(request)
        return True


class GroupRequests:
    """The newest requests of the groups that had one last."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, _OfGroup] = OrderedDict()
        self._total = 0

    def add(self, group_id: str, request: GroupRequest, generation: int) -> bool:
        """Keep a request, or count it if there are many like it; returns whether it is kept.

        Args:
            group_id: the group, which exists.
            request: the request.
            generation: of the group.
        """
        of = self._groups.get(group_id)
        if of is None:
            of = self._groups[group_id] = _OfGroup(request.time)
        else:
            self._groups.move_to_end(group_id)
        before = len(of.kept)
        kept = of.add(request, generation)
        self._total += len(of.kept) - before
        while len(self._groups) > GROUPS or self._total > TOTAL:
            self.forget(next(iter(self._groups)))
        return kept

    def count(self, request: MemberRequest, answer: int | None, time_ms: int, generation: int) -> bool:
        """Count a request if enough like it are kept; returns whether that is so.

        In a rebalance all members of a group send the same.

        Args:
            request: the request.
            answer: the error code of its response; None while it waits for that.
            time_ms: when it came, in ms since 1970.
            generation: of its group.
        """
        of = self._groups.get(request.group_id)
        if of is None or not of.count((_NAMES[type(request)], answer), time_ms, generation):
            return False
        self._groups.move_to_end(request.group_id)
        return True

    def answered(self, group_id: str, request: GroupRequest, response: MemberResponse, waited_ms: int) -> None:
        """A request that was kept while it waited has got its response."""
        request.answered(response, waited_ms)
        of = self._groups.get(group_id)
        if of is not None:
            of.version += 1

    def forget(self, group_id: str) -> None:
        """Drop the requests of a group."""
        of = self._groups.pop(group_id, None)
        self._total -= 0 if of is None else len(of.kept)

    def version(self, group_id: str) -> str:
        """Changes whenever the requests of a group do."""
        of = self._groups.get(group_id)
        return "0" if of is None else f"{of.since}-{of.version}"

    def of(self, group_id: str) -> dict[str, Any]:
        """The requests of a group by the time at which they came, ready for JSON, and `kept_since`: all that were
        later are there, or counted as `more` of one that is; null if none is kept."""
        of = self._groups.get(group_id)
        if of is None:
            return {"kept_since": None, "requests": []}
        rows = sorted(of.kept, key=lambda each: each.time)
        return {"kept_since": of.since, "requests": [each.as_data() for each in rows]}


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
