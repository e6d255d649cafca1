"""Drives a `ClassicMember` by hand: keeps the time, sorts effects, and answers requests like a coordinator that accepts
them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from barnabas_client.assignors import Assignor, MemberSubscription, RangeAssignor, RebalanceProtocol, RoundRobinAssignor
from barnabas_client.errors import KafkaConnectionError
from barnabas_client.membership.classic import ClassicMember
from barnabas_client.membership.effects import Assign, CountPartitions, Effect, Fail, Note, Revoke, Send
from barnabas_client.membership.member import MemberConfig
from barnabas_client.membership.member_data import encode_assignment, encode_subscription
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.schema import Request

E = TypeVar("E")


def partitions(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


class Driver:
    """A member, its clock and what it asked for so far."""

    def __init__(self, config: MemberConfig | None = None, assignors: Sequence[Assignor] | None = None) -> None:
        self.config = config or MemberConfig(group_id="g")
        self.machine = ClassicMember(self.config, assignors or (RangeAssignor(), RoundRobinAssignor()))
        self.now = 0.0
        self.effects: list[Effect] = []
        self.error: Exception | None = None

    def happened(self, effects: list[Effect]) -> list[Effect]:
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Fail):
                self.error = effect.error
        return effects

    def take(self, kind: type[E]) -> E:
        """Remove the oldest effect of a kind; fail if there is none."""
        for at, effect in enumerate(self.effects):
            if isinstance(effect, kind):
                del self.effects[at]
                return effect
        raise AssertionError(f"no {kind.__name__} in {self.effects}")

    def sent(self, kind: type[Request]) -> Send:
        """Remove the oldest request of a kind."""
        for at, effect in enumerate(self.effects):
            if isinstance(effect, Send) and isinstance(effect.request, kind):
                del self.effects[at]
                return effect
        raise AssertionError(f"no {kind.__name__} in {self.effects}")

    def has_sent(self, kind: type[Request]) -> bool:
        return any(isinstance(effect, Send) and isinstance(effect.request, kind) for effect in self.effects)

    def quiet(self) -> bool:
        """Whether nothing but notes is left."""
        return all(isinstance(effect, Note) for effect in self.effects)

    # Single steps.

    def subscribe(self, *topics: str) -> None:
        self.happened(self.machine.subscribe(topics or ("t",), self.now))

    def wait(self, seconds: float, *, polls: bool = True) -> None:
        """Let time pass; the program polls at its end, or not."""
        self.now += seconds
        self.happened(self.machine.standing.polled(self.now) if polls else self.machine.standing.tick(self.now))

    def find(self, code: ErrorCode = ErrorCode.NONE, node: int = 1) -> None:
        send = self.sent(FindCoordinatorRequest)
        found = Coordinator(key="g", node_id=node, host="h", port=9092, error_code=code, error_message=None)
        self.happened(self.machine.answered(send.ticket, FindCoordinatorResponse(coordinators=[found]), self.now))

    def release(self) -> Revoke:
        revoke = self.take(Revoke)
        self.happened(self.machine.revoked(revoke.ticket, self.now))
        return revoke

    def join(
        self,
        code: ErrorCode = ErrorCode.NONE,
        *,
        member_id: str = "m1",
        leader: str = "m1",
        generation: int = 1,
        members: Mapping[str, Iterable[str]] | None = None,
        protocol: str | None = "range",
        skip: bool = False,
    ) -> JoinGroupRequest:
        send = self.sent(JoinGroupRequest)
        assert isinstance(send.request, JoinGroupRequest)
        seen = {member_id: ["t"]} if members is None else members
        response = JoinGroupResponse(
            error_code=code,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=protocol,
            leader=leader,
            skip_assignment=skip,
            member_id=member_id,
            members=[
                JoinGroupResponseMember(member_id=name, metadata=encode_subscription(MemberSubscription(tuple(topics))))
                for name, topics in seen.items()
                if leader == member_id
            ],
        )
        self.happened(self.machine.answered(send.ticket, response, self.now))
        return send.request

    def count(self, **counts: int) -> CountPartitions:
        asked = self.take(CountPartitions)
        self.happened(self.machine.counted(asked.ticket, counts or {"t": 4}, self.now))
        return asked

    def sync(
        self, assigned: Iterable[TopicPartition] = partitions(0, 1), code: ErrorCode = ErrorCode.NONE
    ) -> SyncGroupRequest:
        send = self.sent(SyncGroupRequest)
        assert isinstance(send.request, SyncGroupRequest)
        blob = encode_assignment(assigned) if code == ErrorCode.NONE else b""
        response = SyncGroupResponse(error_code=code, assignment=blob)
        self.happened(self.machine.answered(send.ticket, response, self.now))
        return send.request

    def beat(self, code: ErrorCode = ErrorCode.NONE) -> HeartbeatRequest:
        send = self.sent(HeartbeatRequest)
        assert isinstance(send.request, HeartbeatRequest)
        self.happened(self.machine.answered(send.ticket, HeartbeatResponse(error_code=code), self.now))
        return send.request

    def drop(self, kind: type[Request]) -> None:
        """The connection breaks while a request of that kind is out."""
        self.happened(self.machine.failed(self.sent(kind).ticket, KafkaConnectionError("broken"), self.now))

    # All steps.

    def become_stable(self, *, leads: bool = True, assigned: Iterable[TopicPartition] = partitions(0, 1)) -> "Driver":
        self.subscribe()
        self.find()
        self.release()
        self.join(ErrorCode.MEMBER_ID_REQUIRED)
        self.join(leader="m1" if leads else "m2")
        if leads:
            self.count()
        self.sync(assigned)
        self.take(Assign)
        assert self.quiet(), self.effects
        return self


class Cooperative(RangeAssignor):
    """Rebalances cooperatively (KIP-429)."""

    name = "coop"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE})


def cooperative() -> Driver:
    """A stable member with such an assignor."""
    driver = Driver(assignors=(Cooperative(),))
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(protocol="coop")
    driver.count()
    driver.sync()
    driver.take(Assign)
    return driver
