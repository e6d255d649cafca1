"""Fetches that other brokers see than the coordinator of a group. Pure.

A member sends its Fetches to the leaders of its partitions, and everything else to its coordinator. So brokers tell
each other what they see of clients:

- A coordinator asks the other brokers about the clients of which it wants to know more: those whose committed offsets
  stand still. The leaders then count their Fetches, as it does itself for the partitions that it leads, and answer with
  the counts, each time that they are asked. It also asks them about the logs of which it has no replica
  (:class:`FetchQuestions`, :class:`FetchReporter`).
- A leader sends the others what is rare and goes wrong when a client reads that is no member of a group here, such as a
  Fetch of records that were deleted (:class:`FetchNotices`).

The messages travel in Envelope requests, which only brokers may send.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from barnabas_broker.coordinators.leader import DistantLog
from barnabas_broker.groups.ports import OtherBrokers, ReadLogs
from barnabas_broker.groups.sightings import Away, ClientAddress, Clients, SeenClient
from barnabas_broker.groups.stuck import Standing, Watch
from barnabas_broker.groups.watched import MOST
from barnabas_broker.recent import Lately
from barnabas_broker.steps import Steps
from barnabas_explain.members import Partition
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.schema import BOOLEAN, INT8, INT32, INT64, STRING, Data, Struct, array, field
from barnabas_protocol.wire import Buffer

#: The version of these messages between brokers.
VERSION: Final = 0
#: What a leader counts for another broker is forgotten if that has not asked for so many seconds.
_FORGET_SECONDS: Final = 180.0
#: What a broker has said of a client counts for so many seconds: three looks.
_SAID_SECONDS: Final = 90.0
#: Of a time that is not known, in ms.
UNKNOWN: Final = -1
#: Whether something is so, or is not known.
_NUMBERS: Final = {None: UNKNOWN, False: 0, True: 1}
#: Clients and partitions of one question, or logs.
_STEP: Final = 100
#: Elements of a message that are decoded; a question has some hundreds, and notices have some thousands.
_MOST_ELEMENTS: Final = 10_000

#: The kinds of notices, and for how many seconds one of a client and partition is not sent again.
KINDS: Final = (
    ("out_of_range", 5.0),
    ("looked_up", 1.0),
    ("from_start", 1.0),
    ("gets", 1.0),
    ("begins_at_end", 1.0),
    ("waited", 5.0),
    ("denied", 60.0),
    ("throttled", 20.0),
)
#: Notices of a kind that are sent within that time.
_MOST_NOTICES: Final = 200

#: Clients, and their partitions whose committed offsets stand still, with the number of the count of each.
_Asked = dict[ClientAddress, dict[Partition, tuple[Standing, int]]]


class AskedPartition(Struct):
    """A partition that the other broker leads, of which it is to count the Fetches of a client."""

    topic: str = field(STRING)
    partition: int = field(INT32)
    #: In which the broker leads the partition, as far as the one that asks knows.
    leader_epoch: int = field(INT32)
    #: Another number begins another count.
    count: int = field(INT64)


class AskedClient(Struct):
    """A client, and those of its partitions whose committed offsets stand still."""

    client_id: str = field(STRING)
    host: str = field(STRING)
    partitions: list[AskedPartition] = field(array(AskedPartition))


class AskedLog(Struct):
    """A partition that the other broker leads, and of which the one that asks has no replica."""

    topic: str = field(STRING)
    partition: int = field(INT32)
    #: From which on records are to be looked for; -1 if they are not.
    offset: int = field(INT64)


class FetchNotice(Struct):
    """Something that goes wrong when a client reads.

    Attributes:
        kind: the method of :class:`.Fetches` that takes note of it.
        numbers, text: what it gets besides.
    """

    kind: str = field(STRING)
    client_id: str = field(STRING)
    host: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)
    numbers: list[int] = field(array(INT64))
    text: str = field(STRING)


class FetchMessage(Data, versions="0", flexible="0+"):
    """Message to another broker: notices of what was seen of clients, and the clients and the logs about which it is
    asked. A client with many partitions is in several messages, with some of them in each."""

    MAX_ELEMENTS = _MOST_ELEMENTS

    notices: list[FetchNotice] = field(array(FetchNotice))
    clients: list[AskedClient] = field(array(AskedClient))
    logs: list[AskedLog] = field(array(AskedLog))


class ReportedPartition(Struct):
    """The Fetches of a client of a partition; :class:`.Watch` says what the counts are."""

    #: For how long its Fetches have been counted; -1: they are not, as another broker leads it, or there are too many.
    counted_ms: int = field(INT64)
    asked_ago_ms: int = field(INT64)
    first: int = field(INT64)
    furthest: int = field(INT64)
    again: int = field(INT64)
    deliveries: int = field(INT32)
    reconnects: int = field(INT32)
    size: int = field(INT64)
    most: int = field(INT64)
    pause_ms: int = field(INT64)
    reads_ago_ms: list[int] = field(array(INT64))
    #: The Fetches of the client since then.
    fetches: int = field(INT64)


class ReportedClient(Struct):
    """The Fetches of a client."""

    #: For how long its Fetches have been seen, and how long ago the last one was; -1 for none.
    seen_ms: int = field(INT64)
    fetched_ago_ms: int = field(INT64)
    #: Whether that was one of a ``read_committed`` consumer; -1 if that is not known.
    is_committed: int = field(INT8)
    throttled_ago_ms: int = field(INT64)
    #: Whether the broker coordinates a group with a member that has its client id and host.
    is_member: bool = field(BOOLEAN)
    #: Whether it has a connection to the broker.
    is_connected: bool = field(BOOLEAN)
    partitions: list[ReportedPartition] = field(array(ReportedPartition))


class ReportedLog(Struct):
    """A log; see :class:`.DistantLog`."""

    #: -1 if another broker leads the partition.
    start: int = field(INT64)
    stable: int = field(INT64)
    #: -1 if that is not known.
    has_records: int = field(INT8)


class FetchReport(Data, versions="0", flexible="0+"):
    """The answer: the clients, partitions and logs about which a broker has asked, in that order."""

    MAX_ELEMENTS = _MOST_ELEMENTS

    clients: list[ReportedClient] = field(array(ReportedClient))
    logs: list[ReportedLog] = field(array(ReportedLog))


class _Count(NamedTuple):
    """The Fetches of a partition that are counted for another broker.

    Attributes:
        number: of the count.
        since: since when, in seconds on the coordinator's clock.
        asked_at: when a broker asked last.
        watch: the counts.
    """

    number: int
    since: float
    asked_at: float
    watch: Watch


class _Counted:
    """A client whose Fetches are counted for another broker.

    Attributes:
        seen: the client.
        since: since when, in seconds on the coordinator's clock.
        asked_at: when a broker asked last.
        counts: by partition; the one that was asked about least lately comes first.
    """

    __slots__ = ("asked_at", "counts", "seen", "since")

    def __init__(self, seen: SeenClient, now: float) -> None:
        self.seen = seen
        self.since = self.asked_at = now
        self.counts: dict[Partition, _Count] = {}


class FetchReporter:
    """Counts Fetches for the coordinators on other brokers.

    Args:
        clients: the clients that have a connection.
        logs: the logs on this broker; None if they are not known.
        coordinates: whether this broker coordinates a group.
    """

    def __init__(self, clients: Clients, logs: ReadLogs | None, coordinates: Callable[[str], bool]) -> None:
        self._clients = clients
        self._logs = logs
        self._coordinates = coordinates
        #: The client that was asked about least lately comes first.
        self._counted: dict[ClientAddress, _Counted] = {}
        #: The number of partitions.
        self._partitions = 0

    def report(self, question: FetchMessage, now: float) -> Steps[FetchReport]:
        """Answer a question of another broker, a client, partition or log per step.

        Args:
            question: of the other broker.
            now: in seconds on the coordinator's clock.
        """
        while self._counted:
            address, first = next(iter(self._counted.items()))
            if now - first.asked_at < _FORGET_SECONDS:
                break
            self._forget(address)
        report = FetchReport(clients=[], logs=[])
        for client in question.clients:
            report.clients.append((yield from self._of_client(client, now)))
            yield
        for log in question.logs:
            report.logs.append(self._of_log(log))
            yield
        return report

    def _forget(self, address: ClientAddress) -> None:
        self._partitions -= len(self._counted.pop(address).counts)

    def _forget_counts(self, known: _Counted, now: float) -> None:
        """Forget the partitions of a client about which no broker has asked lately."""
        while known.counts:
            place, first = next(iter(known.counts.items()))
            if now - first.asked_at < _FORGET_SECONDS:
                return
            del known.counts[place]
            self._partitions -= 1

    def _of_client(self, asked: AskedClient, now: float) -> Steps[ReportedClient]:
        address = ClientAddress(asked.client_id, asked.host)
        known = self._counted.pop(address, None)
        if known is None and len(self._counted) < MOST:
            known = _Counted(self._clients.get(address), now)
        if known is not None:
            self._counted[address] = known
            known.asked_at = now
            self._forget_counts(known, now)
        seen = self._clients.find(address)
        members = () if seen is None else (member for each in seen.connections for member in each.members)
        reported = ReportedClient(
            seen_ms=UNKNOWN if known is None else _ago(known.since, now),
            fetched_ago_ms=UNKNOWN if seen is None else _ago(seen.fetched_at, now),
            is_committed=_NUMBERS[None if seen is None else seen.is_committed],
            throttled_ago_ms=UNKNOWN if seen is None else _ago(seen.throttled_at, now),
            is_member=any(self._coordinates(group_id) for group_id, _ in members),
            is_connected=self._clients.is_connected(address),
            partitions=[],
        )
        for partition in asked.partitions:
            reported.partitions.append(self._of_partition(known, partition, now))
            yield
        return reported

    def _of_partition(self, known: _Counted | None, asked: AskedPartition, now: float) -> ReportedPartition:
        place = asked.topic, asked.partition
        leader = None if self._logs is None else self._logs.leader(*place)
        is_led = leader is not None and leader.is_here and leader.epoch == asked.leader_epoch
        before = None if known is None else known.counts.get(place)
        if known is None or not is_led or (before is None and self._partitions >= MOST):
            return _reported(Watch(), None, 0, now)
        if before is None:
            self._partitions += 1
        else:
            del known.counts[place]  # The newest one is the last one.
        if before is None or before.number != asked.count:
            before = _Count(asked.count, now, now, Watch())
            known.seen.watch(place, before.watch)
        known.counts[place] = before._replace(asked_at=now)
        return _reported(before.watch, before.since, known.seen.fetches - before.watch.began, now)

    def _of_log(self, asked: AskedLog) -> ReportedLog:
        place, logs = (asked.topic, asked.partition), self._logs
        leader = None if logs is None else logs.leader(*place)
        readable = None if logs is None or leader is None or not leader.is_here else logs.readable(*place)
        if logs is None or readable is None:
            return ReportedLog(start=UNKNOWN, stable=UNKNOWN, has_records=UNKNOWN)
        has_records = None if asked.offset < 0 else logs.has_records(*place, asked.offset)
        return ReportedLog(start=readable[0], stable=readable[1], has_records=_NUMBERS[has_records])


class FetchNotices:
    """Sends the other brokers what goes wrong when a client reads that is no member of a group here: one of them may
    coordinate its group. What they do not get is lost.

    Args:
        others: the other brokers; None without any.
        now: the coordinator's clock, in seconds.
        gradually: does work, a step in each iteration of the event loop.
    """

    def __init__(
        self,
        others: OtherBrokers | None,
        now: Callable[[], float],
        gradually: Callable[[Iterator[None]], None],
    ) -> None:
        self._others = others
        self._now = now
        self._gradually = gradually
        #: What was sent lately, by kind.
        self._sent = {kind: Lately[tuple[ClientAddress, Partition]](seconds, _MOST_NOTICES) for kind, seconds in KINDS}
        self._waiting: list[FetchNotice] = []

    @property
    def has_others(self) -> bool:
        """Whether there are other brokers."""
        return self._others is not None and bool(self._others.all())

    def add(self, kind: str, client: ClientAddress, place: Partition, *numbers: int, text: str = "") -> None:
        """Send a notice, unless one of this kind was sent lately, or too many."""
        if self._others is None or not self.has_others or not self._sent[kind].add((client, place), self._now()):
            return
        self._waiting.append(
            FetchNotice(
                kind=kind,
                client_id=client.client_id,
                host=client.host,
                topic=place[0],
                partition=place[1],
                numbers=list(numbers),
                text=text,
            )
        )
        if len(self._waiting) == 1:
            self._gradually(self._send(self._others))

    def was_sent(self, kind: str, client: ClientAddress, place: Partition) -> bool:
        """Whether a notice of a kind was sent lately."""
        return (client, place) in self._sent[kind]

    def _send(self, others: OtherBrokers) -> Iterator[None]:
        yield  # The notices of one request go together.
        notices, self._waiting = self._waiting, []
        message = encode(FetchMessage(notices=notices, clients=[], logs=[]), VERSION)
        for node_id in others.all():
            others.ask(node_id, message, _ignored)


def _ignored(answer: Buffer | None) -> None:
    """Nothing is answered to notices."""


class FetchQuestions:
    """Asks the other brokers what they have seen of clients, and about the logs of which this one has no replica.

    Args:
        clients: the clients that have a connection; they get the answers.
        logs: the logs that groups read; they get the answers, too.
        others: the other brokers; None without any.
        now: the coordinator's clock, in seconds.
    """

    def __init__(
        self, clients: Clients, logs: ReadLogs | None, others: OtherBrokers | None, now: Callable[[], float]
    ) -> None:
        self._clients = clients
        self._logs = logs
        self._others = others
        self._now = now
        self._asked: _Asked = {}
        #: The distant logs, and the offsets from which on records are looked for.
        self._distant: dict[Partition, int] = {}
        #: The brokers to ask.
        self._node_ids: Collection[int] = ()

    def begin(self) -> None:
        """Collect questions from now on, if there are other brokers."""
        self._node_ids = () if self._others is None else self._others.all()

    def add(self, address: ClientAddress, place: Partition | None = None, standing: Standing | None = None) -> None:
        """Ask about a client, and about its Fetches of a partition."""
        if self._node_ids:
            places = self._asked.setdefault(address, {})
            if place is not None and standing is not None:
                places[place] = standing, standing.count

    def ask_again(self, address: ClientAddress, client: SeenClient) -> None:
        """Ask the brokers that have said that they coordinate a group with a member of a client whether they still do.

        One that has left the cluster does not say so again.
        """
        now = self._now()
        client.member_at = {each: at for each, at in client.member_at.items() if now - at < _SAID_SECONDS}
        if client.member_at:
            self.add(address)

    def add_log(self, place: Partition, offset: int = UNKNOWN) -> None:
        """Ask about the log of a partition, if it is distant.

        Args:
            place: topic and partition.
            offset: from which on records are to be looked for; -1 if they are not.
        """
        if self._node_ids and self._logs is not None and len(self._distant) < MOST and self._logs.is_distant(*place):
            self._distant[place] = max(offset, self._distant.get(place, UNKNOWN))

    def ask(self) -> Iterator[None]:
        """Ask about all that was added, some clients and logs per step."""
        asked, self._asked = self._asked, {}
        distant, self._distant = self._distant, {}
        if self._others is None or self._logs is None:
            return
        found: dict[Partition, DistantLog] = {}
        self._logs.learn(found)
        for some in _in_parts(asked):
            for node_id in self._node_ids:
                self._send(self._others, node_id, {address: _led_by(node_id, each) for address, each in some.items()})
                yield
        by_leader: dict[int, list[AskedLog]] = {}
        for number, ((topic, partition), offset) in enumerate(distant.items(), 1):
            leader = self._logs.leader(topic, partition)
            if leader is not None and leader.node_id in self._node_ids:
                asking = AskedLog(topic=topic, partition=partition, offset=offset)
                by_leader.setdefault(leader.node_id, []).append(asking)
            if not number % _STEP:
                yield
        for node_id, logs in by_leader.items():
            for first in range(0, len(logs), _STEP):
                some_logs = logs[first : first + _STEP]
                message = encode(FetchMessage(notices=[], clients=[], logs=some_logs), VERSION)
                self._others.ask(node_id, message, partial(self._logs_answered, some_logs, found))
                yield

    def _send(self, others: OtherBrokers, node_id: int, asked: "_Asked") -> None:
        clients = [
            AskedClient(
                client_id=address.client_id,
                host=address.host,
                partitions=[_asked(place, *each) for place, each in places.items()],
            )
            for address, places in asked.items()
        ]
        message = encode(FetchMessage(notices=[], clients=clients, logs=[]), VERSION)
        others.ask(node_id, message, partial(self._answered, node_id, asked))

    def _answered(self, node_id: int, asked: "_Asked", answer: Buffer | None) -> None:
        """A broker has answered about clients; None: it has not."""
        report = _read(answer)
        if report is None or [len(each.partitions) for each in report.clients] != [*map(len, asked.values())]:
            for places in asked.values():
                for standing, count in places.values():
                    standing.unheard(count)
            return
        for (address, places), reported in zip(asked.items(), report.clients, strict=True):
            client = self._clients.find(address)
            if client is not None:
                self._take(client, node_id, reported, places)

    @staticmethod
    def _logs_answered(asked: list[AskedLog], found: dict[Partition, DistantLog], answer: Buffer | None) -> None:
        """A broker has answered about logs; None: it has not."""
        report = _read(answer)
        for log, reported in zip(asked, () if report is None else report.logs, strict=False):
            if reported.start >= 0:
                has_records = None if reported.has_records < 0 else bool(reported.has_records)
                place = log.topic, log.partition
                found[place] = DistantLog(reported.start, reported.stable, log.offset, has_records)

    def _take(
        self,
        client: SeenClient,
        node_id: int,
        reported: ReportedClient,
        places: Mapping[Partition, tuple[Standing, int]],
    ) -> None:
        """Take over what a broker has seen of a client."""
        now = self._now()
        fetched_at, throttled_at = _at(reported.fetched_ago_ms, now), _at(reported.throttled_ago_ms, now)
        if fetched_at is None:
            # It may have fetched before its Fetches were looked at.
            fetched_at = _at(reported.seen_ms, now)
        elif reported.is_committed in (0, 1) and fetched_at >= (client.fetched_at or fetched_at):
            client.is_committed = bool(reported.is_committed)
        client.fetched_at = max((each for each in (client.fetched_at, fetched_at) if each is not None), default=None)
        client.throttled_at = max(
            (each for each in (client.throttled_at, throttled_at) if each is not None), default=None
        )
        away, last = client.away_from.pop(node_id, None), _at(reported.fetched_ago_ms, now)
        # The program that had its client id before may have fetched there.
        has_fetched = last is not None and (client.joined_at is None or last >= client.joined_at)
        if reported.seen_ms >= 0 and not has_fetched and not reported.is_connected:
            goes_on = away is not None and now - away.until <= _SAID_SECONDS
            client.away_from[node_id] = Away(away.since if away is not None and goes_on else now, now)
        if reported.is_member:
            client.member_at[node_id] = now
        else:
            client.member_at.pop(node_id, None)
        for (place, (standing, count)), each in zip(places.items(), reported.partitions, strict=True):
            watch = _watch_of(each, now)
            if each.counted_ms < 0:
                standing.unheard(count)
            elif standing.heard(count, watch, now - each.counted_ms / 1000):
                client.watch(place, watch)
                watch.began = client.fetches - each.fetches


def _read(answer: Buffer | None) -> FetchReport | None:
    """The answer of a broker; None if there is none that can be read."""
    with suppress(DecodeError):
        return None if answer is None else decode(FetchReport, VERSION, answer)
    return None


def _in_parts(asked: _Asked) -> Iterator[_Asked]:
    """The clients and partitions of one question after the other. A client with many partitions is in several."""
    some: _Asked = {}
    size = 0
    for address, places in asked.items():
        for each in (None, *places.items()):
            if size >= _STEP:
                yield some
                some, size = {}, 0
            if address not in some:
                some[address] = {}
                size += 1
            if each is not None:
                some[address][each[0]] = each[1]
                size += 1
    if some:
        yield some


def _led_by(node_id: int, places: Mapping[Partition, tuple[Standing, int]]) -> dict[Partition, tuple[Standing, int]]:
    """The partitions that another broker leads."""
    return {
        place: each
        for place, each in places.items()
        if (leader := each[0].leader) is not None and leader.node_id == node_id and not leader.is_here
    }


def _asked(place: Partition, standing: Standing, count: int) -> AskedPartition:
    epoch = UNKNOWN if standing.leader is None else standing.leader.epoch
    return AskedPartition(topic=place[0], partition=place[1], leader_epoch=epoch, count=count)


def _watch_of(reported: ReportedPartition, now: float) -> Watch:
    """The counts that another broker has reported now."""
    watch = Watch()
    watch.asked_at = _at(reported.asked_ago_ms, now)
    watch.first, watch.furthest, watch.again = reported.first, reported.furthest, reported.again
    watch.deliveries, watch.reconnects = reported.deliveries, reported.reconnects
    watch.size, watch.most, watch.pause = reported.size, reported.most, reported.pause_ms / 1000
    watch.reads = tuple(now - each / 1000 for each in reported.reads_ago_ms)
    return watch


def _at(ago_ms: int, now: float) -> float | None:
    return None if ago_ms < 0 else now - ago_ms / 1000


def _reported(watch: Watch, since: float | None, fetches: int, now: float) -> ReportedPartition:
    return ReportedPartition(
        counted_ms=_ago(since, now),
        asked_ago_ms=_ago(watch.asked_at, now),
        first=watch.first,
        furthest=watch.furthest,
        again=watch.again,
        deliveries=watch.deliveries,
        reconnects=watch.reconnects,
        size=watch.size,
        most=watch.most,
        pause_ms=round(watch.pause * 1000),
        reads_ago_ms=[_ago(each, now) for each in watch.reads],
        fetches=fetches,
    )


def _ago(time: float | None, now: float) -> int:
    return UNKNOWN if time is None else max(round((now - time) * 1000), 0)
