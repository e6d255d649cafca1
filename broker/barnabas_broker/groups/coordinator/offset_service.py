"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, transaction markers, and the expiry of offsets.

A shell around :mod:`groups.offsets`.
"""

from asyncio import Future
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from math import inf
from typing import Any, Final

from barnabas_broker.coordinators.result import APPEND_ERRORS
from barnabas_broker.coordinators.writer import Producer
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.members import NONE
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.coordinator.hosting import HostedGroup, HostedGroups
from barnabas_broker.groups.coordinator.responses import (
    NO_ID,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    commit_error,
    delete_response,
    fetch_response,
    requested_groups,
)
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.offsets.offsets import GroupOffsets, OpenTransaction
from barnabas_broker.groups.ports import ReadLogs
from barnabas_broker.groups.sightings import CommitsElsewhere, Elsewhere, OutsiderCommits, Sight
from barnabas_broker.repeats import Repeats
from barnabas_broker.steps import Steps, consumed, each
from barnabas_explain.catalog import (
    CommitsBeyondEnd,
    CommitsWentBack,
    GroupDeleted,
    OffsetsAltered,
    OffsetsExpired,
    OffsetsStable,
    OffsetsUnstable,
    TopicDeleted,
)
from barnabas_explain.members import BeyondEnd, Member, OffsetChange, Partition, by_topic
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.group_records import Committed, offset_key, offset_key_head, offset_value
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from barnabas_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas_protocol.subscriptions import CONSUMER

#: Groups that one step of the expiry checks, or of the removal of a topic's offsets.
_GROUPS_PER_STEP: Final = 200
#: Partitions that are fetched in one iteration of the loop, once the commits before have ended.
_STEPS: Final = 500
#: Maximum number of partitions that a group event lists.
_MAX_LISTED: Final = 100
#: The commit on one connection that shows that a client which is not a member commits again and again.
_COMMITS_ON: Final = 2
#: Characters of a transactional id that an event has.
_MOST_CHARACTERS: Final = 1_000

#: From this version on OffsetCommit and OffsetFetch name topics by their ids.
_TOPIC_IDS: Final = 10
#: From this version of TxnOffsetCommit on clients use transaction version 2: each transaction has an epoch of its own,
#: and the request adds the partition of ``__consumer_offsets`` to it (KIP-890).
BUMPS_EPOCH: Final = 5
#: From this version on TxnOffsetCommit names topics by their ids (KIP-1319): an offset of a topic that was deleted is
#: not taken for one of a later topic of the same name.
_TRANSACTIONAL_TOPIC_IDS: Final = 6
#: The errors of partitions that do not exist.
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

#: Asks the transaction's coordinator whether a partition of ``__consumer_offsets`` is part of the transaction of a
#: request (KIP-890), and calls back, at once or later, with NONE or the reason why it is not.
Verify = Callable[[int, Callable[[ErrorCode], None]], None]


def _of_owned_partitions(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    response: OffsetCommitResponse,
    records: list[tuple[bytes, bytes | None]],
    commits: list[tuple[str, int, Committed]],
) -> tuple[list[tuple[bytes, bytes | None]], list[tuple[str, int, Committed]], ErrorCode]:
    """Check the commits of a member with an older epoch; put the error codes of those that are refused into `response`.

    Returns:
        The records and commits of partitions that the member has owned since then, and the error code of the first
        commit that is refused, NONE if none is.
    """
    refused, refusal = set(), NONE
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code == NONE:
                answer.error_code = group.check_commit_of(member_id, epoch, topic.name, answer.partition_index)
                if answer.error_code != NONE:
                    refused.add((topic.name, answer.partition_index))
                    refusal = refusal or answer.error_code
    kept = [at for at, (name, index, _) in enumerate(commits) if (name, index) not in refused]
    return [records[at] for at in kept], [commits[at] for at in kept], refusal


class OffsetService:
    """The requests about offsets.

    Args:
        hosted_groups: the groups.
        max_metadata: ``offset.metadata.max.bytes``.
        max_bytes: ``message.max.bytes``. The records of a commit are one batch, and a larger one is not built.
        retention_ms: ``offsets.retention.minutes`` in ms.
        refused: called with a commit of which offsets are refused, its sender, and the error code of the offset
            that was refused first.
        looked_at: called with a group whose offsets a client asks for, and the client.
        gets: called with a client that asks for committed offsets, and the partitions.
        elsewhere: gets the groups without members to which clients commit in transactions.
        logs: the logs that groups read; None if they are not looked at.

    Attributes:
        topics: number of partitions by topic; None until the coordinator knows the topics.
    """

    def __init__(
        self,
        hosted_groups: HostedGroups,
        max_metadata: int,
        max_bytes: int,
        retention_ms: int,
        refused: Callable[[OffsetCommitRequest | TxnOffsetCommitRequest, Caller, ErrorCode], None],
        looked_at: Callable[[str, Caller], None],
        gets: Callable[[Caller, Collection[Partition]], None],
        elsewhere: CommitsElsewhere,
        logs: ReadLogs | None = None,
    ) -> None:
        self._hosted_groups = hosted_groups
        self._max_metadata = max_metadata
        self._max_bytes = max_bytes
        self._retention_ms = retention_ms
        self._refused = refused
        self._looked_at = looked_at
        self._gets = gets
        self._elsewhere = elsewhere
        self._logs = logs
        #: Responses to commits whose appends have ended.
        self._responses: list[tuple[Future[OffsetCommitResponse], OffsetCommitResponse]] = []
        self.topics: Mapping[str, int] | None = None

    # OffsetCommit

    def commit(
        self, request: OffsetCommitRequest, version: int, caller: Caller
    ) -> "Steps[OffsetCommitResponse | Future[OffsetCommitResponse]]":
        """OffsetCommit: validated one partition per step, answered when its records are in the log."""
        hosted_groups, now = self._hosted_groups, self._hosted_groups.now()
        records: list[tuple[bytes, bytes | None]] = []
        commits: list[tuple[str, int, Committed]] = []
        try:
            hosted = hosted_groups.by_id.get(request.group_id) or self._group_to_commit_to(request, version)
            response, refusal = yield from self._validate_offsets(hosted, request, version, records, commits)
            # Between two steps a rebalance may complete, and the group may be deleted or move to another broker.
            new = hosted_groups.by_id.get(request.group_id) is not hosted
            if new:
                hosted = self._group_to_commit_to(request, version)
        except KafkaError as refused:
            self._refused(request, caller, refused.code)
            return (yield from commit_error(request, refused.code))
        group, epoch = hosted.group, request.generation_id_or_member_epoch
        if isinstance(group, ClassicGroup):
            error = group.check_commit(request.member_id, request.group_instance_id, epoch, now)
        else:
            error = group.check_commit(request.member_id, epoch, version)
            if error == NONE and group.epoch_is_older(request.member_id, epoch):
                records, commits, unowned = _of_owned_partitions(
                    group, request.member_id, epoch, response, records, commits
                )
                refusal = refusal or unowned
        if error or refusal:
            self._refused(request, caller, error or refusal)
        if error:
            return (yield from commit_error(request, error))
        if not records:
            return response
        sight = hosted.sightings.committed(request.member_id, now)
        if caller.connection is not None:
            caller.connection.commit_accepted()
        if new:
            hosted_groups.keep(hosted)
        if commits[0][2].sequence != hosted_groups.last_sequence:
            commits = _renumbered(commits, hosted_groups.next_sequence())  # Others were appended between the steps.
        hosted.last_commit = hosted_groups.last_sequence
        future: Future[OffsetCommitResponse] = hosted_groups.loop.create_future()
        appended = partial(self._commit_appended, hosted, commits, request, caller, response, future, sight)
        hosted_groups.runtime.append(hosted, records, appended)
        return future

    def _group_to_commit_to(self, request: OffsetCommitRequest, version: int) -> HostedGroup:
        """The group of a commit; a new one for a commit without a generation.

        Raises:
            KafkaError: this broker does not coordinate the group, or a member commits to a group that does not exist.
        """
        hosted = self._hosted_groups.find(request.group_id)
        if hosted is not None:
            return hosted
        if self._hosted_groups.exists(request.group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)  # Share groups commit no offsets.
        if request.generation_id_or_member_epoch >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
        return self._hosted_groups.create_classic(request.group_id)

    def _validate_offsets(
        self,
        hosted: HostedGroup,
        request: OffsetCommitRequest,
        version: int,
        records: list[tuple[bytes, bytes | None]],
        commits: list[tuple[str, int, Committed]],
    ) -> Steps[tuple[OffsetCommitResponse, ErrorCode]]:
        """Put the valid offsets into `records` and `commits`.

        Returns:
            The response for when these are in the log, and the error code of the first offset that is refused, NONE if
            none is.

        Raises:
            KafkaError: INVALID_COMMIT_OFFSET_SIZE, they do not fit into one batch.
        """
        wall_ms = self._hosted_groups.wall_ms()
        expire_ms = -1 if request.retention_time_ms < 0 else wall_ms + request.retention_time_ms
        sequence = self._hosted_groups.next_sequence()
        topics: list[OffsetCommitResponseTopic] = []
        size, refusal = 0, NONE
        for topic in request.topics:
            partitions: list[OffsetCommitResponsePartition] = []
            name, count, unknown = self._topic(topic, by_id=version >= _TOPIC_IDS)
            if not topic.partitions:
                yield
            for requested in topic.partitions:
                if partitions or topics:
                    yield
                index, metadata = requested.partition_index, requested.committed_metadata or ""
                error = NONE
                if not 0 <= index < count:
                    error = unknown
                elif metadata and _java_length(metadata) > self._max_metadata:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    commit_ms = wall_ms if requested.commit_timestamp < 0 else requested.commit_timestamp
                    offset, epoch = requested.committed_offset, requested.committed_leader_epoch
                    committed = Committed(offset, epoch, metadata, commit_ms, expire_ms, sequence)
                    try:
                        key, value = hosted.offset_key(name, index), offset_value(committed)
                    except ValueError:
                        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                    else:
                        size += len(key) + len(value)
                        if size > self._max_bytes:
                            raise KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                        records.append((key, value))
                        commits.append((name, index, committed))
                refusal = refusal or error
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
            topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions))
        return OffsetCommitResponse(topics=topics), refusal

    def _topic(
        self, topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, *, by_id: bool
    ) -> tuple[str, float, ErrorCode]:
        """The topic of a commit: its name, "" if its id is not known; the number of its partitions, inf until the
        coordinator knows the topics; and the error of a partition that it does not have."""
        name, unknown = topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if by_id:
            known = self._hosted_groups.consumer_settings.topics.by_id.get(topic.topic_id)
            if known is None:
                return "", 0, ErrorCode.UNKNOWN_TOPIC_ID
            name = known.name
        return name, inf if self.topics is None else self.topics.get(name, 0), unknown

    def _commit_appended(
        self,
        hosted: HostedGroup,
        commits: list[tuple[str, int, Committed]],
        request: OffsetCommitRequest,
        caller: Caller,
        response: OffsetCommitResponse,
        future: "Future[OffsetCommitResponse]",
        sight: Sight | None,
        error: ErrorCode,
    ) -> None:
        """The result of a commit's append: its offsets are committed, and it gets its response."""
        if error == NONE:
            if self._hosted_groups.by_id.get(hosted.name) is not hosted:
                hosted = self._hosted_groups.present(hosted)
            offsets, logs = hosted.offsets, self._logs
            if request.generation_id_or_member_epoch < 0:
                self._report_commit(hosted, commits, caller)
                if caller.audit is not None:
                    caller.audit(hosted.name)
            back: list[OffsetChange] = []
            is_beyond = False
            for name, index, committed in commits:
                before = offsets.commit(name, index, committed)
                if logs is not None and (end := logs.end(name, index)) is not None and committed.offset > end:
                    is_beyond = True
                if before is not None and before.offset > committed.offset and len(back) < _MAX_LISTED:
                    back.append(OffsetChange(name, index, before.offset, committed.offset))
                if sight is not None:
                    sight.changed(name, index, None if before is None else before.offset, committed.offset)
            if back and hosted.sightings.goes_back(request.member_id, self._hosted_groups.now()):
                member = Member(request.member_id, caller.client_id, caller.host, request.group_instance_id)
                event = CommitsWentBack(generation=hosted.group.generation, member=member, changes=tuple(back))
                self._hosted_groups.publish(hosted.name, _with_fetches(event, hosted, commits))
            if is_beyond:
                self._report_beyond_end(hosted, commits, request, caller)
            hosted.group.recorded = True
        elif error != ErrorCode.REQUEST_TIMED_OUT:
            self._forget_if_new(hosted)
        if future.done():
            return  # It was answered when the append had taken too long.
        if error != NONE:
            code = _append_error(error)
            self._refused(request, caller, code)
            for topic in response.topics:
                for answer in topic.partitions:
                    answer.error_code = code
        if not self._responses:
            self._hosted_groups.loop.call_soon(self._send_responses)
        self._responses.append((future, response))

    def _report_commit(
        self,
        hosted: HostedGroup,
        commits: list[tuple[str, int, Committed]],
        caller: Caller,
        transactional_id: str | None = None,
    ) -> None:
        """Report a commit of a client that is not a member: the first and the second one of its connection, and those
        that go back, which are counted if there are many.

        An administrator resets offsets like that, without a transaction, and a consumer without a subscription commits
        like that, all the time. The first offsets of a new group change nothing that was there.
        """
        connection, now = caller.connection, self._hosted_groups.now()
        series = OutsiderCommits() if connection is None else connection.outsider(hosted.name)
        last = hosted.outsider
        if hosted.offsets:  # Most groups of such clients have one commit.
            hosted.outsider = caller.client_id, caller.host, commits[:_MAX_LISTED]
        find = hosted.offsets.find
        known = goes_back = False
        for name, index, committed in commits:
            before = find(name, index)
            if before is not None:
                known = True
                if before.offset > committed.offset:
                    goes_back = True
                    break
        other: tuple[str, str] | None = None
        if goes_back and last is not None and last[:2] != (caller.client_id, caller.host):
            theirs = {(name, index): committed.offset for name, index, committed in last[2]}
            for name, index, committed in commits[:_MAX_LISTED]:
                before = find(name, index)
                if before is not None and theirs.get((name, index)) == before.offset > committed.offset:
                    other = last[:2]
                    break
        series.add(goes_back=goes_back, in_turn=other is not None)
        is_first = series.total == 1 and (known or hosted.group.generation > 0) and transactional_id is None
        if not (is_first or series.total == _COMMITS_ON or (goes_back and series.may_report(now))):
            return
        changes: list[OffsetChange] = []
        for name, index, committed in commits[:_MAX_LISTED]:
            before = find(name, index)
            changes.append(OffsetChange(name, index, None if before is None else before.offset, committed.offset))
        self._publish_changes(hosted, changes, len(commits), caller, other, series, transactional_id)
        series.reported(now)

    def _report_beyond_end(
        self,
        hosted: HostedGroup,
        commits: list[tuple[str, int, Committed]],
        request: OffsetCommitRequest | TxnOffsetCommitRequest,
        caller: Caller,
    ) -> None:
        """Report those commits that are after the ends of their logs, once in a while for each connection."""
        if self._logs is None:
            return
        beyond: list[BeyondEnd] = []
        for name, index, committed in commits:
            end = self._logs.end(name, index)
            if end is not None and committed.offset > end and len(beyond) < _MAX_LISTED:
                beyond.append(BeyondEnd(name, index, committed.offset, end))
        if not beyond or (
            caller.connection is not None and not caller.connection.exceeds(hosted.name, self._hosted_groups.now())
        ):
            return
        event = CommitsBeyondEnd(
            generation=hosted.group.generation,
            member=Member(request.member_id, caller.client_id, caller.host, request.group_instance_id),
            principal=caller.principal or None,
            beyond=tuple(beyond),
        )
        self._hosted_groups.publish(hosted.name, event)

    def _publish_changes(
        self,
        hosted: HostedGroup,
        changes: list[OffsetChange],
        offsets: int,
        caller: Caller,
        other: tuple[str, str] | None = None,
        series: OutsiderCommits | None = None,
        transactional_id: str | None = None,
    ) -> None:
        event = OffsetsAltered(
            generation=hosted.group.generation,
            offsets=offsets,
            changes=tuple(changes),
            client_id=caller.client_id,
            host=caller.host,
            principal=caller.principal or None,
            other_client_id=None if other is None else other[0],
            other_host=None if other is None else other[1],
            transactional_id=transactional_id,
        )
        if series is not None and series.total >= _COMMITS_ON:
            event = event.changed(commits_on=True)
        if series is not None and series.times > 1:
            event = event.changed(times=series.times, backs=series.backs, turns=series.turns)
        self._hosted_groups.publish(hosted.name, event)

    def _forget_if_new(self, hosted: HostedGroup) -> None:
        """Forget a group that was created for a commit, which has failed."""
        if not hosted.offsets and not hosted.group.recorded and hosted.group.is_empty:
            self._hosted_groups.forget(hosted)

    def _send_responses(self) -> None:
        """Send the responses to the commits of one iteration together, the newest first.

        A connection sends responses in the order of its requests: all of a connection's leave in one write when its
        oldest one is there.
        """
        responses, self._responses = self._responses, []
        for future, response in reversed(responses):
            if not future.done():
                future.set_result(response)

    # TxnOffsetCommit, and the end of transactions

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, version: int, caller: Caller, verify: Verify
    ) -> "Steps[TxnOffsetCommitResponse | Future[TxnOffsetCommitResponse]]":
        """TxnOffsetCommit: validated one partition per step, verified, and answered when its records are in the log.

        As in Kafka, the coordinator of the transaction is asked before the member is checked.
        """
        hosted_groups = self._hosted_groups
        response = TxnOffsetCommitResponse(throttle_time_ms=0, topics=[])
        records: list[tuple[bytes, bytes | None]] = []
        commits: list[tuple[str, int, Committed]] = []
        failure = yield from self._validate_transactional(request, version, response, records, commits)
        if not (yield from _any_is_known(response)):
            return response
        if not request.group_id:
            return (yield from _failed(response, ErrorCode.INVALID_GROUP_ID, version))
        if failure != NONE:
            self._refused(request, caller, failure)
            return (yield from _failed(response, failure, version))
        producer = Producer(request.producer_id, request.producer_epoch)
        index = hosted_groups.runtime.partition_for(request.group_id)
        try:
            hosted_groups.find(request.group_id)
            verification = hosted_groups.log.verify(
                index, *producer, request.transactional_id, bumps_epoch=version >= BUMPS_EPOCH
            )
        except KafkaError as refused:
            self._refused(request, caller, refused.code)
            return (yield from _failed(response, _verification_error(refused.code, version), version))
        future: Future[TxnOffsetCommitResponse] = hosted_groups.loop.create_future()

        def answer(error: ErrorCode) -> None:
            if future.done():
                return
            if error == NONE:
                future.set_result(response)
                return
            self._refused(request, caller, error)
            failed = _failed(response, _verification_error(error, version), version)
            hosted_groups.do(failed, _STEPS, lambda answer: None if future.done() else future.set_result(answer))

        def verified(error: ErrorCode) -> None:
            if error == NONE:
                try:
                    self._append_transactional(request, records, commits, caller, verification, answer)
                except KafkaError as refused:
                    answer(refused.code)
            else:
                hosted_groups.log.not_verified(index, producer.producer_id, verification)
                answer(_verification_error(error, version))

        if verification is None:
            verified(NONE)
        else:
            verify(index, verified)
        return future

    def _validate_transactional(
        self,
        request: TxnOffsetCommitRequest,
        version: int,
        response: TxnOffsetCommitResponse,
        records: list[tuple[bytes, bytes | None]],
        commits: list[tuple[str, int, Committed]],
    ) -> Steps[ErrorCode]:
        """Put the valid offsets into `records` and `commits`, and an answer for each partition into `response`.

        Returns:
            INVALID_COMMIT_OFFSET_SIZE if they do not fit into one batch, else NONE.
        """
        wall_ms, size = self._hosted_groups.wall_ms(), 0
        failure = NONE
        for topic in request.topics:
            name, count, unknown = self._topic(topic, by_id=version >= _TRANSACTIONAL_TOPIC_IDS)
            answers = TxnOffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=[])
            response.topics.append(answers)
            head: bytes | None = None
            if not topic.partitions:
                yield
            for requested in topic.partitions:
                index, metadata = requested.partition_index, requested.committed_metadata or ""
                error = NONE
                if not 0 <= index < count:
                    error = unknown
                elif metadata and _java_length(metadata) > self._max_metadata:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    offset, epoch = requested.committed_offset, requested.committed_leader_epoch
                    committed = Committed(offset, epoch, metadata, wall_ms)
                    try:
                        if head is None:
                            head = offset_key_head(request.group_id, name)
                        key, value = offset_key(head, index), offset_value(committed)
                    except ValueError:
                        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                    else:
                        size += len(key) + len(value)
                        if size > self._max_bytes:
                            failure = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                            records.clear()
                            commits.clear()
                        elif failure == NONE:
                            records.append((key, value))
                            commits.append((name, index, committed))
                answers.partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
                yield
        return failure

    def _append_transactional(
        self,
        request: TxnOffsetCommitRequest,
        records: list[tuple[bytes, bytes | None]],
        commits: list[tuple[str, int, Committed]],
        caller: Caller,
        verification: Any,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Check the member, and append the records of a TxnOffsetCommit that was verified.

        Raises:
            KafkaError: the commit is refused.
        """
        hosted_groups = self._hosted_groups
        hosted = hosted_groups.find(request.group_id)
        if hosted is None:
            if hosted_groups.exists(request.group_id):
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)  # Share groups commit no offsets.
            if request.generation_id_or_member_epoch >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            hosted = hosted_groups.create_classic(request.group_id)
        error = hosted.group.check_transactional_commit(
            request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )
        if error:
            raise KafkaError(error)
        if not records:
            done(NONE)
            return
        hosted_groups.keep(hosted)
        producer_id = request.producer_id
        hosted.last_commit = hosted_groups.next_sequence()
        commits = _renumbered(commits, hosted.last_commit)
        hosted.home.appending[producer_id] += 1
        appended = partial(self._transactional_commit_appended, hosted, request, commits, caller, done)
        producer = Producer(producer_id, request.producer_epoch)
        hosted_groups.runtime.writer.add_transactional(hosted.home.index, records, producer, verification, appended)

    def _transactional_commit_appended(
        self,
        hosted: HostedGroup,
        request: TxnOffsetCommitRequest,
        commits: list[tuple[str, int, Committed]],
        caller: Caller,
        done: Callable[[ErrorCode], None],
        error: ErrorCode,
    ) -> None:
        """The result of an append: its offsets are pending."""
        home, producer_id = hosted.home, request.producer_id
        if error == NONE:
            hosted, now = self._hosted_groups.present(hosted), self._hosted_groups.now()
            transactional_id = request.transactional_id[:_MOST_CHARACTERS]
            if request.generation_id_or_member_epoch < 0 and caller.audit is not None:
                caller.audit(hosted.name)
            if hosted.group.is_empty:  # Older clients do not say which member commits.
                self._report_commit(hosted, commits, caller, transactional_id)
                topics = (name for name, _, _ in commits)
                self._elsewhere.add(caller.host, topics, Elsewhere(hosted.name, transactional_id, now))
            for name, index, committed in commits:
                hosted.offsets.apply(name, index, committed, committed.sequence, producer_id)
            hosted.offsets.name_transaction(producer_id, transactional_id)
            hosted.sightings.committed(request.member_id, now, transactional_id)
            self._report_beyond_end(hosted, commits, request, caller)
            home.transactions.setdefault(producer_id, set()).add(hosted.name)
            hosted.group.recorded = True
        elif error != ErrorCode.REQUEST_TIMED_OUT:
            self._forget_if_new(hosted)
        if error != ErrorCode.REQUEST_TIMED_OUT:
            home.appending[producer_id] -= 1
            if not home.appending[producer_id]:
                del home.appending[producer_id]
                waiting, home.ended = home.ended, []
                for marker in waiting:
                    self.transaction_ended(home.index, *marker)
        done(_append_error(error))

    def transaction_ended(self, index: int, producer_id: int, committed: bool, position: float = inf) -> None:
        """The marker of a transaction in a partition of ``__consumer_offsets`` is durable: its offsets are not pending.

        Args:
            index: the partition that has the marker; one that this broker does not coordinate is ignored.
            producer_id: of the transaction.
            committed: whether the marker commits.
            position: what :meth:`.GroupCoordinator.next_position` returned when the marker was appended. Commits that
                were appended after it belong to the next transaction.
        """
        hosted_groups = self._hosted_groups
        partition = hosted_groups.runtime.partitions.get(index)
        if partition is None or position < partition.load_began:
            # A replay finds the marker. What is pending after it belongs to a later transaction.
            return
        if partition.loading or producer_id in partition.appending:
            partition.ended.append((producer_id, committed, position))
            return
        position = max(position, partition.loaded_at)
        for group_id in partition.transactions.pop(producer_id, ()):
            hosted = hosted_groups.by_id.get(group_id)
            transaction = None if hosted is None else hosted.offsets.end_transaction(producer_id, committed, position)
            if hosted is not None and hosted.offsets.has_transaction(producer_id):
                partition.transactions.setdefault(producer_id, set()).add(group_id)
            if hosted is not None and transaction is not None and transaction.reported:
                event = OffsetsStable(
                    generation=hosted.group.generation,
                    producer_id=producer_id,
                    transactional_id=transaction.transactional_id,
                    committed=committed,
                    offsets=len(transaction.offsets),
                    pending_ms=self._age_ms(transaction),
                )
                hosted_groups.publish(group_id, event)

    def _refuse_stable(
        self, hosted: HostedGroup, waits: Mapping[int, tuple[OpenTransaction, list[tuple[str, int]]]]
    ) -> None:
        """Report the transactions because of which a client was refused stable offsets, each one once."""
        for producer_id, (transaction, keys) in waits.items():
            if not transaction.reported:
                transaction.reported = True
                event = OffsetsUnstable(
                    generation=hosted.group.generation,
                    producer_id=producer_id,
                    transactional_id=transaction.transactional_id,
                    offsets=len(keys),
                    keys=tuple(keys[:_MAX_LISTED]),
                    pending_ms=self._age_ms(transaction),
                )
                self._hosted_groups.publish(hosted.name, event)

    def _age_ms(self, transaction: OpenTransaction) -> int:
        """Milliseconds since the first commit of a transaction in a group."""
        return max(self._hosted_groups.wall_ms() - transaction.since_ms, 0)

    # OffsetFetch

    def fetch(
        self, request: OffsetFetchRequest, version: int, caller: Caller
    ) -> "Steps[OffsetFetchResponse | Future[OffsetFetchResponse]]":
        """OffsetFetch, from memory. With `require_stable` it waits for the commits that are being appended."""
        groups = yield from requested_groups(request, version)
        for group in groups:
            self._looked_at(group.group_id, caller)
            yield
        hosted_groups = self._hosted_groups
        writer = hosted_groups.runtime.writer

        def response() -> Steps[OffsetFetchResponse]:
            fetched = yield from self._fetch_each(groups, version, request.require_stable, caller)
            return (yield from fetch_response(request, version, fetched))

        unsettled: set[int] = set()
        if request.require_stable:
            for group in groups:
                hosted = hosted_groups.by_id.get(group.group_id)
                if hosted is not None and writer.unsettled(hosted.home.index):
                    unsettled.add(hosted.home.index)
                yield
        if not unsettled:
            return (yield from response())
        future: Future[OffsetFetchResponse] = hosted_groups.loop.create_future()

        def settled() -> None:
            hosted_groups.do(response(), _STEPS, lambda answer: None if future.done() else future.set_result(answer))

        writer.when_settled(unsettled, settled)
        return future

    def _fetch_each(
        self, groups: list[OffsetFetchRequestGroup], version: int, require_stable: bool, caller: Caller
    ) -> Steps[list[FetchedGroup]]:
        """The results of the groups. A group that is named again is answered again, as far as that is bounded."""
        fetched = []
        repeats = Repeats()
        for requested in groups:
            yield
            if repeats.refuses(requested.group_id):
                fetched.append(FetchedGroup(requested.group_id, ErrorCode.INVALID_REQUEST, []))
                continue
            group = yield from self._fetch(requested, version, require_stable, caller)
            repeats.answered(requested.group_id, sum(len(topic.offsets) for topic in group.topics))
            fetched.append(group)
        return fetched

    def _fetch(
        self, requested: OffsetFetchRequestGroup, version: int, require_stable: bool, caller: Caller
    ) -> Steps[FetchedGroup]:
        try:
            hosted = self._hosted_groups.find(requested.group_id)
        except KafkaError as error:
            return FetchedGroup(requested.group_id, error.code, [])
        if hosted is not None and isinstance(hosted.group, ConsumerGroup):
            refused = hosted.group.check_fetch(requested.member_id, requested.member_epoch)
            if refused != NONE:
                return FetchedGroup(requested.group_id, refused, [])
        offsets = None if hosted is None else hosted.offsets
        catalog = self._hosted_groups.consumer_settings.topics
        topics: list[FetchedTopic] = []
        wanted: list[tuple[str, bytes, Sequence[int]]] = []
        if requested.topics is None:
            if hosted is not None:
                hosted.sightings.asked(caller.connection, None)
            for name, committed in () if offsets is None else list(offsets.topics.items()):
                known = catalog.by_name.get(name)
                # A topic that was deleted has no id.
                if known is not None or version < _TOPIC_IDS:
                    wanted.append((name, NO_ID if known is None else known.topic_id, list(committed)))
                yield
        else:
            for topic in requested.topics:
                name, found = topic.name, catalog.by_id.get(topic.topic_id)
                if version >= _TOPIC_IDS:
                    name = "" if found is None else found.name
                if name or version < _TOPIC_IDS:
                    wanted.append((name, topic.topic_id, topic.partition_indexes))
                else:
                    unknown = yield from each(topic.partition_indexes, lambda index: FetchedOffset(index, None))
                    topics.append(FetchedTopic("", unknown, topic.topic_id, True))
                yield
        stable = not require_stable or offsets is None or not offsets.in_transaction
        waits: dict[int, tuple[OpenTransaction, list[tuple[str, int]]]] = {}
        for name, topic_id, indexes in consumed(wanted):
            if hosted is not None and requested.topics is not None:
                places = [(name, index) for index in indexes[:_MAX_LISTED]]
                hosted.sightings.asked(caller.connection, places)
                self._gets(caller, places)
            fetched = []
            for index in indexes:
                pending = None if stable or offsets is None else offsets.pending(name, index)
                if pending is not None:
                    waits.setdefault(pending.producer_id, (pending.transaction, []))[1].append((name, index))
                    fetched.append(FetchedOffset(index, None, unstable=True))
                else:
                    fetched.append(FetchedOffset(index, None if offsets is None else offsets.find(name, index)))
                yield
            topics.append(FetchedTopic(name, fetched, topic_id if version >= _TOPIC_IDS else NO_ID))
            yield
        if hosted is not None and waits:
            self._refuse_stable(hosted, waits)
        return FetchedGroup(requested.group_id, ErrorCode.NONE, topics)

    # OffsetDelete, and expiry

    def delete(
        self, request: OffsetDeleteRequest, version: int, caller: Caller
    ) -> "Steps[OffsetDeleteResponse | Future[OffsetDeleteResponse]]":
        """OffsetDelete: removes the offsets of topics that the group does not subscribe to (KIP-496)."""
        hosted_groups = self._hosted_groups
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
        try:
            hosted = hosted_groups.find(request.group_id)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code, topics=[])
        if hosted is None:
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, topics=[])
        group, offsets = hosted.group, hosted.offsets
        if not group.is_empty and group.protocol_type != CONSUMER:
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, topics=[])
        subscribed: set[str] = set()
        for topic in request.topics:
            if group.is_subscribed_to(topic.name):
                subscribed.add(topic.name)
            yield
        response = yield from delete_response(request, subscribed, self.topics)
        keys = list((yield from _committed(offsets, request, subscribed)))
        if not keys:
            return response
        future: Future[OffsetDeleteResponse] = hosted_groups.loop.create_future()
        changes = []
        for topic_name, index in keys[:_MAX_LISTED]:
            old = offsets.find(topic_name, index)
            changes.append(OffsetChange(topic_name, index, None if old is None else old.offset, None))

        def done(error: ErrorCode) -> None:
            if error == ErrorCode.NONE:
                self._publish_changes(hosted, changes, len(keys), caller)
            if not future.done():
                failed = OffsetDeleteResponse(error_code=APPEND_ERRORS.get(error, error), topics=[])
                future.set_result(failed if error != ErrorCode.NONE else response)

        hosted_groups.append_tombstones(hosted, keys, done)
        return future

    def topics_deleted(self, names: Set[str]) -> None:
        """Remove the offsets of deleted topics, and report that to the groups that have some, or subscribe to them.

        It takes some groups per iteration of the loop. Offsets that are committed meanwhile stay: they are those of a
        later topic of the same name.
        """
        hosted_groups = self._hosted_groups
        hosted_groups.runtime.gradually(self._forget_topics(sorted(names), hosted_groups.last_sequence))

    def _forget_topics(self, names: Sequence[str], until: int) -> Iterator[None]:
        deleted = set(names)
        for hosted in self._some_per_step():
            if hosted is None:
                yield
                continue
            keys = hosted.offsets.keys_of(deleted, until) if hosted.offsets else []
            offsets = Counter(topic for topic, _ in keys)
            for topic in names:
                if offsets[topic] or hosted.subscribes_to(topic):
                    event = TopicDeleted(generation=hosted.group.generation, topic=topic, offsets=offsets[topic])
                    self._hosted_groups.publish(hosted.name, event)
            if keys:
                self._hosted_groups.append_tombstones(hosted, keys)

    def expire(self, until: int) -> Iterator[None]:
        """Remove expired offsets, a few groups per step; groups without offsets and members are deleted, too.

        Args:
            until: a position in the order of appends. What was appended up to it has a result. A group with a later
                commit is left to the next expiry: the commit may renew what looks expired.
        """
        for hosted in self._some_per_step():
            if hosted is None:
                yield
            elif hosted.last_commit <= until:
                self._expire_group(hosted)

    def _some_per_step(self) -> Iterator[HostedGroup | None]:
        """The groups that are still here, and None where a step ends."""
        by_id = self._hosted_groups.by_id
        for at, group_id in enumerate(list(by_id)):
            if at % _GROUPS_PER_STEP == _GROUPS_PER_STEP - 1:
                yield None
            hosted = by_id.get(group_id)
            if hosted is not None:
                yield hosted

    def _expire_group(self, hosted: HostedGroup) -> None:
        hosted_groups, group = self._hosted_groups, hosted.group
        keys = hosted.offsets.expired(group, hosted_groups.now(), hosted_groups.wall_ms(), self._retention_ms)
        if keys is None:
            return
        if keys:
            expired = OffsetsExpired(generation=group.generation, offsets=len(keys), keys=tuple(keys[:100]))
            hosted_groups.publish(group.group_id, expired)
        unused = group.is_unused
        if unused and len(keys) == len(hosted.offsets) and not hosted.offsets.in_transaction:
            deleted = GroupDeleted(generation=group.generation, offsets=len(keys), expired=True)
            hosted_groups.publish(group.group_id, deleted)
            hosted_groups.append_tombstones(hosted, keys, whole_group=True)
        elif keys:
            hosted_groups.append_tombstones(hosted, keys)


class OffsetExpiry:
    """Runs :meth:`OffsetService.expire` regularly, one step per iteration of the loop.

    Args:
        hosted_groups: the groups.
        offsets: removes what is expired.
        interval: ``offsets.retention.check.interval.ms`` in seconds.
    """

    def __init__(self, hosted_groups: HostedGroups, offsets: OffsetService, interval: float) -> None:
        self.armed = inf
        self._hosted_groups = hosted_groups
        self._offsets = offsets
        self._interval = interval
        self._next = hosted_groups.now() + interval
        self._runs = False

    def next_deadline(self) -> float:
        return self._next

    def fire(self, now: float) -> None:
        self._next = now + self._interval
        if not self._runs:
            self._runs = True
            hosted_groups = self._hosted_groups
            steps = self._offsets.expire(hosted_groups.last_sequence)
            runtime = hosted_groups.runtime
            runtime.writer.when_settled(runtime.partitions, partial(self._step, steps))

    def _step(self, steps: Iterator[None]) -> None:
        try:
            next(steps)
            self._hosted_groups.loop.call_soon(self._step, steps)
        except StopIteration:
            self._runs = False


def _with_fetches(
    event: CommitsWentBack, hosted: HostedGroup, commits: list[tuple[str, int, Committed]]
) -> CommitsWentBack:
    """The event, with what tells a seek from the offset of another partition: if the member has not gone back, the
    partitions that have the same offset in this commit, and those that it reads and never commits."""
    changes = event.changes or ()
    client = hosted.sightings.reads_on(event.member.member_id or "", (each[:2] for each in changes))
    if client is None:
        return event
    first = changes[0]
    same = [(name, index) for name, index, committed in commits[:_MAX_LISTED] if committed.offset == first.after]
    unsaid = [
        place
        for place, watch in list((client.watched or {}).items())[:_MAX_LISTED]
        if place[0] == first.topic and watch.asked_at is not None and hosted.offsets.find(*place) is None
    ]
    return event.changed(
        reads_on=True,
        same_offset=by_topic(same) if len(same) > 1 else None,
        uncommitted=by_topic(unsaid) or None,
    )


def _renumbered(commits: list[tuple[str, int, Committed]], sequence: int) -> list[tuple[str, int, Committed]]:
    """The commits with their place in the order of appends."""
    return [(topic, partition, committed._replace(sequence=sequence)) for topic, partition, committed in commits]


def _committed(
    offsets: GroupOffsets, request: OffsetDeleteRequest, subscribed: set[str]
) -> Steps[dict[tuple[str, int], None]]:
    """The partitions of a request that have offsets to delete, each once."""
    found: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        yield
        if topic.name in subscribed:
            continue
        for partition in topic.partitions:
            where = topic.name, partition.partition_index
            if offsets.find(*where) is not None or offsets.is_pending(*where):
                found[where] = None
            yield
    return found


def _append_error(error: ErrorCode) -> ErrorCode:
    """The error of a commit whose append has failed."""
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if error == ErrorCode.UNKNOWN_PRODUCER_ID:
        return ErrorCode.TRANSACTION_ABORTABLE  # Its coordinator has lost an older transaction, which an abort ends.
    return APPEND_ERRORS.get(error, error)


def _verification_error(error: ErrorCode, version: int) -> ErrorCode:
    """The error of a TxnOffsetCommit whose verification has failed, as its version knows it."""
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < 4:
        return ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.NETWORK_EXCEPTION:
        # Clients send the request again without looking for another coordinator.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _append_error(error)


def _any_is_known(response: TxnOffsetCommitResponse) -> Steps[bool]:
    """Whether any of the partitions exists."""
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code not in _UNKNOWN:
                return True
            yield
        yield
    return False


def _failed(response: TxnOffsetCommitResponse, error: ErrorCode, version: int) -> Steps[TxnOffsetCommitResponse]:
    """The response with an error for all partitions that exist."""
    if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < 2:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # Old clients do not know the former (KAFKA-7296).
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code not in _UNKNOWN:
                answer.error_code = error
            yield
        yield
    return response


def _java_length(text: str) -> int:
    """UTF-16 code units, which is what Kafka counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
