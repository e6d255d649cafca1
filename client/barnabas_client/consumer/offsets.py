"""Offsets: committed ones, at the group's coordinator, and the offsets of a partition, at its leader.

**Committing.** A commit carries the member's generation, so that the coordinator refuses it when the partitions belong
to another member by now; outside of the group protocol it carries generation -1. :meth:`OffsetStore.commit` tries again
while that may help and time is left. A commit in the background is tried once: a repeated one could overtake a later
one and set the group back (Kafka's ``commitAsync``).

**Topic ids.** Commits and fetches name topics by their ids if the metadata has them all, so that a topic that was
deleted and created again is not taken for the one before (KIP-848). After UNKNOWN_TOPIC_ID the metadata is requested
again. A commit that is tried again keeps the ids of its first attempt: its offsets are not those of the new topic.

**Listing.** :func:`list_offsets` asks each partition's leader for the offset of a time, of the start or of the end.

Sources: ``ConsumerCoordinator.java`` (OffsetCommitResponseHandler), ``OffsetFetcherUtils.java``.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from barnabas_client.errors import (
    CommitFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    error_for,
)
from barnabas_client.membership.member import NO_GENERATION, NOT_A_MEMBER, CommitIdentity
from barnabas_client.membership.membership import Membership
from barnabas_client.meters import Meter
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import NO_ID, Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.retries import retry_backoff
from barnabas_client.network.versions import OFFSETS_BY_NAME
from barnabas_client.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    by_topic,
)
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopics,
)

LATEST: Final = -1
EARLIEST: Final = -2

#: The coordinator does not know this member or its generation.
_NOT_A_MEMBER: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class _TopicIds:
    """The ids of the topics of a request for committed offsets.

    Args:
        cluster: knows them.
        topics: their names.
    """

    def __init__(self, cluster: Cluster, topics: Collection[str]) -> None:
        self.by_name: Final = {topic: cluster.topic_id(topic) for topic in topics}
        self._names = {topic_id: topic for topic, topic_id in self.by_name.items()}

    @property
    def newest_version(self) -> int | None:
        """The newest version of the request to use; None if all ids are known."""
        return OFFSETS_BY_NAME if NO_ID in self._names else None

    def check(self, cluster: Cluster, group: str) -> None:
        """Check that the topics are still the same ones.

        Raises:
            CommitFailedError: one was deleted and created again.
        """
        for topic, before in self.by_name.items():
            now = cluster.topic_id(topic)
            if NO_ID not in (before, now) and now != before:
                raise CommitFailedError(
                    f"commit to group {group!r}: topic {topic!r} was deleted and created again, and the offsets are "
                    "those of the topic before. To do: poll, which resets the positions, and commit those"
                )

    def name_of(self, topic: OffsetCommitResponseTopic | OffsetFetchResponseTopics) -> str:
        """The name of a topic of the response, which has its name or its id."""
        return topic.name or self._names.get(bytes(topic.topic_id), "")


class OffsetStore:
    """The committed offsets of a group, at its coordinator.

    Args:
        network: has the back-off of retries.
        membership: knows the coordinator, and the identity that commits carry.
        latency: measures commits.
    """

    def __init__(self, network: Network, membership: Membership, latency: Meter) -> None:
        self._network = network
        self._membership = membership
        self._latency = latency
        self._committing = asyncio.Lock()

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self._membership.view.group_id

    @property
    def is_new(self) -> bool:
        """Whether this is the first generation of the group."""
        return self._membership.generation == 1

    def group_metadata(self, *, as_member: bool) -> ConsumerGroupMetadata:
        """The identity for commits in a transaction; see :meth:`commit` for `as_member`.

        Raises:
            KafkaError: this member cannot commit now, or ever.
        """
        identity = self._membership.identity() if as_member else NOT_A_MEMBER
        return ConsumerGroupMetadata(self.group_id, identity.generation, identity.member_id, identity.instance_id)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, as_member: bool, timeout: float
    ) -> None:
        """Commit and wait until it is durable.

        Args:
            offsets: for each partition that of the next record to read.
            as_member: commit with this member's generation; otherwise from outside of the group, which must have no
                members then. A commit with an old member epoch is repeated after a heartbeat (KIP-848).
            timeout: seconds.

        Raises:
            CommitFailedError: this consumer is no longer a member of the group, or a topic was deleted and created
                again since the first attempt.
            RebalanceInProgressError: the group is rebalancing; commit after the rebalance.
            KafkaTimeoutError: the coordinator could not be reached, or could not commit, within `timeout`.
            KafkaError: the coordinator refused.
        """
        backoff = retry_backoff(self._network.config)
        last: KafkaError | None = None
        ids = _TopicIds(self._network.cluster, {tp.topic for tp in offsets})
        try:
            # One at a time, so that a retry never overtakes a later commit.
            async with asyncio.timeout(timeout), self._committing:
                while True:
                    ids.check(self._network.cluster, self.group_id)
                    try:
                        await self.commit_once(offsets, as_member=as_member, timeout=timeout)
                        return
                    except RebalanceInProgressError:
                        raise
                    except KafkaError as error:
                        last = error
                        if not error.retriable:
                            raise
                    await asyncio.sleep(backoff.failed())
        except TimeoutError as error:
            raise KafkaTimeoutError(
                f"commit to group {self.group_id!r} did not succeed within {timeout:g} s{_after(last)}"
            ) from error

    async def commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, as_member: bool, timeout: float
    ) -> None:
        """Commit without trying again; see :meth:`commit`.

        Raises:
            KafkaError: the commit failed. If the error is retriable, the next attempt may succeed.
        """
        if not offsets:
            return
        identity = self._membership.identity() if as_member else NOT_A_MEMBER
        ids = _TopicIds(self._network.cluster, {tp.topic for tp in offsets})
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=ids.by_name[topic],
                    partitions=[
                        _commit_partition(number, offsets[TopicPartition(topic, number)]) for number in numbers
                    ],
                )
                for topic, numbers in by_topic(offsets)
            ],
        )
        began = time.monotonic()
        response = await self._membership.ask_coordinator(
            request, OffsetCommitResponse, timeout, purpose=Purpose.GROUP, at_most=ids.newest_version
        )
        refused = {
            TopicPartition(ids.name_of(topic), partition.partition_index): ErrorCode.of(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code != ErrorCode.NONE
        }
        if refused:
            self._refused(refused, identity)
        now = time.monotonic()
        self._latency.add(now - began, now)

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition, None where there is none.

        Raises:
            KafkaTimeoutError: the coordinator did not answer within `timeout` seconds.
            KafkaError: the coordinator refused.
        """
        backoff = retry_backoff(self._network.config)
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        return await self._committed_once(partitions, timeout)
                    except KafkaError as error:
                        last = error
                        if not error.retriable:
                            raise
                    await asyncio.sleep(backoff.failed())
        except TimeoutError as error:
            raise KafkaTimeoutError(
                f"the committed offsets of group {self.group_id!r} were not fetched within {timeout:g} s{_after(last)}"
            ) from error

    async def _committed_once(
        self, partitions: Collection[TopicPartition], timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        ids = _TopicIds(self._network.cluster, {tp.topic for tp in partitions})
        topics = [
            OffsetFetchRequestTopics(name=name, topic_id=ids.by_name[name], partition_indexes=numbers)
            for name, numbers in by_topic(partitions)
        ]
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)
        # Wait for offsets of open transactions, as Kafka's consumer does (KIP-447).
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self._membership.ask_coordinator(
            request, OffsetFetchResponse, timeout, at_most=ids.newest_version
        )
        answered = response.groups[0] if response.groups else None
        code = ErrorCode.UNKNOWN_SERVER_ERROR if answered is None else ErrorCode.of(answered.error_code)
        if answered is None or code != ErrorCode.NONE:
            self._membership.commit_refused(code, NO_GENERATION)
            raise error_for(code, f"fetch the committed offsets of group {self.group_id!r}")
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        for topic in answered.topics:
            for partition in topic.partitions:
                tp = TopicPartition(ids.name_of(topic), partition.partition_index)
                if partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                if partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                    self._network.want_refresh()
                if partition.error_code != ErrorCode.NONE:
                    raise error_for(
                        partition.error_code, f"fetch the committed offset of group {self.group_id!r} for {tp}"
                    )
                if partition.committed_offset >= 0:
                    found[tp] = OffsetAndMetadata(
                        partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                    )
        return found

    def _refused(self, refused: Mapping[TopicPartition, ErrorCode], identity: CommitIdentity) -> None:
        code = next(iter(refused.values()))
        if ErrorCode.UNKNOWN_TOPIC_ID in refused.values():
            self._network.want_refresh()
        self._membership.commit_refused(code, identity.generation)
        what = f"commit {', '.join(map(str, refused))} to group {self.group_id!r}"
        outlived = code == ErrorCode.ILLEGAL_GENERATION and self._membership.outlived(identity)
        if code == ErrorCode.REBALANCE_IN_PROGRESS or outlived:
            raise RebalanceInProgressError(
                f"{what}: the group is rebalancing. To do: poll until the rebalance is over, then commit again"
            )
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            raise StaleMemberEpochError(
                f"{what}: the member epoch has changed. To do: commit again, after the next heartbeat"
            )
        if code in _NOT_A_MEMBER:
            remedy = (
                "poll to rejoin; if processing took longer than max_poll_interval_ms, raise it or lower "
                "max_poll_records"
                if identity.generation != NO_GENERATION
                else "the group has members, and only they can commit: subscribe() to become one, or use another "
                "group_id"
            )
            raise CommitFailedError(f"{what}: {code.name}. To do: {remedy}")
        raise error_for(code, what)


