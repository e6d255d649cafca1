"""A group whose members are programs that can be made ill."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import Any, Final

from barnabas.errors import UnknownTopicOrPartitionError
from barnabas.explain import GroupStory, follow_group
from barnabas.sync import Admin, Producer
from barnabas_client.loop_thread import loop_thread
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.interop.kafka_server import tool_command
from tests.interop.process import end, run, spawn
from tests.link import Link
from tests.wire import Wire

#: Seconds for what has to happen: sessions of 6 s, on a machine that is busy.
LIMIT: Final = 90
#: The library of Apache Kafka.
JAVA: Final = "kafka-clients (Java)"
JAVA_PROGRAM: Final = Path(__file__).with_name("Patient.java")


class Ward:
    """A group of one library and protocol.

    Args:
        bootstrap: of the broker.
        group: the group.
        topic: that it reads.
        library: of its members, one of :data:`tests.clinic.patient.LIBRARIES`, or :data:`JAVA`.
        protocol: "classic" or "consumer".
        poll_ms: max.poll.interval.ms of its members.
        session_ms: their session timeout, if they use the classic protocol.
        classes: folder with the class of the Java program; None if no member is one.
        own_names: whether each member has a client id; otherwise the library chooses it.
        restart: restarts the broker.
        link: the network of members that can be cut off from the broker.
        lost: the port of a listener whose advertised address cannot be reached.

    Attributes:
        bootstrap: of the broker.
        group: the group.
        topic: that it reads.
        link: the network of members that can be cut off.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        library: str,
        protocol: str,
        poll_ms: int,
        session_ms: int,
        classes: Path | None = None,
        own_names: bool = True,
        restart: Callable[[], None] | None = None,
        link: Link | None = None,
        lost: int | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.link = link
        self._lost = lost
        self._restart = restart
        self._classes = classes
        self._library = library
        self._own_names = own_names
        self._settings: dict[str, Any] = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": [topic],
            "protocol": protocol,
            "session_ms": session_ms,
            "poll_ms": poll_ms,
        }
        self._stack = ExitStack()
        self._patients: dict[str, subprocess.Popen[str]] = {}
        self._news = threading.Condition()
        #: The member id of each member when it settled, by its name here.
        self._ids: dict[str, str] = {}
        #: The partitions that each member has last said it owns.
        self._owned: dict[subprocess.Popen[str], list[str]] = {}
        self._listeners: dict[subprocess.Popen[str], threading.Thread] = {}

    def close(self) -> None:
        """End all programs, and mend the network."""
        for name in list(self._patients):
            self.kill(name)
        if self.link is not None:
            self.mend()
        self._stack.close()

    def admit(
        self,
        name: str,
        instance_id: str | None = None,
        topics: Sequence[str] = (),
        poison: tuple[int, int] | None = None,
        retries: tuple[int, int] | None = None,
        delay_ms: int = 200,
        commits: bool = True,
        assign: Sequence[int] = (),
        rewinds: bool = False,
        last: bool = False,
        untaken: bool = False,
        transactions: str | None = None,
        reset: str = "earliest",
        assignor: str | None = None,
        protocol: str | None = None,
        cuttable: bool = False,
        lost: bool = False,
        committed: bool = False,
        commit_ms: int = 1_000,
        session_ms: int | None = None,
        metadata_ms: int = 1_000,
    ) -> None:
        """Start a member.

        Args:
            name: its client id.
            instance_id: its group.instance.id.
            topics: that it reads, the ward's if none are given. A name that begins with ^ is an expression.
            poison: partition and offset of a record at which it ends.
            retries: partition and offset of a record that it reads again and again.
            delay_ms: for how long it waits before it does so.
            commits: whether it commits.
            rewinds: whether its rebalance listener goes back to the beginning.
            last: whether it commits the offset of the last record in place of the next one.
            untaken: whether its rebalance listener takes none of its partitions.
            transactions: the group to which it commits in transactions.
            assign: the partitions that it reads without being a member; none if it subscribes.
            reset: its auto.offset.reset.
            assignor: its only assignor; None for those that its library has by itself.
            protocol: its protocol; the ward's if it is None.
            cuttable: whether its network can be cut.
            committed: whether it is read_committed in any case.
            lost: whether it gets an address of the broker that cannot be reached.
            session_ms: its session timeout; the ward's if it is None.
            commit_ms: its auto.commit.interval.ms. A commit counts as a heartbeat.
            metadata_ms: its metadata.max.age.ms.
        """
        client_id = name if self._own_names else None
        settings = {**self._settings, "client_id": client_id, "instance_id": instance_id}
        settings |= {"retries": retries, "commits": commits, "assign": list(assign), "rewinds": rewinds}
        settings |= {"last": last, "untaken": untaken, "transactions": transactions, "committed": committed}
        settings |= {
            "delay_ms": delay_ms,
            "poison": poison,
            "reset": reset,
            "assignor": assignor,
            "commit_ms": commit_ms,
            "metadata_ms": metadata_ms,
        }
        if session_ms is not None:
            settings["session_ms"] = session_ms
        if protocol is not None:
            settings["protocol"] = protocol
        if cuttable:
            assert self.link is not None
            settings["bootstrap"] = f"127.0.0.1:{self.link.port}"
        if lost:
            assert self._lost is not None
            settings["bootstrap"] = f"127.0.0.1:{self._lost}"
        if topics:
            settings["topics"] = list(topics)
        if name in self._patients:
            self.kill(name)  # It has ended by itself.
        patient = self._patients[name] = spawn(
            self._command(settings), subprocess.PIPE, subprocess.PIPE, subprocess.DEVNULL
        )
        self._owned[patient] = []
        self._listeners[patient] = threading.Thread(target=self._listen, args=(patient,))
        self._listeners[patient].start()

    def _command(self, settings: dict[str, Any]) -> list[str]:
        arguments = json.dumps(settings)
        if self._library == JAVA:
            return self._stack.enter_context(tool_command(JAVA_PROGRAM.stem, [arguments], more=self._classes))
        return [sys.executable, "-m", "tests.clinic.patient", self._library, arguments]

    def settle(self, *names: str) -> None:
        """Wait until each of these members owns a partition, as it says."""
        with self._news:
            settled = self._news.wait_for(lambda: all(self._owned.get(self._patients[name]) for name in names), LIMIT)
            assert settled, f"not within {LIMIT} s: {names} own partitions\n{self.transcript()}"
            owned = {name: self._owned[self._patients[name]] for name in names}
        if not self._own_names:
            self._identify(owned)

    def settle_with(self, name: str, partitions: int) -> None:
        """Wait until a member owns so many partitions, as it says."""
        with self._news:
            settled = self._news.wait_for(lambda: len(self._owned.get(self._patients[name], ())) == partitions, LIMIT)
        assert settled, f"not within {LIMIT} s: {name} owns {partitions} partitions\n{self.transcript()}"

    def _identify(self, owned: dict[str, list[str]]) -> None:
        """Find the member ids of members by the partitions that they own; the first one counts."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            (group,) = admin.describe_consumer_groups([self.group])
        for member in group.members:
            partitions = sorted(f"{each.topic}-{each.partition}" for each in member.partitions)
            for name in (name for name, has in owned.items() if has == partitions):
                self._ids.setdefault(name, member.member_id)

    def told(self, part: str) -> str:
        """A part of an explanation as it is if members have no client ids: the ends of their ids tell them apart."""
        if self._own_names:
            return part
        if part in self._ids and len(self._ids) > 1:
            return f"…{self._ids[part][-4:]}"
        return part.removesuffix("sick")

    def restart_broker(self) -> None:
        """Restart the broker."""
        assert self._restart is not None
        self._restart()

    def cut(self) -> None:
        """Cut the network of the members that are cuttable."""
        assert self.link is not None
        loop_thread().run(self.link.cut())

    def drop(self) -> None:
        """Cut the connections of the members that are cuttable, and let new ones pass."""
        assert self.link is not None
        loop_thread().run(self.link.drop())

    def mend(self) -> None:
        """Mend that network."""
        assert self.link is not None
        loop_thread().run(self.link.mend())

    def produce(self, records: int) -> None:
        """Write so many records to each partition of the topic."""
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(2 * records):
                producer.send(self.topic, b"record", partition=number % 2)

    def leave_open(self, transactional_id: str) -> None:
        """Write records to each partition of the topic in a transaction that nothing ends."""
        producer = self._stack.enter_context(
            Producer(bootstrap_servers=self.bootstrap, transactional_id=transactional_id, transaction_timeout_ms=45_000)
        )
        producer.begin_transaction()
        for partition in range(2):
            producer.send(self.topic, b"open", partition=partition)
        producer.flush()

    def produce_until(
        self, what: str, check: Callable[[GroupStory], bool], then: Callable[[int], None] = lambda written: None
    ) -> None:
        """Write records, one after the other, until what is said about the group is as expected.

        Args:
            what: is expected.
            check: whether it is so.
            then: called with the number of records that were written to each partition, after each.
        """
        for written in range(1, LIMIT + 1):
            self.produce(1)
            then(written)
            with suppress(TimeoutError):
                asyncio.run(asyncio.wait_for(self._follow(check), 1))
                return
        raise AssertionError(f"not within {LIMIT} s: {what}\n{self.transcript()}")

    def grow_until(self, what: str, check: Callable[[GroupStory], bool]) -> None:
        """Add partitions with 10 records to the topic, one after the other, until what is said is as expected."""
        for partitions in range(3, 30):
            with Admin(bootstrap_servers=self.bootstrap) as admin:
                admin.create_partitions({self.topic: partitions})
            with Producer(bootstrap_servers=self.bootstrap) as producer:
                for _ in range(10):
                    producer.send(self.topic, b"record", partition=partitions - 1)
            with suppress(TimeoutError):
                asyncio.run(asyncio.wait_for(self._follow(check), 5))
                return
        raise AssertionError(f"not within {partitions} partitions: {what}\n{self.transcript()}")

    def offsets(self) -> dict[int, int]:
        """The committed offsets of the group by partition."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            found = admin.list_consumer_group_offsets(self.group)
        return {tp.partition: one.offset for tp, one in found.items() if one.offset is not None}

    def committed(self) -> int:
        """The sum of the committed offsets of the group."""
        return sum(self.offsets().values())

    def commit_for(self, milliseconds: int) -> None:
        """Commit offsets of both partitions that expire after that time, as clients before Kafka 2.1 could."""
        asyncio.run(self._commit_for(milliseconds))

    async def _commit_for(self, milliseconds: int) -> None:
        places = [
            OffsetCommitRequestPartition(partition_index=number, committed_offset=10, committed_metadata="")
            for number in range(2)
        ]
        topics = [OffsetCommitRequestTopic(name=self.topic, partitions=places)]
        request = OffsetCommitRequest(group_id=self.group, retention_time_ms=milliseconds, topics=topics)
        async with await Wire.connect(int(self.bootstrap.rpartition(":")[2])) as wire:
            answer = await wire.ask(request, 4, OffsetCommitResponse)
        assert not any(each.error_code for topic in answer.topics for each in topic.partitions)

    def order(self, name: str, what: str) -> None:
        """Ask a member to be ill."""
        stdin = self._patients[name].stdin
        assert stdin is not None
        stdin.write(f"{what}\n")
        stdin.flush()

    def send(self, name: str, number: int) -> None:
        """Send a signal to a member."""
        self._patients[name].send_signal(number)

    def kill(self, name: str) -> None:
        """Kill a member."""
        self._end(self._patients.pop(name), 0)

    def discharge(self, name: str) -> None:
        """End a member in order: its standard input ends."""
        patient = self._patients.pop(name)
        assert patient.stdin is not None
        patient.stdin.close()
        patient.wait(LIMIT)
        self._end(patient, 0)

    def wait_for(self, what: str, check: Callable[[GroupStory], bool]) -> None:
        """Follow what is said about the group until it is as expected."""
        try:
            asyncio.run(asyncio.wait_for(self._follow(check), LIMIT))
        except TimeoutError:
            raise AssertionError(f"not within {LIMIT} s: {what}\n{self.transcript()}") from None

    def wait_for_end(self, name: str) -> None:
        """Wait until the program of a member has ended by itself."""
        self._patients[name].wait(LIMIT)

    async def _follow(self, check: Callable[[GroupStory], bool]) -> None:
        while True:
            # The topic with the events is made when the broker has events of its first group.
            with suppress(UnknownTopicOrPartitionError):
                async with aclosing(follow_group(self.group, bootstrap_servers=self.bootstrap)) as stories:
                    async for story in stories:
                        if check(story):
                            return

    def transcript(self) -> str:
        """What `barnabas groups explain` says, for a failure."""
        command = [sys.executable, "-m", "barnabas_client.cli", "groups", "explain", self.group]
        return run([*command, "-b", self.bootstrap], LIMIT).stdout

    def _listen(self, patient: subprocess.Popen[str]) -> None:
        """Keep the partitions that a member says it owns, until its process ends."""
        assert patient.stdout is not None
        for line in patient.stdout:
            with self._news:
                self._owned[patient] = json.loads(line)
                self._news.notify_all()

    def _end(self, patient: subprocess.Popen[str], grace: float) -> None:
        end(patient, grace)
        self._listeners.pop(patient).join()
        for stream in (patient.stdin, patient.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
