"""Runs of groups of the consumer protocol: no member uses the classic one.

As :mod:`tests.sim.mixed`, and members subscribe by the topic's name or with a regular expression, which they may change
while they live. More is checked than in mixed groups, which begin anew in some changes of their protocol:

- the group epoch does not go back, whichever broker coordinates: a member that joins gets an epoch that is not before
  one that any member had got when the request arrived;
- the coordinator does not give a partition to two members;
- once faults stop, each live member holds exactly what the coordinator has assigned to it, and no partition belongs to
  a member that is gone.
"""

from typing import Any

from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas_protocol.schema import Request, Response
from tests.sim.invariants import Invariants
from tests.sim.members import TOPIC, Consumer
from tests.sim.mixed import Member, MixedInvariants, MixedScenario, Modern

#: A regular expression that matches the topic, as a whole.
PATTERN = "top.*"
#: Moments at which a coordinator may die, beside those of all groups.
MOMENTS = ("heartbeat received", "target assigned", "member has to revoke")


class ConsumerGroupInvariants(MixedInvariants):
    """The rules of a group whose epoch only grows.

    Attributes:
        epoch: the highest member epoch of a successful heartbeat.
    """

    epoch = 0

    def arrives(self, request: Request) -> Any:
        return self.epoch if isinstance(request, ConsumerGroupHeartbeatRequest) else super().arrives(request)

    def answered(self, leads: bool, request: Request, response: Response, known: Any) -> None:
        if isinstance(request, ConsumerGroupHeartbeatRequest) and isinstance(response, ConsumerGroupHeartbeatResponse):
            epoch = response.member_epoch
            if response.error_code == ErrorCode.NONE and epoch > 0:
                if leads and request.member_epoch == 0 and epoch < known:
                    self.world.fail(f"{request.member_id} joins in epoch {epoch} after epoch {known} was returned")
                self.epoch = max(self.epoch, epoch)
        super().answered(leads, request, response, known)


class Subscriber(Modern):
    """A member that subscribes by name or with a regular expression.

    Attributes:
        pattern: its regular expression; None if it subscribes by name.
    """

    pattern: str | None = None

    def _subscribe(self) -> Any:
        topics = [] if self.pattern else [TOPIC]
        self.world.note("%s subscribes to %s", self.name, self.pattern or TOPIC)
        return self._machine.subscribe(topics, self.world.now, self.pattern)

    def change_subscription(self) -> None:
        """Subscribe the other way."""
        self.pattern = None if self.pattern else PATTERN
        self._event(lambda: self._take(self._subscribe()))


class ConsumerGroupScenario(MixedScenario):
    """A run with a seed whose groups have members of the consumer protocol only."""

    def _rules(self) -> Invariants:
        return ConsumerGroupInvariants(self.world)

    def _run(self) -> None:
        for moment in self._choice.sample(MOMENTS, self._choice.randint(0, 3)):
            self._choice.choice(self.nodes).plan[moment] = self._choice.randint(1, 6)
        super()._run()

    def _consumer(self, group: str, arguments: Any) -> Consumer:
        made = Subscriber(*arguments)
        if self._choice.random() < self._bias:
            made.pattern = PATTERN
        return made

    def _disturb(self) -> None:
        alive = [each for each in self.consumers.values() if each.alive and isinstance(each, Subscriber)]
        if alive and self._choice.random() < 0.15:
            self._choice.choice(alive).change_subscription()
        else:
            super()._disturb()

    def _check_owners(self, group: str) -> None:
        super()._check_owners(group)
        machine = self._machine_of(group)
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, member in machine.members.items() if machine is not None else ():
            for partitions in (member.assigned, member.revoking):
                for topic_id, indexes in partitions.items():
                    for partition in indexes:
                        other = owners.setdefault((topic_id, partition), member_id)
                        if other is not member_id and other != member_id:
                            self.world.fail(f"{other} and {member_id} own partition {partition} of {group}")

    def _machine_of(self, group: str) -> ConsumerGroup | None:
        leader = self._log_of(group).leader
        hosted = None if leader is None or not leader.alive else leader.node.groups.groups.get(group)
        return hosted.group if hosted is not None and isinstance(hosted.group, ConsumerGroup) else None

    def _stable(self, group: str) -> bool:
        if not super()._stable(group):
            return False
        machine = self._machine_of(group)
        alive = {each.member_id: each.held for each in self._alive(group) if isinstance(each, Member)}
        if machine is None:
            return not alive
        assigned = {
            member_id: {partition for partitions in member.owned().values() for partition in partitions}
            for member_id, member in machine.members.items()
        }
        return assigned == {member_id: set(held) for member_id, held in alive.items()}


def run_consumer_group_seed(seed: int) -> ConsumerGroupScenario:
    """Run one seed.

    Raises:
        Violation: an invariant does not hold; the text starts with the seed.
    """
    scenario = ConsumerGroupScenario(seed)
    scenario.run()
    return scenario
