"""The metrics: those of kafka_exporter under its names, so that its dashboards and alerts work, and our own.

In a cluster every broker reports the partitions that it leads and the groups that it coordinates; the controller
reports partitions without a leader. Names and labels: https://github.com/danielqsj/kafka_exporter. Counts of partitions
have the names that the Prometheus JMX exporter gives Kafka's own (as Strimzi configures it), and their meanings: those
of kafka.server ReplicaManager are about the partitions that this broker leads, those of kafka.controller are 0 on every
broker but the controller. Metrics that clients have pushed (KIP-714) are among them.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from barnabas_broker.cluster.image import Image, PartitionInfo
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.conditions import ConditionName
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.groups.journal import BUCKETS, GroupMetrics
from barnabas_broker.groups.share.partition import State
from barnabas_broker.http.client_metrics import SHOWN
from barnabas_broker.http.process import LoopLag, cpu_seconds, resident_bytes
from barnabas_broker.http.shares import open_window, summaries
from barnabas_broker.http.text import COUNTER, GAUGE, PIECE, Sample, escape, family, histograms, labels, one
from barnabas_broker.http.view import View
from barnabas_broker.metrics import Histogram, Traffic
from barnabas_broker.storage import Log, TopicPartition
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_explain.doctor import Diagnosis
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.uuids import uuid_text

#: Begins the name of each pushed metric.
PREFIX: Final = "barnabas_client_"
#: Labels that tell which client it is.
_OURS: Final = frozenset({"client_id", "client_instance_id"})


class HttpConnections(Protocol):
    """The connections of the HTTP server.

    Attributes:
        traffic: their counters.
    """

    traffic: Traffic

    @property
    def connections(self) -> int:
        """The number of open connections."""


def exposition(view: View, lag: LoopLag, http: HttpConnections) -> Iterator[str]:
    """All metrics, in pieces. A change between two pieces may or may not be visible."""
    image = view.cluster.image
    yield from _broker(view, image)
    yield from _partitions(view, image)
    yield from replication(view, image)
    yield from _groups(view, image)
    yield from _rebalances(view.groups.journal.metrics)
    yield from _transactions(view.transactions)
    yield from _share_groups(view)
    yield from pushed(view)
    yield from _requests(view)
    yield from one("barnabas_http_connections", GAUGE, "Connections over HTTP that are open.", http.connections)
    description = "Connections over HTTP without a request that were closed for others."
    yield from one("barnabas_http_connections_evicted_total", COUNTER, description, http.traffic.evicted)
    yield from _process(lag)


def _broker(view: View, image: Image) -> Iterator[str]:
    yield from one("kafka_brokers", GAUGE, "Number of brokers in the cluster.", len(image.brokers))
    info = [(labels(id=each.node_id, address=each.address), 1) for each in image.brokers.values()]
    yield from family("kafka_broker_info", GAUGE, "A broker and its address; always 1.", info)
    mark = labels(version=view.version, node_id=view.node_id, cluster_id=image.cluster_id)
    yield from one("barnabas_info", GAUGE, "This broker; always 1.", 1, mark)
    online = int(view.directory.failure is None)
    yield from one("barnabas_log_directory_online", GAUGE, "1 unless the log directory has failed.", online)
    present = {each.name for each in view.conditions.now()}
    conditions = [(labels(condition=name.value), int(name in present)) for name in ConditionName]
    description = "1 while the broker cannot do something, by the reason; /readyz says what, and what to do."
    yield from family("barnabas_condition", GAUGE, description, conditions)
    damaged: dict[TopicPartition, int] = {}
    for each in view.damaged():
        if each is None:
            yield ""
        else:
            where, bad = each
            damaged[where] = damaged.get(where, 0) + bad.records
    description = "Records that cannot be read because the log is damaged; only partitions with damage have samples."
    samples = [(labels(topic=topic, partition=index), count) for (topic, index), count in damaged.items()]
    yield from family("barnabas_log_damaged_records", GAUGE, description, samples)
    description = "Partitions of __consumer_offsets that this broker still has to load."
    yield from one("barnabas_offsets_partitions_unloaded", GAUGE, description, len(view.unloaded()))


# Partitions


class _Row(NamedTuple):
    mark: str
    info: PartitionInfo
    log: Log | None


_PARTITION_FAMILIES: Final[tuple[tuple[str, str, Callable[[_Row], int | None]], ...]] = (
    (
        "kafka_topic_partition_current_offset",
        "The high watermark: the offset that the next record a consumer may read will have.",
        lambda row: None if row.log is None else row.log.high_watermark,
    ),
    (
        "kafka_topic_partition_oldest_offset",
        "The first offset that can be read.",
        lambda row: None if row.log is None else row.log.log_start_offset,
    ),
    ("kafka_topic_partition_leader", "Node id of the leader, -1 for none.", lambda row: row.info.leader),
    (
        "kafka_topic_partition_leader_is_preferred",
        "1 if the first replica leads the partition.",
        lambda row: int(row.info.replicas[:1] == (row.info.leader,)),
    ),
    ("kafka_topic_partition_replicas", "Number of replicas.", lambda row: len(row.info.replicas)),
    ("kafka_topic_partition_in_sync_replica", "Number of replicas that are in sync.", lambda row: len(row.info.isr)),
    (
        "kafka_topic_partition_under_replicated_partition",
        "1 if a replica is not in sync.",
        lambda row: int(len(row.info.isr) < len(row.info.replicas)),
    ),
)


def _partitions(view: View, image: Image) -> Iterator[str]:
    counts: list[Sample] = []
    sizes: list[Sample] = []
    rows: list[_Row] = []
    orphans = image.controller_id == view.node_id
    number = 0
    for name, topic in image.topics.items():
        mark = f'topic="{escape(name)}"'
        counts.append((f"{{{mark}}}", len(topic.partitions)))
        size = 0
        for index, info in enumerate(topic.partitions):
            number += 1
            if number % PIECE == 0:
                yield ""
            if info.leader == view.node_id or (orphans and info.leader < 0):
                log = view.log(name, index)
                rows.append(_Row(f'{{{mark},partition="{index}"}}', info, log))
                size += 0 if log is None else log.size
        sizes.append((f"{{{mark}}}", size))
    yield from family("kafka_topic_partitions", GAUGE, "Number of partitions of a topic.", counts)
    for name, description, value in _PARTITION_FAMILIES:
        samples = ((row.mark, value(row)) for row in rows)
        yield from family(name, GAUGE, description, ((mark, each) for mark, each in samples if each is not None))
    description = "Bytes that the partitions of a topic which this broker leads take on disk, indexes apart."
    yield from family("barnabas_topic_log_size_bytes", GAUGE, description, sizes)


# Groups


class _GroupSamples:
    """Samples of all groups by metric, in the order in which they are shown."""

    def __init__(self) -> None:
        self.members: deque[Sample] = deque()
        self.offsets: deque[Sample] = deque()
        self.offset_sums: deque[Sample] = deque()
        self.lags: deque[Sample] = deque()
        self.lag_sums: deque[Sample] = deque()
        self.unstable: deque[Sample] = deque()
        self.gaps: deque[Sample] = deque()
        self.gap_ratios: deque[Sample] = deque()
        self.revoking: deque[Sample] = deque()
        self.findings: deque[Sample] = deque()

    def add_members(self, hosted: HostedGroup, mark: str, now: float) -> None:
        """Add the number of members of a group, and the longest time since a heartbeat."""
        group = hosted.group
        self.members.append((f"{{{mark}}}", len(group.members)))
        if isinstance(group, ConsumerGroup):
            silent = [(now - each.last_seen, group.session_timeout) for each in group.members.values()]
            longest = now - min((each.revoking_since for each in group.members.values()), default=now)
            self.revoking.append((f"{{{mark}}}", round(max(longest, 0.0), 3)))
        else:
            silent = [(now - each.last_seen, each.timeout) for each in group.members if not each.awaits_response]
        if silent:
            self.gaps.append((f"{{{mark}}}", round(max(gap for gap, _ in silent), 3)))
            self.gap_ratios.append((f"{{{mark}}}", round(max(gap / allowed for gap, allowed in silent), 4)))

    def add_findings(self, diagnoses: Iterable[Diagnosis], mark: str) -> None:
        """Add what is wrong with a group: how bad the worst finding of each kind is."""
        worst: dict[str, int] = {}
        for each in diagnoses:
            for kind in each.kinds:
                worst[kind] = max(worst.get(kind, 0), each.severity)
        self.findings.extend((f'{{{mark},finding="{kind}"}}', severity) for kind, severity in worst.items())

    def add_positions(self, view: View, image: Image, hosted: HostedGroup, mark: str) -> Iterator[str]:
        """Add a group's positions. As in kafka_exporter, -1 says that nothing was committed of a partition whose
        neighbours have commits; such a partition does not count in the sums."""
        for topic, positions in groupby(view.positions(image, hosted), attrgetter("topic")):
            inner = f'{mark},topic="{escape(topic)}"'
            offset_sum = lag_sum = 0
            for number, position in enumerate(positions, 1):
                where = f'{{{inner},partition="{position.partition}"}}'
                lag = position.lag
                if position.committed is None:
                    self.offsets.append((where, -1))
                    self.lags.append((where, -1))
                else:
                    self.offsets.append((where, position.committed.offset))
                    offset_sum += position.committed.offset
                    if lag is not None:
                        self.lags.append((where, lag))
                        lag_sum += lag
                    if position.unstable_lag is not None:
                        self.unstable.append((where, position.unstable_lag))
                if number % PIECE == 0:
                    yield ""
            self.offset_sums.append((f"{{{inner}}}", offset_sum))
            self.lag_sums.append((f"{{{inner}}}", lag_sum))
            yield ""

    def families(self) -> Iterator[str]:
        """The metrics of all groups added so far, which are taken out: to free them all at once would take long."""
        for name, description, samples in (
            ("kafka_consumergroup_members", "Members of a group.", self.members),
            ("kafka_consumergroup_current_offset", "Offset that a group has committed; -1 for none.", self.offsets),
            ("kafka_consumergroup_current_offset_sum", "Committed offsets of a topic, added up.", self.offset_sums),
            ("kafka_consumergroup_lag", "Records that a group has not consumed; -1 without a commit.", self.lags),
            ("kafka_consumergroup_lag_sum", "Lag of a group in a topic, added up.", self.lag_sums),
            (
                "barnabas_consumergroup_unstable_lag",
                "Records of the lag that read_committed consumers cannot read, because a transaction is open.",
                self.unstable,
            ),
            ("barnabas_heartbeat_gap_seconds", "Since when a group's most silent member is silent.", self.gaps),
            ("barnabas_heartbeat_gap_ratio", "That gap as a share of the session timeout.", self.gap_ratios),
            (
                "barnabas_consumergroup_revoking_seconds",
                "For how long the slowest member has been revoking partitions; 0 if none is.",
                self.revoking,
            ),
            (
                "barnabas_group_finding",
                "What is wrong with a group: 3 if it is broken, 2 if it is sick, 1 if it is odd; none if it is well.",
                self.findings,
            ),
        ):
            yield from family(name, GAUGE, description, (samples.popleft() for _ in range(len(samples))))


def _groups(view: View, image: Image) -> Iterator[str]:
    samples = _GroupSamples()
    alive = (state.value for kind in (ClassicGroupState, ConsumerGroupState) for state in kind)
    states = dict.fromkeys((state for state in alive if state != ClassicGroupState.DEAD.value), 0)
    for hosted in view.known_groups():
        if hosted is None:
            yield ""
            continue
        mark = f'consumergroup="{escape(hosted.group.group_id)}"'
        if hosted.group.state.value in states:
            states[hosted.group.state.value] += 1
        samples.add_members(hosted, mark, view.now())
        samples.add_findings(view.diagnoses.of(hosted.group.group_id), mark)
        yield from samples.add_positions(view, image, hosted, mark)
        yield ""
    for group in view.groups.share_groups.all():
        samples.add_findings(view.diagnoses.of(group.group_id), f'consumergroup="{escape(group.group_id)}"')
        yield ""
    yield from samples.families()
    by_state = [(labels(state=state), count) for state, count in states.items()]
    yield from family("barnabas_groups", GAUGE, "Groups by state.", by_state)


def _rebalances(metrics: GroupMetrics) -> Iterator[str]:
    causes = [(labels(cause=cause), count) for cause, count in metrics.rebalances.items()]
    yield from family("barnabas_rebalances_total", COUNTER, "Rebalances started, by cause.", causes)
    durations = Histogram(BUCKETS)
    durations.counts = [metrics.durations[bound] for bound in (*BUCKETS, float("inf"))]
    durations.total = metrics.duration_sum
    description = "Seconds from the start of a rebalance until its assignment was in the log."
    yield from histograms("barnabas_rebalance_duration_seconds", description, [({}, durations)])
    events = [(labels(type=each), count) for each, count in metrics.events.items()]
    yield from family("barnabas_group_events_total", COUNTER, "Group events, by type.", events)
    description = "Events that were not written to __group_events because there were too many."
    yield from one("barnabas_group_events_dropped_total", COUNTER, description, metrics.dropped)


# Transactions


def _transactions(transactions: TransactionCoordinator) -> Iterator[str]:
    description = "Transactional ids that this broker coordinates."
    yield from one("barnabas_transactional_ids", GAUGE, description, transactions.transactional_ids)
    yield from one("barnabas_transactions_open", GAUGE, "Transactions that are open.", transactions.open)
    description = "Seconds since the oldest open transaction began; 0 if none is open."
    yield from one("barnabas_transactions_oldest_seconds", GAUGE, description, transactions.oldest_ms / 1000)
    ended = [(labels(outcome=outcome, cause=cause), n) for (outcome, cause), n in transactions.metrics.ended.items()]
    yield from family("barnabas_transactions_ended_total", COUNTER, "Transactions by outcome and cause.", ended)
    description = "Transactions that were reported because they were open for long."
    yield from one("barnabas_transactions_slow_total", COUNTER, description, transactions.metrics.slow)
    refused = [(labels(error=error), count) for error, count in transactions.metrics.refused.items()]
    description = "Requests to end a transaction that its state did not allow."
    yield from family("barnabas_transactions_refused_total", COUNTER, description, refused)
    description = "Markers of decided transactions that are not written yet."
    yield from one("barnabas_transaction_markers_pending", GAUGE, description, transactions.markers.pending)


# Share groups


def _share_groups(view: View) -> Iterator[str]:
    totals, letters = view.queues.totals, view.queues.dead_letters
    acquired = available = 0
    elsewhere: Counter[str] = Counter()
    coordinated = {group.group_id for group in view.groups.share_groups.all()}
    for hosted in view.queues.hosted:
        acquired += hosted.machine.in_state(State.ACQUIRED)
        available += hosted.machine.in_state(State.AVAILABLE)
        if hosted.place.group not in coordinated:
            elsewhere[hosted.place.group] += open_window(hosted).lag or 0
        yield ""
    for name, kind, description, value in (
        ("barnabas_share_records_acquired", GAUGE, "Records that members of share groups have now.", acquired),
        ("barnabas_share_records_available", GAUGE, "Records that will be delivered again.", available),
        ("barnabas_share_acquired_total", COUNTER, "Records delivered to share groups.", totals.acquired),
        ("barnabas_share_redelivered_total", COUNTER, "Those that were delivered before.", totals.redelivered),
        ("barnabas_share_acknowledged_total", COUNTER, "Records that members have accepted.", totals.acknowledged),
        ("barnabas_share_archived_total", COUNTER, "Records that are not delivered any more.", totals.archived),
        ("barnabas_share_locks_expired_total", COUNTER, "Records whose locks have expired.", totals.expired),
        ("barnabas_share_dead_letters_total", COUNTER, "Dead letters that were written.", letters.written),
        ("barnabas_share_dead_letters_failed_total", COUNTER, "Dead letters that were not.", letters.failed),
    ):
        yield from one(name, kind, description, value)
    lags = deque((labels(consumergroup=group), lag) for group, lag in elsewhere.items())
    ages: deque[Sample] = deque()
    for row in summaries(view):
        if row is None:
            yield ""
            continue
        mark = labels(consumergroup=row["group"])
        if row["lag"] is not None:
            lags.append((mark, row["lag"]))
        if row["lag_ms"] is not None:
            ages.append((mark, row["lag_ms"] / 1000))
    description = "Records of partitions of this broker that a share group has not processed."
    yield from family("barnabas_share_group_lag", GAUGE, description, lags)
    description = "Age of the oldest record that a share group has not processed; at least, since the broker's start."
    yield from family("barnabas_share_group_oldest_seconds", GAUGE, description, ages)
    description = "Incidents of records that became no event, because there were too many different ones."
    yield from one("barnabas_share_incidents_dropped_total", COUNTER, description, view.queues.incidents.dropped)


# Requests


def _requests(view: View) -> Iterator[str]:
    apis = list(view.requests)
    description = "Seconds from a request to its answer, by API; waiting that was asked for is included."
    latencies = (({"api": each.name}, each.latency) for each in apis)
    yield from histograms("barnabas_request_duration_seconds", description, latencies)
    errors = [
        (labels(api=each.name, code=ErrorCode.of(code).name), count)
        for each in apis
        for code, count in each.errors.items()
    ]
    yield from family("barnabas_request_errors_total", COUNTER, "Responses with an error, by error code.", errors)
    traffic = view.server.traffic
    yield from one("barnabas_connections", GAUGE, "Connections that are open.", view.server.connections)
    for name, description, value in (
        ("barnabas_connections_accepted_total", "Connections that came.", traffic.accepted),
        ("barnabas_connections_refused_total", "Connections over a limit.", traffic.refused),
        ("barnabas_connections_evicted_total", "Connections without a login closed for others.", traffic.evicted),
        (
            "barnabas_connections_dropped_total",
            "Connections closed because a request on them could not be answered.",
            traffic.dropped,
        ),
        ("barnabas_received_bytes_total", "Bytes of requests.", traffic.bytes_in),
        ("barnabas_sent_bytes_total", "Bytes of answers.", traffic.bytes_out),
    ):
        yield from one(name, COUNTER, description, value)
    yield from _quotas(view)


def _quotas(view: View) -> Iterator[str]:
    kinds = [(labels(quota=key), kind) for key, kind in view.quotas.kinds.items()]
    counts = [(mark, kind.throttled) for mark, kind in kinds]
    yield from family("barnabas_quota_throttled_total", COUNTER, "Responses after which a client had to wait.", counts)
    waits = [(mark, kind.waited) for mark, kind in kinds]
    yield from family("barnabas_quota_wait_seconds_total", COUNTER, "Seconds that clients had to wait.", waits)
    measured = [(mark, len(kind)) for mark, kind in kinds]
    description = "Users and clients whose use is measured, because they have a quota."
    yield from family("barnabas_quota_clients", GAUGE, description, measured)
    description = "Connections that had to wait because too many were created."
    yield from one("barnabas_connections_delayed_total", COUNTER, description, view.server.delayed)


def _process(lag: LoopLag) -> Iterator[str]:
    resident = resident_bytes()
    if resident is not None:
        yield from one("process_resident_memory_bytes", GAUGE, "Bytes of memory in use.", resident)
    yield from one("process_cpu_seconds_total", COUNTER, "Seconds of CPU, user and system.", cpu_seconds())
    description = "By how much a timer of the event loop came late."
    yield from histograms("barnabas_event_loop_lag_seconds", description, [({}, lag.lag)])


def replication(view: View, image: Image) -> Iterator[str]:
    """All of these metrics, in pieces."""
    if view.lifecycle is not None:
        yield from _registration(view, view.lifecycle)
    yield from one("barnabas_controller_id", GAUGE, "Node id of the controller, -1 for none.", image.controller_id)
    yield from _led(view)
    yield from _controlled(view, image)


def _registration(view: View, lifecycle: BrokerLifecycle) -> Iterator[str]:
    for name, description, value in (
        ("barnabas_registered", "1 while this broker has a registration in the cluster.", int(lifecycle.lease != 0)),
        (
            "barnabas_serving",
            "1 while this broker may lead and coordinate: its lease surely lives, and the cluster knows of it.",
            int(view.cluster.may_serve()),
        ),
        (
            "barnabas_broker_epoch",
            "Which life of this broker it is, as the cluster counts; -1 for none.",
            lifecycle.epoch,
        ),
        ("barnabas_lease_age_seconds", "Since the last renewal of the lease that etcd answered.", lifecycle.lease_age),
        (
            "barnabas_lease_remaining_seconds",
            "For how long this broker may act if its lease is not renewed.",
            lifecycle.lease_remaining,
        ),
    ):
        yield from one(name, GAUGE, description, value)


def _led(view: View) -> Iterator[str]:
    partitions = leaders = under_replicated = under_min_isr = at_min_isr = 0
    for partitions, replica in enumerate(view.replicas.each(), 1):
        if partitions % PIECE == 0:
            yield ""
        if replica.leading is not None:
            info = replica.info
            leaders += 1
            under_replicated += len(info.isr) < len(info.replicas)
            under_min_isr += len(info.isr) < replica.min_isr
            at_min_isr += len(info.isr) == replica.min_isr
    replicas, prefix = view.replicas, "kafka_server_replicamanager_"
    for name, kind, description, value in (
        ("partitioncount", GAUGE, "Partitions that this broker keeps.", partitions),
        ("leadercount", GAUGE, "Partitions that this broker leads.", leaders),
        (
            "underreplicatedpartitions",
            GAUGE,
            "Of those, partitions with a replica that is not in sync.",
            under_replicated,
        ),
        ("underminisrpartitioncount", GAUGE, "Of those, partitions that acks=all cannot write to.", under_min_isr),
        ("atminisrpartitioncount", GAUGE, "Of those, partitions that can spare no replica for acks=all.", at_min_isr),
        ("isrshrinks_total", COUNTER, "How often an ISR of those became smaller.", replicas.isr_shrinks),
        ("isrexpands_total", COUNTER, "How often an ISR of those grew.", replicas.isr_expands),
    ):
        yield from one(prefix + name, kind, description, value)


def _controlled(view: View, image: Image) -> Iterator[str]:
    active = image.controller_id == view.node_id and view.cluster.may_serve()
    partitions = offline = not_preferred = 0
    if active:
        for topic in image.topics.values():
            for number, info in enumerate(topic.partitions, partitions + 1):
                offline += info.leader < 0
                not_preferred += info.replicas[:1] != (info.leader,)
                if number % PIECE == 0:
                    yield ""
            partitions += len(topic.partitions)
    prefix = "kafka_controller_kafkacontroller_"
    for name, description, value in (
        ("activecontrollercount", "1 at the controller.", int(active)),
        ("globalpartitioncount", "Partitions of the cluster.", partitions),
        ("offlinepartitionscount", "Partitions without a leader.", offline),
        ("preferredreplicaimbalancecount", "Partitions that their first replica does not lead.", not_preferred),
    ):
        yield from one(prefix + name, GAUGE, description, value)


def pushed(view: View) -> Iterator[str]:
    """The last values of all clients, and how many there are."""
    clients = view.telemetry
    families: dict[str, list[Sample]] = {}
    number = 0
    for instance in clients.known():
        if instance is None:
            yield ""
            continue
        client = instance.client
        client_id = escape(client.client_id[:SHOWN])
        mark = f'client_id="{client_id}",client_instance_id="{uuid_text(client.client_instance_id)}"'
        for (name, given), each in list(instance.values.items()):
            own = "".join(f',{key}="{escape(text)}"' for key, text in given if key not in _OURS)
            families.setdefault(name, []).append((f"{{{mark}{own}}}", each.value))
            if not (number := number + 1) % PIECE:
                yield ""
    for name, samples in families.items():
        kind = COUNTER if name.endswith("_total") else GAUGE
        yield from family(f"{PREFIX}{name}", kind, "Pushed by clients.", samples)
    yield from one("barnabas_telemetry_clients", GAUGE, "Clients that asked which metrics to push.", len(clients))
    yield from one("barnabas_telemetry_series", GAUGE, "Series that clients have pushed.", len(clients.series))
    description = "Values that clients pushed and that were dropped, because there were too many series."
    yield from one("barnabas_telemetry_dropped_total", COUNTER, description, clients.series.dropped)
