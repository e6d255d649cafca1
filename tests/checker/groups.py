"""Groups of confluent-kafka's consumers that record their history.

Their members use the classic protocol, the consumer protocol (KIP-848), or one after the other: then the group is
upgraded and downgraded, with members of both protocols in between.
"""

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.checker.history import History, Key, Kind, Outcome, Poll

T = TypeVar("T")

#: Seconds that one poll waits.
POLL: Final = 0.2
#: Seconds before a member whose client has failed begins anew.
_PAUSE: Final = 0.5
#: The error of an operation whose call of the library has not returned.
NO_RETURN: Final = "no return"
#: Settings that the consumer protocol does not have: the broker has them.
_CLASSIC_ONLY: Final = ("session.timeout.ms", "heartbeat.interval.ms")

#: Settings of members: of the classic protocol, which revokes everything in a rebalance, or only what moves; and of the
#: consumer protocol.
EAGER: Final[Mapping[str, str]] = {"partition.assignment.strategy": "range"}
COOPERATIVE: Final[Mapping[str, str]] = {"partition.assignment.strategy": "cooperative-sticky"}
CONSUMER: Final[Mapping[str, str]] = {"group.protocol": "consumer"}


@dataclass(frozen=True)
class Plan:
    """What a group is made of.

    Attributes:
        name: its id.
        protocols: the settings of its members: with several, the group changes from one to the next again and again,
            as its members begin new lives.
        members: their number.
        static: how many of them have an instance id.
        poll_interval_ms: max.poll.interval.ms of its members, which are late sometimes, or exceed it; None for members
            that always poll in time.
    """

    name: str
    protocols: Sequence[Mapping[str, str]] = (EAGER,)
    members: int = 2
    static: int = 0
    poll_interval_ms: int | None = None


class NotReturned(KafkaException):
    """A call has not returned in time; it goes on in a thread that is left behind."""


