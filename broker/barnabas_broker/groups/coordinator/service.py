"""The group coordinator: the requests about groups, and the partitions of ``__consumer_offsets``. A shell.

The rules of the protocol are in the pure machines. The coordinator finds a request's group, calls its machine, carries
out the effects (:mod:`~barnabas_broker.groups.coordinator.hosting`), and loads and unloads partitions
(:mod:`~barnabas_broker.groups.coordinator.loading`). Each request method returns a response or a future of one, in the
shape of the request's version. Requests about share groups are in
:mod:`~barnabas_broker.groups.coordinator.share_service`; their machines share the partitions and the ids.

Source: Kafka's ``GroupCoordinatorService`` and ``GroupCoordinatorShard``.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

from barnabas_broker.config import Config, ConfigError, GroupConfig
from barnabas_broker.config.keys import (
    CONSUMER_ASSIGNMENT_INTERVAL_MS,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    GROUP_STUCK_OFFSET_MS,
    MESSAGE_MAX_BYTES,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
    OFFSETS_TOPIC_NUM_PARTITIONS,
)
from barnabas_broker.coordinators.ports import Scheduler
from barnabas_broker.coordinators.replay import Report
from barnabas_broker.coordinators.result import APPEND_ERRORS
from barnabas_broker.coordinators.runtime import Runtime
from barnabas_broker.coordinators.timed_out import TimedOutTransactions
from barnabas_broker.coordinators.writer import BATCH_BYTES, Waiter
from barnabas_broker.groups.classic.group import ClassicGroup, GroupSettings, first_names
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.assignors import load_assignors
from barnabas_broker.groups.consumer.classic_members import MigrationPolicy
from barnabas_broker.groups.consumer.group import ConsumerEffect, ConsumerGroup
from barnabas_broker.groups.consumer.members import JOIN_EPOCH
from barnabas_broker.groups.consumer.metadata_hash import group_hash, topic_hash
from barnabas_broker.groups.consumer.settings import ConsumerGroupSettings, GroupTimes
from barnabas_broker.groups.consumer.topics import TopicCatalog
from barnabas_broker.groups.consumer.validation import check_heartbeat
from barnabas_broker.groups.coordinator import loading
from barnabas_broker.groups.coordinator.fetches import Fetches
from barnabas_broker.groups.coordinator.hosting import (
    MOST_AT_ONCE,
    Group,
    GroupPartition,
    GroupRuntime,
    HostedGroup,
    HostedGroups,
    HostedShareGroup,
    PendingReply,
)
from barnabas_broker.groups.coordinator.inspection import (
    describe_consumer_group,
    describe_each,
    describe_group,
    failed_consumer_group,
    failed_group,
    list_groups,
    missing_group,
)
from barnabas_broker.groups.coordinator.offset_service import OffsetExpiry, OffsetService
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.coordinator.responses import leave_response, leaving_members, together
from barnabas_broker.groups.coordinator.share_service import ShareGroups
from barnabas_broker.groups.coordinator.stuck_check import StuckCheck
from barnabas_broker.groups.effects import Caller, Reply
from barnabas_broker.groups.embedded_protocol import Subscription, read_subscription
from barnabas_broker.groups.errors import heartbeat_error, join_error, sync_error
from barnabas_broker.groups.fetch_reports import FetchMessage, FetchReport, FetchReporter
from barnabas_broker.groups.journal import Journal
from barnabas_broker.groups.migration import check_joins, check_upgrade, too_large, upgrade, upgraded_event
from barnabas_broker.groups.new_topics import NewTopics
from barnabas_broker.groups.ports import EventsLog, OffsetsLog, OtherBrokers, ReadLogs, ShareStates
from barnabas_broker.groups.requests import (
    GroupRequest,
    GroupRequests,
    MemberRequest,
    MemberResponse,
    changes_group,
    error_of,
)
from barnabas_broker.groups.searches import Search, Searches
from barnabas_broker.groups.sightings import AskedTopics, ClientAddress, Clients, CommitsElsewhere, MemberConnection
from barnabas_broker.logs import logger
from barnabas_broker.offload import Offload, at_once
from barnabas_broker.recent import Lately
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.steps import Steps, distinct
from barnabas_explain.catalog import (
    CommitsRefused,
    CoordinatorSought,
    GroupDeleted,
    GroupEvent,
    GroupReconciled,
    JoinRefused,
    MemberReplaced,
    RebalanceOver,
    RegexRefused,
    SessionRefused,
    TargetAssigned,
    TopicChanged,
)
from barnabas_explain.members import Member
from barnabas_protocol.coordinator_records import CoordinatorRecord
from barnabas_protocol.errors import EncodeError, ErrorCode, KafkaError
from barnabas_protocol.group_records import group_record
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_protocol.subscriptions import CONSUMER
from barnabas_protocol.wire import MAX_STRING

log = logger("coordinator")

M = TypeVar("M", JoinGroupResponse, SyncGroupResponse, LeaveGroupResponse, ConsumerGroupHeartbeatResponse)

#: The keys of a group's timeouts and intervals.
_TIMES: Final = (CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_HEARTBEAT_INTERVAL_MS, CONSUMER_ASSIGNMENT_INTERVAL_MS)
#: The longest client id or instance id of a member, in bytes: its member id has a UUID as well.
_LONGEST_NAME: Final = MAX_STRING - 100
#: Bytes of a subscription that is read in a thread.
_LARGE_SUBSCRIPTION: Final = 64 * 1024
#: A client that may not join is reported once in so many seconds of a group, of so many groups.
_REFUSAL_SECONDS: Final = 60.0
_MOST_REFUSALS: Final = 64
#: Members that leave in one step.
_LEAVE_PER_STEP: Final = 2_000
#: Seconds that a request waits for an earlier change of its share group.
_PATIENCE: Final = 5.0
#: Heartbeat responses have nothing but an error code, so there is one of each.
_HEARTBEATS: Final = {code: HeartbeatResponse(error_code=code) for code in ErrorCode}


class GroupCoordinator:
    """Coordinates the groups whose partition of ``__consumer_offsets`` this broker leads.

    Args:
        config: of the broker.
        offsets_log: appends to and reads ``__consumer_offsets``.
        share_states: creates and deletes the states of share partitions.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        new_id: makes the second part of member ids.
        loop: an event loop; the running one if None.
        events: the log of ``__group_events``; None writes no events.
        on_event: gets every group event, too.
        offload: computes the targets of large groups of the consumer protocol; by default at once.
        regexes: checks regular expressions, and matches all topics with them; by default at once.
        logs: the logs that groups read; None: offsets that stand still are not looked for.
        timed_out: the transactional ids whose transactions are aborted by their timeout, on this broker.
        others: the other brokers, which see the Fetches of the partitions that they lead; None without any.

    Attributes:
        journal: the recent group events, and the metrics derived from them.
        requests: the recent requests that changed groups, or were refused.
        offsets: the requests about committed offsets.
        share_groups: the requests about share groups.
        fetches: what the clients of groups read.
        new_topics: the topics that are new.
    """

    what = "groups and offsets"
    ids = "groups"
    busy = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def __init__(
        self,
        config: Config,
        offsets_log: OffsetsLog,
        share_states: ShareStates,
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid4()),
        loop: Scheduler | None = None,
        events: EventsLog | None = None,
        on_event: Callable[[str, GroupEvent], None] = lambda group_id, event: None,
        offload: Offload = at_once,
        regexes: RegexSearch | None = None,
        logs: ReadLogs | None = None,
        timed_out: TimedOutTransactions | None = None,
        others: OtherBrokers | None = None,
    ) -> None:
        scheduler: Scheduler = asyncio.get_running_loop() if loop is None else loop
        self._min_session_timeout = config[GROUP_MIN_SESSION_TIMEOUT_MS]
        self._max_session_timeout = config[GROUP_MAX_SESSION_TIMEOUT_MS]
        self._catalog = TopicCatalog(topic_hash, group_hash)
        self._config = config
        #: Timeouts and intervals of the consumer groups that have their own, by group id.
        self._own_times: dict[str, GroupTimes] = {}
        names = config[GROUP_CONSUMER_ASSIGNORS]
        assignors = load_assignors(names)
        consumer_settings = ConsumerGroupSettings(
            new_id=new_id,
            assignors=tuple(assignors),
            topics=self._catalog,
            times=_times_of(GroupConfig(config, {})),
            own_times=self._own_times,
            regex_interval=config[GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS] / 1000,
            max_size=config[GROUP_CONSUMER_MAX_SIZE],
            migration=MigrationPolicy(config[GROUP_CONSUMER_MIGRATION_POLICY]),
            classic_max_size=config[GROUP_MAX_SIZE],
        )
        settings = GroupSettings(
            new_id=new_id,
            initial_delay=config[GROUP_INITIAL_REBALANCE_DELAY_MS] / 1000,
            max_size=config[GROUP_MAX_SIZE],
        )
        self._regexes = RegexSearch() if regexes is None else regexes
        self._runtime: GroupRuntime = Runtime(
            OFFSETS_TOPIC,
            config[OFFSETS_TOPIC_NUM_PARTITIONS],
            self,
            offsets_log,
            log,
            scheduler,
            scheduler,
            now,
            wall_ms,
            timeout=config[OFFSETS_COMMIT_TIMEOUT_MS] / 1000,
            patience=_PATIENCE,
        )
        self._hosted_groups = HostedGroups(
            self._runtime,
            settings,
            offsets_log,
            now,
            wall_ms,
            scheduler,
            self._event_happened,
            consumer_settings,
            assignors,
            offload,
            self._regexes,
            logs,
        )
        self.share_groups = ShareGroups(self._hosted_groups, config, share_states)
        self._on_event = on_event
        self.journal = Journal(events, self.partition_for, now, wall_ms, scheduler)
        self.requests = GroupRequests()
        elsewhere = CommitsElsewhere()
        self.new_topics = NewTopics()
        self._clients = Clients()
        self.fetches = Fetches(self._hosted_groups, self._clients, self.new_topics, logs, others)
        self.offsets = OffsetService(
            self._hosted_groups,
            config[OFFSET_METADATA_MAX_BYTES],
            config[MESSAGE_MAX_BYTES],
            config[OFFSETS_RETENTION_MINUTES] * 60_000,
            self._commit_refused,
            self.looked_at,
            self.fetches.gets,
            elsewhere,
            logs,
        )
        expiry_interval = config[OFFSETS_RETENTION_CHECK_INTERVAL_MS] / 1000
        self._expiry = OffsetExpiry(self._hosted_groups, self.offsets, expiry_interval)
        self._topics: dict[str, int] = {}
        #: When it was last reported that a client may not join, by group.
        self._refused: Lately[str] = Lately(_REFUSAL_SECONDS, _MOST_REFUSALS)
        self._searches = Searches(self._stays_away)
        patience = config[GROUP_STUCK_OFFSET_MS] / 1000
        self._stuck = StuckCheck(
            self._hosted_groups, logs, self._clients, elsewhere, timed_out or TimedOutTransactions(), others, patience
        )
        self._reporter = FetchReporter(self._clients, logs, self._hosted_groups.by_id.__contains__)

    # Clients

    def opened(self, client: ClientAddress) -> Callable[[], None]:
        """A client sends its first request of any kind on a connection; returns what is to be called when that is
        closed."""
        return self._clients.opened(client)

    def connected(self, client: ClientAddress, software: str, listener: str = "") -> MemberConnection:
        """A client sends its first request about groups on a connection.

        Args:
            client: the client.
            software: the name and version of its library; "" if it has not sent them.
            listener: the name of the listener that accepted the connection; "" if that is not known.
        """
        seen = self._clients.get(client)
        now = self._hosted_groups.now()
        return MemberConnection(seen, client.client_id, software, self._connection_closed, listener, now)

    def sought(self, group_id: str, caller: Caller, listener: str = "", advertised: str = "") -> None:
        """A client has asked for the coordinator of a group, and may know it.

        Args:
            group_id: the group.
            caller: the client.
            listener: that on which it asked; "" if that is not known.
            advertised: the address of the coordinator that it got, host:port; "" if that is not known.
        """
        if self.partition_for(group_id) in self.loaded and not self._is_known(group_id):
            self._searches.add(group_id, caller, self._hosted_groups.now(), listener, advertised)
            self._runtime.timers.arm(self._searches)

    def looked_at(self, group_id: str, caller: Caller) -> None:
        """A client has asked for the members or the offsets of a group, or a request of it was refused."""
        self._searches.looked_at(group_id, caller)

    def _is_known(self, group_id: str) -> bool:
        """Whether a group exists, or has existed lately."""
        return self._hosted_groups.exists(group_id) or bool(self.journal.recent(group_id))

    def _stays_away(self, search: Search) -> None:
        """Report a client that has asked for the coordinator of a group, and has not joined."""
        caller, connection = search.caller, search.caller.connection
        if self.partition_for(search.group_id) not in self.loaded or self._is_known(search.group_id):
            return
        now, topics = self._hosted_groups.now(), AskedTopics() if connection is None else connection.topics
        event = CoordinatorSought(
            generation=-1,
            client_id=caller.client_id,
            host=caller.host,
            principal=caller.principal or None,
            software=(None if connection is None else connection.software) or None,
            waited_ms=(now - search.at) * 1000,
            listener=search.listener or None,
            advertised=search.advertised or None,
            asks=search.times if search.asks_again(now) else 0,
            missing=topics.missing or None,
            hidden=topics.hidden or None,
            are_all=topics.are_all or None,
        )
        self._hosted_groups.publish(search.group_id, event)

    def fetches_seen(self, message: FetchMessage) -> Steps[FetchReport]:
        """Take note of what another broker has seen of the Fetches of clients, and answer what this one has."""
        for notice in message.notices:
            self.fetches.noticed(notice)
            yield
        return (yield from self._reporter.report(message, self._hosted_groups.now()))

    def denied(self, group_id: str, caller: Caller) -> None:
        """A request for a group was refused, because the user of a client may not read the group."""
        self.looked_at(group_id, caller)
        if caller.connection is not None:
            caller.connection.denied = group_id, self._hosted_groups.now()

    def _connection_closed(self, connection: MemberConnection) -> None:
        """A connection is closed on which members have sent requests."""
        hosted_groups = self._hosted_groups
        now = connection.closed_at = hosted_groups.now()
        for group_id in dict.fromkeys([*(group_id for group_id, _ in connection.members), *connection.gone]):
            hosted = hosted_groups.by_id.get(group_id)
            if hosted is not None and not self._runtime.closed:
                for event in hosted.sightings.closed(connection, now, hosted.group.generation):
                    hosted_groups.publish(group_id, event)

    def _event_happened(self, group_id: str, event: GroupEvent) -> bool:
        now = self._hosted_groups.now()
        event = self.new_topics.complete(event, now)
        hosted = self._hosted_groups.by_id.get(group_id)
        if hosted is not None and isinstance(event, RebalanceOver):
            hosted.sightings.rebalanced(now)
            self.fetches.owned(hosted, anew=True)
        elif hosted is not None and isinstance(event, GroupReconciled | MemberReplaced):
            self.fetches.owned(hosted, anew=False)
        elif hosted is not None and isinstance(event, TargetAssigned):
            hosted.sightings.assigned(now)
        self._on_event(group_id, event)
        return self.journal.add(event)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End the session of a member, as if its heartbeats had stopped. A member that waits for a rebalance stays."""
        hosted = self._hosted_groups.by_id[group_id]
        if not self._hosted_groups.waits(hosted, lambda: self.expire_member(group_id, member_id)):
            self._hosted_groups.act(hosted, hosted.group.expire(member_id, self._hosted_groups.now()))

    def _answer(self, request: MemberRequest, caller: Caller, reply: PendingReply[M]) -> M | Future[M]:
        """The response to a request that was carried out, or a future of it."""
        if reply.response is not None and reply.response.error_code:
            self.looked_at(request.group_id, caller)
        self._seen(request, caller, reply.response, reply)
        return reply.result(self._hosted_groups.loop)

    def _seen(
        self,
        request: MemberRequest,
        caller: Caller,
        response: MemberResponse | None,
        reply: PendingReply[Any] | None = None,
    ) -> None:
        """Keep a request that has changed its group, or was refused; `reply` gets the response that comes later."""
        hosted_groups = self._hosted_groups
        hosted = hosted_groups.by_id.get(request.group_id)
        if hosted is None or (response is not None and not changes_group(request, response)):
            return
        generation = hosted.group.generation
        time_ms = hosted_groups.wall_ms()
        answer = None if response is None else error_of(response)
        if not generation and answer == ErrorCode.MEMBER_ID_REQUIRED:
            return  # A client may ask for member ids in ever new groups: these have no requests.
        if self.requests.count(request, answer, time_ms, generation):
            return
        seen = GroupRequest(request, caller, time_ms)
        if response is not None:
            seen.answered(response)
            self.requests.add(request.group_id, seen, generation)
        elif self.requests.add(request.group_id, seen, generation) and reply is not None:
            came = hosted_groups.now()

            def answered(later: MemberResponse) -> None:
                waited = round((hosted_groups.now() - came) * 1000)
                self.requests.answered(request.group_id, seen, later, waited)

            reply.watch = answered

    def _commit_refused(
        self, request: OffsetCommitRequest | TxnOffsetCommitRequest, caller: Caller, code: ErrorCode
    ) -> None:
        hosted = self._hosted_groups.by_id.get(request.group_id)
        if hosted is not None:
            seen = GroupRequest(request, caller, self._hosted_groups.wall_ms())
            seen.refused(code)
            self.requests.add(request.group_id, seen, hosted.group.generation)
            commits = None if caller.connection is None else caller.connection.commit_refused(request.group_id, code)
            if commits is not None:
                member = Member(request.member_id, caller.client_id, caller.host, request.group_instance_id)
                transaction = request.transactional_id if isinstance(request, TxnOffsetCommitRequest) else None
                event = CommitsRefused(
                    generation=hosted.group.generation,
                    member=member,
                    error=code.name,
                    commits=commits,
                    sent=request.generation_id_or_member_epoch,
                    transactional_id=transaction,
                    is_member=None if transaction is None else hosted.has_member(request.member_id),
                )
                self._hosted_groups.publish(request.group_id, event)

    # JoinGroup, SyncGroup, Heartbeat, LeaveGroup

    def join(
        self, request: JoinGroupRequest, version: int, caller: Caller
    ) -> JoinGroupResponse | Future[JoinGroupResponse]:
        """JoinGroup: a future until the join phase is over."""
        reply: PendingReply[JoinGroupResponse] = PendingReply(version)
        self._join(request, version, caller, reply)
        if reply.response is not None and reply.response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self._report_protocols(request, caller)
        return self._answer(request, caller, reply)

    def _join(
        self,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        reply: PendingReply[JoinGroupResponse],
        subscription: Subscription | None = None,
    ) -> None:
        """Pass a JoinGroup to its group, with its subscription if that was read beforehand."""
        hosted_groups = self._hosted_groups

        def refuse(error: KafkaError) -> None:
            reply.respond(join_error(error.code, request.member_id))

        try:
            hosted, group = self._group_to_join(request, caller)
        except KafkaError as error:
            refuse(error)
            return
        again = partial(self._join, request, version, caller, reply)
        if hosted_groups.waits(hosted, partial(again, subscription), refuse):
            return
        if isinstance(group, ConsumerGroup) and group.is_empty:
            hosted_groups.clear(hosted, again, refuse)
            return
        now = hosted_groups.now()
        effects: Iterable[ConsumerEffect]
        if isinstance(group, ClassicGroup):
            effects = group.join(request, version, caller, reply, now)
        elif subscription is None and self._takes_long_to_read(request):

            def read(result: Any) -> None:
                if isinstance(result, Exception):
                    reply.respond(join_error(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
                else:
                    again(result)

            hosted_groups.offload(partial(read_subscription, bytes(request.protocols[0].metadata)), read)
            return
        else:
            effects = group.join(request, version, caller, reply, now, subscription)
        if group.recorded:
            hosted_groups.keep(hosted)
        if isinstance(group, ClassicGroup) and group.generation == 0:
            hosted_groups.limit_unused(hosted)
        hosted_groups.act(hosted, effects, caller.connection)

    def _takes_long_to_read(self, request: JoinGroupRequest) -> bool:
        """Whether a subscription has so many topics that it is read in a thread; one that is too large is refused."""
        size = len(request.protocols[0].metadata) if request.protocols else 0
        return _LARGE_SUBSCRIPTION < size <= self._hosted_groups.consumer_settings.max_record_bytes // 2

    def _group_to_join(self, request: JoinGroupRequest, caller: Caller) -> tuple[HostedGroup, Group]:
        """The group of a JoinGroup; a new one if the client has no member id yet.

        It may be one of the consumer protocol: with members, they interoperate; an empty one has to be deleted first.

        Raises:
            KafkaError: the request is invalid, or this broker does not coordinate the group.
        """
        # A longer id does not fit into a record's key. Kafka notices that only when it writes the record.
        if not request.group_id or len(request.group_id.encode()) > MAX_STRING:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        # Member ids begin with one of these, and every version of DescribeGroups has to fit them.
        if max(len((request.group_instance_id or "").encode()), len(caller.client_id.encode())) > _LONGEST_NAME:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not self._min_session_timeout <= request.session_timeout_ms <= self._max_session_timeout:
            self._report_session(request, caller)
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        hosted = self._hosted_groups.find(request.group_id)
        if hosted is None:
            if self._hosted_groups.exists(request.group_id):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            hosted = self._hosted_groups.create_classic(request.group_id)
        group = hosted.group
        if isinstance(group, ConsumerGroup) and group.is_empty and request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return hosted, group

    def _report_session(self, request: JoinGroupRequest, caller: Caller) -> None:
        """Report a session timeout that is not allowed."""
        refused = SessionRefused(
            generation=0,
            member=Member(request.member_id, caller.client_id, caller.host, request.group_instance_id),
            session_ms=request.session_timeout_ms,
            least_ms=self._min_session_timeout,
            most_ms=self._max_session_timeout,
        )
        self._may_not_join(request.group_id, refused)

    def _report_protocols(self, request: JoinGroupRequest, caller: Caller) -> None:
        """Report a classic client that a group of the consumer protocol refuses because of its protocols."""
        hosted = self._hosted_groups.by_id.get(request.group_id)
        if hosted is None or not isinstance(hosted.group, ConsumerGroup) or not request.protocols:
            return  # A classic group reports it by itself.
        other_type = None if request.protocol_type == CONSUMER else first_names([request.protocol_type])[0]
        refused = JoinRefused(
            generation=0,
            member=Member(request.member_id, caller.client_id, caller.host, request.group_instance_id),
            protocol_type=other_type,
            offered=first_names(protocol.name for protocol in request.protocols),
            supported=first_names(hosted.group.supported_protocols()),
        )
        self._may_not_join(request.group_id, refused)

    def _report_assignor(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> None:
        """Report a client that asks for an assignor that this broker does not have."""
        refused = JoinRefused(
            generation=0,
            member=Member(request.member_id, caller.client_id, caller.host, request.instance_id),
            error=ErrorCode.UNSUPPORTED_ASSIGNOR.name,
            offered=first_names([request.server_assignor or ""]),
            supported=first_names(self._hosted_groups.consumer_settings.assignors),
        )
        self._may_not_join(request.group_id, refused)

    def _report_regex(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, problem: str) -> None:
        """Report a client whose regular expression is not valid."""
        member = Member(request.member_id, caller.client_id, caller.host, request.instance_id)
        self._may_not_join(request.group_id, RegexRefused(generation=0, member=member, problem=problem))

    def _may_not_join(self, group_id: str, event: GroupEvent) -> None:
        """Report that a client may not join: clients try again all the time, with ever new groups if they like."""
        now = self._hosted_groups.now()
        if not self._refused.may_add(group_id, now):
            return
        try:
            hosted = self._hosted_groups.find(group_id)
        except KafkaError:
            return
        self._refused[group_id] = now
        generation = 0 if hosted is None else hosted.group.generation
        self._hosted_groups.publish(group_id, event.changed(generation=generation))

    def sync(
        self, request: SyncGroupRequest, version: int, caller: Caller
    ) -> SyncGroupResponse | Future[SyncGroupResponse]:
        """SyncGroup: a future until the leader's assignment is in the log."""
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return sync_error(ErrorCode.INVALID_GROUP_ID)
        reply: PendingReply[SyncGroupResponse] = PendingReply(version)
        self._sync(request, reply)
        return self._answer(request, caller, reply)

    def _sync(self, request: SyncGroupRequest, reply: PendingReply[SyncGroupResponse]) -> None:
        hosted_groups = self._hosted_groups

        def refuse(error: KafkaError) -> None:
            reply.respond(sync_error(error.code))

        try:
            hosted = hosted_groups.find(request.group_id)
        except KafkaError as error:
            # While the group is being loaded: the rebalance that the request belongs to is lost, and clients treat
            # LOAD_IN_PROGRESS as fatal here.
            loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            reply.respond(sync_error(ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code))
            return
        if hosted is None:
            reply.respond(sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        elif not hosted_groups.waits(hosted, partial(self._sync, request, reply), refuse):
            hosted_groups.act(hosted, hosted.group.sync(request, reply, hosted_groups.now()))

    def heartbeat(self, request: HeartbeatRequest, version: int, caller: Caller) -> HeartbeatResponse:
        """Heartbeat."""
        hosted_groups = self._hosted_groups
        hosted = hosted_groups.by_id.get(request.group_id)
        if hosted is None or not request.group_id:  # Offsets may be committed to the group "", but it has no members.
            return _HEARTBEATS[self._heartbeat_error(request.group_id)]
        group, now = hosted.group, hosted_groups.now()
        identity = request.member_id, request.group_instance_id, request.generation_id
        if isinstance(group, ClassicGroup):
            code = group.heartbeat(*identity, now)
        else:
            code = group.classic_heartbeat(*identity, now)
            hosted_groups.act(hosted, ())
        response = _HEARTBEATS[code]
        if code:
            self._seen(request, caller, response)
        else:
            self._heard(hosted, request.member_id, caller)
        return response

    def _heard(self, hosted: HostedGroup, member_id: str, caller: Caller) -> None:
        """A member has sent a request that was not refused."""
        member = hosted.sightings.heard(member_id, caller.connection)
        if member is not None:
            event = hosted.sightings.returns(member, self._hosted_groups.now(), hosted.group.generation)
            if event is not None:
                self._hosted_groups.publish(hosted.name, event)

    def _heartbeat_error(self, group_id: str) -> ErrorCode:
        """The result of a heartbeat to a group that this broker does not have."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            self._hosted_groups.find(group_id)
        except KafkaError as error:
            # While the group is being loaded its members must not give up.
            return ErrorCode.NONE if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(
        self, request: LeaveGroupRequest, version: int, caller: Caller
    ) -> LeaveGroupResponse | Future[LeaveGroupResponse] | Steps[LeaveGroupResponse | Future[LeaveGroupResponse]]:
        """LeaveGroup: in a group of the consumer protocol a future until its records are in the log.

        Thousands of members leave some at a time.
        """
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        identities = leaving_members(request, version)
        if len(identities) > _LEAVE_PER_STEP:
            return self._leave_in_steps(identities, request, version, caller)
        reply: PendingReply[LeaveGroupResponse] = PendingReply(version)
        self._leave(identities, request.group_id, version, caller, reply)
        return self._answer(request, caller, reply)

    def _leave_in_steps(
        self, identities: list[MemberIdentity], request: LeaveGroupRequest, version: int, caller: Caller
    ) -> Steps[LeaveGroupResponse | Future[LeaveGroupResponse]]:
        """LeaveGroup of thousands of members: each step is one of some of them."""
        loop = self._hosted_groups.loop
        parts: list[LeaveGroupResponse | Future[LeaveGroupResponse]] = []
        for start in range(0, len(identities), _LEAVE_PER_STEP):
            reply: PendingReply[LeaveGroupResponse] = PendingReply(version)
            self._leave(identities[start : start + _LEAVE_PER_STEP], request.group_id, version, caller, reply)
            if not start:
                self._seen(request, caller, reply.response, reply)
            parts.append(reply.result(loop))
            yield
        whole: Future[LeaveGroupResponse] = loop.create_future()
        waiting = [each for each in parts if isinstance(each, Future)]

        def over(part: Future[LeaveGroupResponse] | None) -> None:
            if whole.done() or not all(each.done() for each in waiting):
                return
            whole.set_result(together([each.result() if isinstance(each, Future) else each for each in parts]))

        over(None)
        for each in waiting:
            each.add_done_callback(over)
        return whole

    def _leave(
        self,
        identities: list[MemberIdentity],
        group_id: str,
        version: int,
        caller: Caller,
        reply: PendingReply[LeaveGroupResponse],
    ) -> None:
        hosted_groups = self._hosted_groups

        def refuse(error: KafkaError) -> None:
            reply.respond(LeaveGroupResponse(error_code=error.code))

        try:
            hosted = hosted_groups.find(group_id)
        except KafkaError as error:
            refuse(error)
            return
        if hosted is None:
            unknown = [ErrorCode.UNKNOWN_MEMBER_ID] * len(identities)
            reply.respond(leave_response(identities, unknown, version))
            return
        if hosted_groups.waits(hosted, partial(self._leave, identities, group_id, version, caller, reply), refuse):
            return
        group = hosted.group
        if isinstance(group, ConsumerGroup):
            hosted_groups.act(hosted, group.leave(identities, reply, hosted_groups.now()), caller.connection)
            return
        codes, effects = group.leave(identities, hosted_groups.now())
        hosted_groups.act(hosted, effects, caller.connection)
        reply.respond(leave_response(identities, codes, version))

    # ConsumerGroupHeartbeat, ConsumerGroupDescribe

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse | Future[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat: a future until its records are in the log, and its target is computed."""
        reply: PendingReply[ConsumerGroupHeartbeatResponse] = PendingReply(version)
        self._consumer_heartbeat(request, version, caller, reply, None)
        if reply.response is not None and reply.response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR:
            self._report_assignor(request, caller)
        return self._answer(request, caller, reply)

    def _consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        caller: Caller,
        reply: PendingReply[ConsumerGroupHeartbeatResponse],
        checked_regex: str | None,
    ) -> None:
        """Pass a heartbeat to its group, once its regular expression is known to be valid."""
        hosted_groups = self._hosted_groups

        def refuse(error: KafkaError) -> None:
            reply.respond(heartbeat_error(error))

        regex = request.subscribed_topic_regex
        existing = hosted_groups.by_id.get(request.group_id)
        try:
            if regex or existing is None or isinstance(existing.group, ClassicGroup):
                # Before the expression is compiled, or a group is created. Else the group checks it.
                check_heartbeat(request, version, hosted_groups.consumer_settings)
            hosted, group = self._consumer_group(request)
        except KafkaError as error:
            refuse(error)
            return
        again = partial(self._consumer_heartbeat, request, version, caller, reply)
        if hosted_groups.waits(hosted, partial(again, checked_regex), refuse):
            return
        known = regex == checked_regex or (isinstance(group, ConsumerGroup) and group.uses_regex(regex or ""))
        if regex and request.member_epoch >= JOIN_EPOCH and not known:

            def checked(invalid: Exception | None) -> None:
                if invalid is None:
                    again(regex)
                else:
                    message = f"SubscribedTopicRegex {invalid}"
                    self._report_regex(request, caller, message)
                    refuse(KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message))

            self._regexes.check(regex, (caller.principal, caller.host), checked)
            return
        if isinstance(group, ConsumerGroup):
            self._beat(hosted, group, request, version, caller, reply)
        elif not group.is_empty:
            self._upgrade(hosted, group, request, version, caller, reply)
        else:
            new = ConsumerGroup(request.group_id, hosted_groups.consumer_settings, hosted_groups.now())
            go_on = partial(self._beat, hosted, new, request, version, caller, reply)
            hosted_groups.clear(hosted, go_on, refuse)

    def _beat(
        self,
        hosted: HostedGroup,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        caller: Caller,
        reply: PendingReply[ConsumerGroupHeartbeatResponse],
    ) -> None:
        """Pass a heartbeat to its machine. A new group takes the place in `hosted` as soon as it has a member."""
        hosted_groups = self._hosted_groups
        effects = group.heartbeat(request, version, caller, reply, hosted_groups.now())
        if group.recorded:
            if hosted.group is not group:
                hosted_groups.migrate(hosted, group)
            hosted_groups.keep(hosted)
        hosted_groups.act(hosted, effects, caller.connection)
        if request.member_id in group.members:
            self._heard(hosted, request.member_id, caller)

    def _upgrade(
        self,
        hosted: HostedGroup,
        classic: ClassicGroup,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        caller: Caller,
        reply: PendingReply[ConsumerGroupHeartbeatResponse],
    ) -> None:
        """A member of the consumer protocol joins a classic group with members: if it may, the group is upgraded."""
        hosted_groups = self._hosted_groups

        def steps() -> Steps[tuple[ConsumerGroup, list[ConsumerEffect]]]:
            group = yield from upgrade(classic, hosted_groups.consumer_settings, hosted_groups.now())
            records = group.migration
            if len(records) <= MOST_AT_ONCE:
                return group, []  # They are appended with those of the member that joins.
            try:
                batch = yield from hosted_groups.batch_of(records)
            except EncodeError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            if len(batch) > BATCH_BYTES:
                raise too_large(classic)
            return group, [group.migration_appended(batch)]

        def over(result: tuple[ConsumerGroup, list[ConsumerEffect]] | KafkaError) -> None:
            if isinstance(result, KafkaError):
                reply.respond(heartbeat_error(result))
                return
            group, first = result
            effects = group.heartbeat(request, version, caller, reply, hosted_groups.now())
            if not group.recorded:
                # The member was refused: the classic group stays as it is.
                hosted_groups.act(hosted, [effect for effect in effects if isinstance(effect, Reply)])
                return
            joined = group.members.get(request.member_id) or next(reversed(group.members.values()))
            upgraded = upgraded_event(classic, group, joined.identity())
            hosted_groups.migrate(hosted, group)
            interrupted, waiting = classic.upgraded(hosted_groups.now())
            hosted_groups.act(
                hosted, [upgraded, *interrupted, *first, *effects, *group.wait_for_log(waiting)], caller.connection
            )

        hosted_groups.change_protocol(hosted, steps(), over)

    def _consumer_group(self, request: ConsumerGroupHeartbeatRequest) -> tuple[HostedGroup, Group]:
        """The group of a heartbeat; a new one for a member that joins.

        It is a classic one if that has members and may be upgraded, or is empty: then it has to be deleted first.

        Raises:
            KafkaError: it does not exist, is a classic group, or this broker does not coordinate it.
        """
        group_id = request.group_id
        hosted_groups = self._hosted_groups
        hosted = hosted_groups.by_id.get(group_id)
        if hosted is None:
            if len(group_id.encode()) > MAX_STRING:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            hosted = hosted_groups.find(group_id)
        if hosted is not None and isinstance(hosted.group, ConsumerGroup):
            return hosted, hosted.group
        exists = hosted_groups.exists(group_id)
        if request.member_epoch != JOIN_EPOCH or (exists and hosted is None):
            what = f"Group {group_id} is not a consumer group." if exists else f"Consumer group {group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, what)
        if hosted is not None and isinstance(hosted.group, ClassicGroup) and not hosted.group.is_empty:
            check_upgrade(hosted.group, hosted_groups.consumer_settings)
            check_joins(hosted.group, request, hosted_groups.consumer_settings)
            return hosted, hosted.group
        if hosted is None:
            hosted = hosted_groups.create(ConsumerGroup(group_id, hosted_groups.consumer_settings, hosted_groups.now()))
        return hosted, hosted.group

    def consumer_describe(
        self, request: ConsumerGroupDescribeRequest, version: int, caller: Caller
    ) -> Steps[ConsumerGroupDescribeResponse]:
        """ConsumerGroupDescribe, one group per step, or a part of a large one."""

        def describe(group_id: str) -> Steps[DescribedConsumerGroup]:
            self.looked_at(group_id, caller)
            hosted = self._hosted_groups.find(group_id)
            if hosted is None or not isinstance(hosted.group, ConsumerGroup):
                raise self._hosted_groups.not_found(group_id, "consumer")
            return describe_consumer_group(hosted.group, self._catalog, request.include_authorized_operations)

        groups = yield from describe_each(request.group_ids, describe, failed_consumer_group)
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)

    # DescribeGroups, ListGroups, DeleteGroups

    def describe(self, request: DescribeGroupsRequest, version: int, caller: Caller) -> Steps[DescribeGroupsResponse]:
        """DescribeGroups, one group per step. A group that is named more than once is described once."""
        response = DescribeGroupsResponse(groups=[])
        for group_id in (yield from distinct(request.groups)):
            self.looked_at(group_id, caller)
            response.groups.append(self._describe(group_id, version, request.include_authorized_operations))
            yield
        return response

    def _describe(self, group_id: str, version: int, operations: bool) -> DescribedGroup:
        try:
            hosted = self._hosted_groups.find(group_id)
            if hosted is None or not isinstance(hosted.group, ClassicGroup):
                # Clients recognize the message, and ask with ConsumerGroupDescribe.
                return missing_group(group_id, self._hosted_groups.not_found(group_id, "classic"), version, operations)
        except KafkaError as error:
            return failed_group(group_id, error.code)
        return describe_group(hosted.group, operations)

    def list_groups(self, request: ListGroupsRequest, version: int, caller: Caller) -> Steps[ListGroupsResponse]:
        """ListGroups: the groups that this broker coordinates."""
        try:
            homes = self._runtime.homes()
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code, groups=[])
        found = [
            hosted.machine if isinstance(hosted, HostedShareGroup) else hosted.group
            for home in homes
            for hosted in home.hosted.values()
        ]
        groups = yield from list_groups(found, request)
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)

    def delete_groups(
        self, request: DeleteGroupsRequest, version: int, caller: Caller
    ) -> Steps[DeleteGroupsResponse | Future[DeleteGroupsResponse]]:
        """DeleteGroups: deletes groups without members, with their offsets. A future until that is in the log."""
        response = DeleteGroupsResponse(results=[])
        future: Future[DeleteGroupsResponse] = self._hosted_groups.loop.create_future()
        remaining: set[str] = set()

        def deleted(result: DeletableGroupResult, error: ErrorCode) -> None:
            if result.group_id in remaining:
                result.error_code = APPEND_ERRORS.get(error, error)
                remaining.remove(result.group_id)
            if not remaining and complete and not future.done():
                future.set_result(response)

        complete = False
        for group_id in (yield from distinct(request.groups_names)):
            result = DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)
            response.results.append(result)
            try:
                # Checked and deleted in one step: between two the group may get a member, or move to another broker.
                hosted = self._group_to_delete(group_id)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message or None
            else:
                remaining.add(group_id)
                self._delete(hosted, caller, partial(deleted, result))
            yield
        complete = True
        return future if remaining else response

    def _delete(self, hosted: HostedGroup | HostedShareGroup, caller: Caller, deleted: Waiter) -> None:
        """Delete a group without members."""
        if isinstance(hosted, HostedShareGroup):
            self.share_groups.delete(hosted, deleted)
            return
        keys = hosted.offsets.all_keys()
        event = GroupDeleted(
            generation=hosted.group.generation,
            offsets=len(keys),
            expired=False,
            client_id=caller.client_id,
            host=caller.host,
            principal=caller.principal or None,
        )
        self._hosted_groups.publish(hosted.name, event)
        hosted.group.forget_pending()
        self._hosted_groups.append_tombstones(hosted, keys, deleted, whole_group=True)

    def _group_to_delete(self, group_id: str) -> HostedGroup | HostedShareGroup:
        """The group to delete.

        Raises:
            KafkaError: it does not exist, has members, or another broker coordinates it.
        """
        hosted = self._hosted_groups.find(group_id)
        if hosted is None and self._hosted_groups.exists(group_id):
            return self.share_groups.find_empty(group_id)
        if hosted is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "The group does not exist.")
        if not hosted.group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group has members: they must leave before it is deleted.")
        return hosted

    # What this broker coordinates

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that a group belongs to."""
        return self._runtime.partition_for(group_id)

    @property
    def groups(self) -> Mapping[str, HostedGroup]:
        """The groups that this broker coordinates, by id. Read-only."""
        return self._hosted_groups.by_id

    @property
    def loaded(self) -> frozenset[int]:
        """The partitions of ``__consumer_offsets`` that are loaded."""
        return self._runtime.loaded

    def next_position(self) -> int:
        """The position of what is being appended to ``__consumer_offsets``, in the order of all appends."""
        return self._hosted_groups.next_sequence()

    async def load(self, index: int, leader_epoch: int) -> None:
        """Load a partition and start to coordinate its groups; takes as long as reading its log."""
        self._runtime.timers.arm(self._expiry)
        self._runtime.timers.arm(self._stuck)
        await self._runtime.load(index, leader_epoch)

    def unload(self, index: int) -> None:
        """Stop to coordinate a partition's groups: deferred requests fail with NOT_COORDINATOR."""
        self._runtime.unload(index)

    def partition(self, index: int, leader_epoch: int) -> GroupPartition:
        """See :class:`~barnabas_broker.coordinators.runtime.Shard`, for this and the methods below."""
        return GroupPartition(index, leader_epoch, self._hosted_groups)

    def replay(self, report: Report, start: int) -> Replay:
        return Replay(report, start, self.share_groups.new_machine)

    def restore(self, home: GroupPartition, replay: Replay) -> Steps[None]:
        return loading.restore(self._hosted_groups, home, replay)

    def resume(self, home: GroupPartition) -> Steps[None]:
        return loading.resume(self._hosted_groups, home, self.offsets.transaction_ended)

    def unloaded(self, home: GroupPartition) -> None:
        for group_id in home.hosted:
            self.requests.forget(group_id)  # what follows would not be whole
        loading.unloaded(self._hosted_groups, home)

    def encode(self, hosted: HostedShareGroup, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        return group_record(record)

    def publish(self, hosted: HostedShareGroup, event: GroupEvent) -> None:
        self._hosted_groups.publish(hosted.name, event)

    def applied(self, hosted: HostedShareGroup) -> None:
        self._runtime.timers.arm(hosted)

    def refusal(self, error: ErrorCode) -> ErrorCode:
        return error

    # Topics

    def topics_changed(self, partitions: Mapping[str, int], topics: Iterable[Topic] = ()) -> None:
        """Set the number of partitions of some topics. Groups that subscribe to a new or grown topic get an event.

        Groups of the consumer protocol get a new epoch with the next heartbeat of a member.

        The partitions that ``__consumer_offsets`` has decide which of them a group belongs to; the configured number
        applies only until the topic exists (Kafka's ``GroupCoordinatorService.startup``).

        Args:
            partitions: the numbers of partitions of new and changed topics; of all topics the first time.
            topics: the same topics, for groups of the consumer protocol.
        """
        if OFFSETS_TOPIC in partitions:
            self._runtime.resized(partitions[OFFSETS_TOPIC])
        known = self._topics
        before = {name: known.get(name, 0) for name in partitions} if known else {}
        grown = {name: count for name, count in partitions.items() if count > before.get(name, 0)}
        known.update(partitions)
        self._catalog.update(topics)
        self.offsets.topics = known
        if not before or not grown:
            return
        self.new_topics.grown(grown, before, self._hosted_groups.now())
        for group_id, hosted in self.groups.items():
            group = hosted.group
            if isinstance(group, ClassicGroup) and group.state is not ClassicGroupState.STABLE:
                continue
            for name, count in grown.items():
                if hosted.subscribes_to(name):
                    event = TopicChanged(
                        generation=group.generation, topic=name, before=before.get(name, 0), partitions=count
                    )
                    self._hosted_groups.publish(group_id, event)

    def group_configured(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Set the configuration of a group, which need not exist; a running one uses it at once.

        Args:
            group_id: its id.
            overrides: its own values, none if it is empty.
        """
        self.share_groups.configured(group_id, overrides)
        self._own_times.pop(group_id, None)
        if overrides:
            try:
                own = GroupConfig(self._config, overrides)
            except ConfigError as error:
                log.warning("configuration of a group cannot be read", group=group_id, reason=str(error))
            else:
                self._own_times[group_id] = _times_of(own)
                for key in _TIMES:
                    if own.bounded(key) != own[key]:
                        log.warning(
                            "value of a group is out of bounds",
                            group=group_id,
                            key=key.name,
                            value=own[key],
                            used=own.bounded(key),
                        )
        hosted = self.groups.get(group_id)
        if hosted is not None and isinstance(hosted.group, ConsumerGroup):
            hosted.group.times_changed(self._hosted_groups.now())
            self._hosted_groups.act(hosted, [])

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Topics were deleted: remove the offsets of their partitions."""
        deleted = set(names)
        for name in deleted:
            self._topics.pop(name, None)
            self.new_topics.deleted(name)
        self._catalog.update((), deleted)
        self.offsets.topics_deleted(deleted)
        self.share_groups.topics_deleted()

    # Time

    def tick(self) -> None:
        """Do what is due. The loop's timer does this by itself; tests that move the clock call it."""
        self._runtime.timers.run()

    def report_repeated(self) -> None:
        """Log how often lines about groups were repeated whose time is over. To be called every few seconds."""
        self._hosted_groups.lines.tick()
        self.journal.tick()

    async def close(self) -> None:
        """Append the collected records, then respond to all deferred requests."""
        closed = self._runtime.close()
        await self.share_groups.close()
        await closed
        self.journal.flush()


def _times_of(config: GroupConfig) -> GroupTimes:
    """The timeouts and intervals of a group, within the broker's bounds."""
    session, heartbeat, assignment = map(config.bounded, _TIMES)
    return GroupTimes(session / 1000, heartbeat, assignment / 1000)
