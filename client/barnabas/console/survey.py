"""Asks the brokers of a cluster for its topics, brokers, transactions and ACLs."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final

from barnabas.console import overview
from barnabas.console.looks import Look
from barnabas.console.overview import Known
from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import BrokerLogDirs, ConfigEntry, ConfigResource, OffsetSpec
from barnabas_client.cli.advice import for_command_line
from barnabas_client.errors import error_for
from barnabas_client.network.metadata import TopicInfo
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Seconds for which an answer is good enough.
_SECONDS: Final = 1.5
_ACL_SECONDS: Final = 5.0
#: Milliseconds for which a question about many partitions may wait for a broker that does not answer.
_PATIENCE_MS: Final = 5_000
#: Characters of a topic's name: Kafka's limit.
_LONGEST_NAME: Final = 249
#: Topics whose pages are open; beyond that the answer for the one that was asked for least recently is dropped.
_MOST_OPEN: Final = 64
#: Blocked partitions whose producers are asked for.
_MOST_PRODUCERS: Final = 200


class Survey:
    """The topics, brokers, transactions and ACLs of a cluster.

    Args:
        admin: of its brokers.
        now: a monotonic clock, in seconds.
        wall_ms: the time of day, in ms since 1970.
        hidden: why records and ACLs are not shown; None if they are.
    """

    def __init__(
        self, admin: Admin, now: Callable[[], float], wall_ms: Callable[[], int], hidden: str | None = None
    ) -> None:
        self._admin, self._now, self._wall_ms, self._hidden = admin, now, wall_ms, hidden
        self._topics = Look(self._ask_topics, _SECONDS, now)
        self._brokers = Look(self._ask_brokers, _SECONDS, now)
        self._transactions = Look(self._ask_transactions, _SECONDS, now)
        self._acls = Look(self._ask_acls, _ACL_SECONDS, now)
        self._of_one: OrderedDict[str, Look] = OrderedDict()

    async def topics(self) -> dict[str, Any]:
        """A summary of every topic.

        Raises:
            KafkaError: no broker answers.
        """
        return await self._topics.get()

    async def topic(self, name: str) -> dict[str, Any] | None:
        """A topic with its configuration and partitions; None if there is none.

        Raises:
            KafkaError: it cannot be described.
        """
        look = self._of_one.get(name)
        if look is None:
            look = self._of_one[name] = Look(partial(self._ask_topic, name), _SECONDS, self._now)
            if len(self._of_one) > _MOST_OPEN:
                self._of_one.popitem(last=False)
        self._of_one.move_to_end(name)
        return await look.get() or None

    async def brokers(self) -> dict[str, Any]:
        """The brokers, with their log directories.

        Raises:
            KafkaError: no broker answers.
        """
        return await self._brokers.get()

    async def transactions(self) -> dict[str, Any]:
        """The open transactions, and the partitions that wait for them.

        Raises:
            KafkaError: no broker answers.
        """
        return await self._transactions.get()

    async def acls(self) -> dict[str, Any]:
        """The ACLs.

        Raises:
            KafkaError: no broker answers.
        """
        return await self._acls.get()

    def stop(self) -> None:
        """Do not wait for the brokers any more."""
        for look in (self._topics, self._brokers, self._transactions, self._acls, *self._of_one.values()):
            look.stop()

    async def _ask_topics(self) -> dict[str, Any]:
        described = await self._admin.describe_topics()
        known, notes = await self._known(described)
        return await asyncio.to_thread(overview.topics, described, known, time_ms=self._wall_ms(), notes=notes)

    async def metadata_of(self, name: str) -> TopicInfo | None:
        """The partitions of a topic and their leaders; None if there is none.

        Raises:
            KafkaError: it cannot be described.
        """
        if not 0 < len(name) <= _LONGEST_NAME:
            return None
        (described,) = await self._admin.describe_topics([name], raise_errors=False)
        if described.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            return None
        if described.error != ErrorCode.NONE and not described.partitions:
            raise error_for(described.error, f"describe topic {name!r}")
        return described

    async def _ask_topic(self, name: str) -> dict[str, Any]:
        described = await self.metadata_of(name)
        if described is None:
            return {}
        (known, notes), (configs, why) = await asyncio.gather(self._known([described]), self._configs(name))
        return await asyncio.to_thread(
            overview.one_topic,
            described,
            known,
            configs,
            time_ms=self._wall_ms(),
            shows_records=self._hidden is None,
            notes=[*notes, *why],
        )

    async def _configs(self, name: str) -> tuple[list[ConfigEntry], list[str]]:
        """The configuration of a topic, or why it is not known."""
        try:
            (found,) = await self._admin.describe_configs([ConfigResource.topic(name)], raise_errors=False)
        except KafkaError as error:
            return [], [f"The configuration is not known: {for_command_line(error)}"]
        if found.error is not None:
            return [], [f"The configuration is not known: {for_command_line(found.error)}"]
        return list(found.entries.values()), []

    async def _known(self, described: Collection[TopicInfo]) -> tuple[Known, list[str]]:
        """Ask the brokers about partitions; the answers, and why something is missing."""
        partitions = _led(described)
        (starts, _), (stables, ends, why), (log_dirs, reasons) = await asyncio.gather(
            self._offsets(partitions, OffsetSpec.EARLIEST), self._stable(partitions), self._log_dirs()
        )
        notes = [f"Some offsets are not known: {why}"] if why else []
        notes += [f"Sizes of partitions of broker {node} are not known: {reason}" for node, reason in reasons.items()]
        return Known(starts, stables, ends, overview.sizes_of(described, log_dirs)), notes[:20]

    async def _stable(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], str]:
        """The last stable offsets, the ends, and why some are missing.

        The ends come first: records that are written meanwhile would look as if they waited for a transaction.
        """
        ends, why = await self._offsets(partitions, OffsetSpec.LATEST)
        stables, _ = await self._offsets(ends, OffsetSpec.LATEST, read_committed=True)
        return {tp: min(offset, ends[tp]) for tp, offset in stables.items()}, ends, why

    async def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, read_committed: bool = False
    ) -> tuple[dict[TopicPartition, int], str]:
        wanted = dict.fromkeys(partitions, spec)
        if not wanted:
            return {}, ""
        found = await self._admin.list_offsets(wanted, _PATIENCE_MS, read_committed=read_committed, raise_errors=False)
        why = next((for_command_line(one.error) for one in found.values() if one.error is not None), "")
        return {tp: one.offset for tp, one in found.items() if one.error is None}, why

    async def _log_dirs(self) -> tuple[list[BrokerLogDirs], dict[int, str]]:
        """The log directories of the brokers, and why those of a broker are not known."""
        found = await self._admin.describe_log_dirs(timeout_ms=_PATIENCE_MS, raise_errors=False)
        reasons = {each.node_id: for_command_line(each.error) for each in found if each.error is not None}
        # Without permission Kafka answers with an empty list, not with an error, until version 3.
        reasons |= {
            each.node_id: "it names no log directory; that needs DESCRIBE on the cluster"
            for each in found
            if each.error is None and not each.log_dirs
        }
        return found, reasons

    async def _ask_brokers(self) -> dict[str, Any]:
        cluster, described, (log_dirs, reasons) = await asyncio.gather(
            self._admin.describe_cluster(), self._admin.describe_topics(), self._log_dirs()
        )
        return await asyncio.to_thread(overview.brokers, cluster, described, log_dirs, reasons, time_ms=self._wall_ms())

    async def _ask_transactions(self) -> dict[str, Any]:
        admin, notes = self._admin, []
        listed = await admin.list_transactions(timeout_ms=_PATIENCE_MS, raise_errors=False)
        for error in listed.errors:
            notes.append(f"Transactions of a broker are missing here: {for_command_line(error)}")
        opened = [each.transactional_id for each in listed if each.state in overview.OPEN_STATES]
        wanted = opened[: overview.MOST_OPEN]
        described = await admin.describe_transactions(wanted, _PATIENCE_MS, raise_errors=False) if wanted else []
        for each in described:
            if each.error is not None and each.error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                notes.append(f"A transaction is missing here: {for_command_line(each.error)}")
        stables, ends, why = await self._stable(_led(await admin.describe_topics()))
        if why:
            notes.append(f"Some offsets are not known: {why}")
        blocked = {tp: (stable, ends[tp]) for tp, stable in stables.items() if stable < ends[tp]}
        asked = sorted(blocked)[:_MOST_PRODUCERS]
        producers = await admin.describe_producers(asked, _PATIENCE_MS, raise_errors=False) if asked else {}
        return overview.transactions(
            listed, described, blocked, producers, time_ms=self._wall_ms(), notes=list(dict.fromkeys(notes))[:20]
        )

    async def _ask_acls(self) -> dict[str, Any]:
        try:
            found = await self._admin.describe_acls(timeout_ms=_PATIENCE_MS)
        except KafkaError as error:
            if error.code == ErrorCode.SECURITY_DISABLED:
                return overview.acls([], authorizer=False)
            return overview.acls([], authorizer=True, reason=f"ACLs are not known: {for_command_line(error)}")
        if self._hidden is not None:
            return overview.acls([], authorizer=True, reason=self._hidden)
        return await asyncio.to_thread(overview.acls, found, authorizer=True)


def _led(topics: Iterable[TopicInfo]) -> list[TopicPartition]:
    """The partitions that have a leader: the offsets of others are not known."""
    return [
        TopicPartition(topic.name, number)
        for topic in topics
        for number, each in topic.partitions.items()
        if each.leader >= 0
    ]