def _after(error: KafkaError | None) -> str:
    if error is None:
        return (
            ". To do: check that the brokers are up and partitions have leaders, those of __consumer_offsets included"
        )
    return f"; the last attempt: {error}"


def _commit_partition(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


Listed = dict[TopicPartition, OffsetAndTimestamp | KafkaError]


async def list_offsets_once(network: Network, times: Mapping[TopicPartition, int], *, read_committed: bool) -> Listed:
    """Ask each partition's leader once.

    Args:
        network: the cluster.
        times: for each partition milliseconds since 1970, or `LATEST` or `EARLIEST`.
        read_committed: whether the end is the last stable offset.

    Returns:
        For each partition its offset, which is -1 if no record is at or after the time, or the error.
    """
    cluster = network.cluster
    found: Listed = {}
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for tp in times:
        leader = cluster.leader(tp)
        if leader is None:
            found[tp] = _no_leader(cluster, tp)
        else:
            by_leader[leader].append(tp)

    async def ask(leader: int, partitions: list[TopicPartition]) -> None:
        try:
            request = _list_request(
                cluster, {tp: times[tp] for tp in partitions}, read_committed, network.config.request_timeout_ms
            )
            response = await network.ask(leader, request, ListOffsetsResponse)
        except KafkaError as error:
            found.update(dict.fromkeys(partitions, error))
            return
        for topic in response.topics:
            for answered in topic.partitions:
                tp = TopicPartition(topic.name, answered.partition_index)
                if answered.error_code != ErrorCode.NONE:
                    found[tp] = error_for(answered.error_code, f"list offsets of {tp}")
                else:
                    found[tp] = OffsetAndTimestamp(answered.offset, answered.timestamp, answered.leader_epoch)

    await asyncio.gather(*(ask(leader, partitions) for leader, partitions in by_leader.items()))
    for tp in times:
        found.setdefault(tp, KafkaConnectionError(f"list offsets of {tp}: the response does not contain it"))
    if any(isinstance(one, KafkaError) and one.retriable for one in found.values()):
        network.want_refresh()
    return found


async def list_offsets(
    network: Network, times: Mapping[TopicPartition, int], *, read_committed: bool, timeout: float
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Ask each partition's leader until all have answered; see :func:`list_offsets_once`.

    Raises:
        KafkaTimeoutError: some leaders have not answered within `timeout` seconds.
        KafkaError: a partition does not exist or may not be read.
    """
    backoff = retry_backoff(network.config)
    done: dict[TopicPartition, OffsetAndTimestamp] = {}
    last: KafkaError | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                left = {tp: time for tp, time in times.items() if tp not in done}
                found = await list_offsets_once(network, left, read_committed=read_committed)
                failed = [one for one in found.values() if isinstance(one, KafkaError)]
                done |= {tp: one for tp, one in found.items() if not isinstance(one, KafkaError)}
                if not failed:
                    return done
                for last in failed:
                    if not last.retriable:
                        raise last
                await asyncio.sleep(backoff.failed())
    except TimeoutError as error:
        missing = ", ".join(str(tp) for tp in sorted(times) if tp not in done)
        raise KafkaTimeoutError(
            f"list offsets of {missing} did not succeed within {timeout:g} s{_after(last)}"
        ) from error


def _no_leader(cluster: Cluster, tp: TopicPartition) -> KafkaError:
    known = cluster.partitions(tp.topic)
    if known is not None and tp.partition in known:
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"list offsets of {tp}")
    return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"list offsets of {tp}")


def _list_request(
    cluster: Cluster, times: Mapping[TopicPartition, int], read_committed: bool, timeout_ms: int
) -> ListOffsetsRequest:
    def partition(topic: str, number: int) -> ListOffsetsPartition:
        tp = TopicPartition(topic, number)
        info = cluster.partition(tp)
        return ListOffsetsPartition(
            partition_index=number,
            current_leader_epoch=-1 if info is None else info.leader_epoch,
            timestamp=times[tp],
        )

    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if read_committed else 0,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[partition(topic, number) for number in numbers])
            for topic, numbers in by_topic(times)
        ],
        timeout_ms=timeout_ms,
    )