class Group:
    """The members of a group, each in a thread. They subscribe to a topic, poll and commit.

    From time to time a member closes its client, and continues with a new one: a new life, which is a process of its
    own in the history.

    Args:
        plan: what it is made of.
        topic: a topic of `partitions` partitions.
        history: where the operations are recorded.
        client: settings of all members.
        seed: of all random choices.
        limit: seconds for a request. A call of the library that does not return is abandoned after twice as long, with
            an unknown outcome, and the member begins a new life.
        enter: called in the thread of each member before it begins, with its number.
    """

    def __init__(
        self,
        plan: Plan,
        topic: str,
        partitions: Sequence[int],
        history: History,
        client: Mapping[str, Any],
        *,
        seed: int,
        limit: float,
        enter: Callable[[int], None],
    ) -> None:
        self.plan = plan
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._client = dict(client)
        self._seed = seed
        self._limit = limit
        self._enter = enter
        self._lives = itertools.count()
        self._settling = threading.Event()
        self._ending = threading.Event()
        self._changed = threading.Condition()
        #: The partitions of each member, by its number.
        self._held: dict[int, set[int]] = {number: set() for number in range(plan.members)}
        #: The life that each member is in.
        self._living: dict[int, str] = {}
        self._committed: dict[int, int] = {}
        self._futures: list[Future[None]] = []

    def start(self, threads: ThreadPoolExecutor) -> None:
        """Start the members."""
        self._futures = [threads.submit(self._join, number) for number in range(self.plan.members)]

    def begin_to_settle(self) -> None:
        """Let the members keep their clients from now on."""
        self._settling.set()

    def settle(self, seconds: float) -> bool:
        """Wait until every member has partitions, and each partition one member; note it in the history.

        Returns:
            Whether it has come so far. If it has not, in so many seconds, the note says why.
        """
        self.begin_to_settle()
        with self._changed:
            settled = self._changed.wait_for(self._shared, seconds)
            idle = [number for number, held in self._held.items() if not held]
            error = "" if settled else f"after {seconds:.0f} s members without partitions: {idle}"
            # In the lock: what a member gains or loses is before or after it.
            operation = self._history.invoke("settled", Kind.SETTLE, keys=self._keys(self._partitions), group=self._id)
            self._history.complete(operation, Outcome.OK if settled else Outcome.UNKNOWN, error=error)
        self.raise_failure()
        return settled

    def _shared(self) -> bool:
        held = sorted(partition for each in self._held.values() for partition in each)
        return held == sorted(self._partitions) and all(self._held.values())

    def await_committed(self, ends: Mapping[int, int], seconds: float) -> None:
        """Wait until it has committed these offsets.

        Raises:
            TimeoutError: it has not, in so many seconds.
        """

        def reached() -> bool:
            return all(self._committed.get(partition, 0) >= end for partition, end in ends.items())

        with self._changed:
            if not self._changed.wait_for(reached, seconds):
                self.raise_failure()
                raise TimeoutError(f"the group {self._id} has committed {self._committed} of {ends}")

    def stop(self) -> None:
        """The members leave."""
        self.begin_to_settle()
        self._ending.set()

    def join(self, seconds: float) -> None:
        """Wait until the members have left, and look up what the group has committed.

        Raises:
            Exception: of a member.
        """
        for future in self._futures:
            future.result(seconds)
        consumer = Consumer({**self._client, "group.id": self._id})
        try:
            self._look_up(f"end of {self._id}", consumer, self._places(self._partitions))
        finally:
            close(consumer, self._limit)

    def raise_failure(self) -> None:
        """Raise the error of a member that has ended with one."""
        for future in self._futures:
            if future.done():
                future.result()

    @property
    def _id(self) -> str:
        return self.plan.name

    def _keys(self, partitions: Sequence[int]) -> list[Key]:
        return [(self._topic, each) for each in partitions]

    def _places(self, partitions: Sequence[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, each) for each in partitions]

    def _join(self, number: int) -> None:
        self._enter(number)
        process = f"member {self._id} {number}"
        rng = random.Random(f"{self._seed} {process}")
        for life in itertools.count():
            settings = self._settings(number, rng)
            polls, stall = rng.randrange(20, 200), 0.0
            if self.plan.poll_interval_ms is not None and rng.random() < 0.3:
                stall = self.plan.poll_interval_ms / 1000 * rng.uniform(0.1, 1.5)
            try:
                self._live(f"{process} life {life}", number, settings, polls, stall)
            except KafkaException:
                self._ending.wait(_PAUSE)  # its client is of no use any more
            if self._ending.is_set():
                return

    def _settings(self, number: int, rng: random.Random) -> dict[str, Any]:
        """Return the settings of a member's next life."""
        turn = next(self._lives) // (2 * self.plan.members) + (rng.random() < 0.15)
        protocol = self.plan.protocols[turn % len(self.plan.protocols)]
        settings = {**self._client, "group.id": self._id, **protocol}
        if protocol.get("group.protocol") == "consumer":
            for name in _CLASSIC_ONLY:
                settings.pop(name, None)
        if self.plan.poll_interval_ms is not None:
            settings["max.poll.interval.ms"] = self.plan.poll_interval_ms
        if number < self.plan.static:
            settings["group.instance.id"] = f"{self._id} {number}"
        return settings

    def _live(self, process: str, number: int, settings: dict[str, Any], polls: int, stall: float) -> None:
        """Join the group, poll and commit, and leave it. After half of the polls, commit `stall` seconds late.

        Raises:
            KafkaException: a fatal error of the client, or a poll that does not return.
        """
        consumer = Consumer(settings)
        self._living[number] = process
        moved: set[Key] = set()
        taken: set[int] = set()
        #: What has been read and not committed.
        ahead: dict[int, int] = {}
        #: Whether the consumer is in a poll that has not returned. Closing it then would free what the poll uses.
        stuck = False

        def assigned(consumer: Consumer, places: list[TopicPartition]) -> None:
            gained = [each.partition for each in places]
            moved.update(self._keys(gained))
            self._look_up(process, consumer, places)
            self._moves(process, number, Kind.GAIN, gained)

        def revoked(consumer: Consumer, places: list[TopicPartition]) -> None:
            lost = [each.partition for each in places]
            self._moves(process, number, Kind.LOSE, lost)
            moved.update(self._keys(lost))
            taken.update(lost)
            for partition in lost:
                ahead.pop(partition, None)

        try:
            self._history.do(process, Kind.SUBSCRIBE, keys=self._keys(self._partitions), group=self._id)
            consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
            for count in itertools.count():
                if self._ending.is_set() or (count >= polls and not self._settling.is_set()):
                    return
                operation = self._history.invoke(process, Kind.POLL, group=self._id)
                try:
                    poll, read = within(2 * self._limit, partial(read_records, consumer, self._topic))
                except KafkaException as error:
                    stuck = isinstance(error, NotReturned)
                    self._history.complete(operation, Outcome.UNKNOWN, error=str(error))
                    raise
                self._history.complete(operation, Outcome.OK, [poll], rebalanced=frozenset(moved))
                ahead.update({partition: offset for partition, offset in read.items() if partition not in taken})
                if stall and count == polls // 2:
                    self._settling.wait(stall)
                if ahead and not self._commit(process, consumer, ahead):
                    return  # its next poll does not return either, and no other program can end it
                if taken & read.keys():
                    return  # records of a revoked partition, which another member may have read and committed by now
                moved.clear()
                taken.clear()
        finally:
            if not stuck:
                close(consumer, self._limit)
            with self._changed:
                del self._living[number]
                self._history.do(process, Kind.CRASH, group=self._id)
                self._held[number] = set()

    def _moves(self, process: str, number: int, kind: Kind, partitions: Sequence[int]) -> None:
        """A rebalance has given partitions to a member, or takes them."""
        with self._changed:
            if self._living.get(number) != process:
                return  # a call that was left behind
            self._history.do(process, kind, keys=self._keys(partitions), group=self._id)
            held = self._held[number]
            self._held[number] = held | set(partitions) if kind is Kind.GAIN else held - set(partitions)
            self._changed.notify_all()

    def _look_up(self, process: str, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Ask for the group's committed offsets."""
        operation = self._history.invoke(process, Kind.COMMITTED, group=self._id)
        try:
            answers = consumer.committed(places, self._limit)
        except KafkaException as error:
            self._history.complete(operation, Outcome.UNKNOWN, error=str(error))
            return
        found = {each.partition: max(each.offset, 0) for each in answers if each.error is None}
        offsets: dict[Key, int] = {(self._topic, partition): offset for partition, offset in found.items()}
        self._history.complete(operation, Outcome.OK, offsets=offsets)
        # Among them may be a commit whose answer was lost.
        self._reached(found)

    def _commit(self, process: str, consumer: Consumer, ahead: dict[int, int]) -> bool:
        """Commit, and remove from `ahead` what is committed; whether the call has returned."""
        operation = self._history.invoke(process, Kind.COMMIT, group=self._id)
        asked = [TopicPartition(self._topic, partition, offset) for partition, offset in ahead.items()]

        def commit() -> list[TopicPartition]:
            return consumer.commit(offsets=asked, asynchronous=False) or []

        try:
            answers = within(2 * self._limit, commit)
        except KafkaException as error:
            self._history.complete(operation, Outcome.UNKNOWN, error=str(error))
            return bool(error.args[0].code() != KafkaError._TIMED_OUT)
        done = {each.partition: each.offset for each in answers if each.error is None}
        offsets: dict[Key, int] = {(self._topic, partition): offset for partition, offset in done.items()}
        self._history.complete(operation, Outcome.OK, offsets=offsets)
        self._reached(done)
        for partition in done:
            ahead.pop(partition, None)
        return True

    def _reached(self, offsets: Mapping[int, int]) -> None:
        """The group has committed these offsets."""
        with self._changed:
            for partition, offset in offsets.items():
                self._committed[partition] = max(self._committed.get(partition, 0), offset)
            self._changed.notify_all()


def read_records(consumer: Consumer, topic: str, count: int = 500) -> tuple[Poll, dict[int, int]]:
    """Poll; return the records, and the offset after the last one of each partition.

    Raises:
        KafkaException: a fatal error of the client.
    """
    records: dict[Key, list[tuple[int, str]]] = {}
    positions: dict[int, int] = {}
    for message in consumer.consume(count, POLL):
        partition, offset, value, error = message.partition(), offset_of(message), message.value(), message.error()
        # Not fatal(): it is false for the errors of messages.
        if error is not None and error.code() == KafkaError._FATAL:
            raise KafkaException(error)
        if error is None and partition is not None and offset is not None and value is not None:
            records.setdefault((topic, partition), []).append((offset, value.decode()))
            positions[partition] = offset + 1
    return Poll(records), positions


def offset_of(message: Message) -> int | None:
    """Return the offset of a message that has one."""
    offset = message.offset()
    return None if offset is None or offset < 0 else offset


def close(consumer: Consumer, limit: float) -> None:
    """Close a consumer, or leave it behind."""
    with suppress(KafkaException):
        within(2 * limit, consumer.close)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Run a call that may wait for ever whatever its timeout, in a thread that is left behind if it does.

    ``send_offsets_to_transaction`` does when the group's coordinator goes: librdkafka's issues 5456 and 5511. So does a
    synchronous commit of a member that has lost its group meanwhile. While the group has no coordinator, commits wait
    until it has one again, and so does a close.

    Raises:
        KafkaException: of the call; :class:`NotReturned` if it has not returned in so many seconds.
    """
    returned: Future[T] = Future()

    def run() -> None:
        try:
            returned.set_result(call())
        except BaseException as error:
            returned.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    if not wait([returned], seconds).done:
        raise NotReturned(KafkaError(KafkaError._TIMED_OUT, f"{NO_RETURN} in {seconds:.0f} s"))
    return returned.result()
