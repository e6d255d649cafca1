"""The metrics of :meth:`Consumer.metrics`.

Names and units are those of Kafka's consumer (``FetchMetricsRegistry.java``, ``ConsumerCoordinatorMetrics``,
``KafkaConsumerMetrics.java``) where it has the same metric: ``-rate`` is per second over the last 30 seconds, ``-avg``
and ``-max`` cover the same time, latencies are in milliseconds. Those that Kafka does not have are about the event
loop.
"""

from collections.abc import Collection

from barnabas_client.consumer.subscription import PartitionState
from barnabas_client.membership.member import MemberView
from barnabas_client.meters import Meter, Metrics, in_ms


class ConsumerMeters:
    """The meters of one consumer; each part adds to the meters of what it does. Times are of the monotonic clock."""

    def __init__(self, now: float) -> None:
        #: Seconds from a Fetch to its response.
        self.fetch_latency = Meter(now)
        #: Bytes of records in a Fetch response.
        self.fetched_bytes = Meter(now)
        #: Records decoded for the program, by batch.
        self.records = Meter(now)
        #: Seconds from an OffsetCommit to its response, of those that succeeded.
        self.commit_latency = Meter(now)
        #: Seconds from the revocation that begins a rebalance to the new assignment.
        self.rebalance_latency = Meter(now)
        self.rebalanced_at: float | None = None
        #: How often partitions were lost with the membership.
        self.failed_rebalances = 0
        #: Seconds from the end of a poll to the beginning of the next, without very short ones.
        self.between_polls = Meter(now)
        self.polled_at: float | None = None


def metrics_of(
    meters: ConsumerMeters, states: Collection[PartitionState], now: float, *, read_committed: bool
) -> Metrics:
    """About fetches, the assigned partitions, and polls. Lag is as of the last fetch; the time that a poll waits does
    not count as time between polls."""
    fetches, size, records = meters.fetch_latency, meters.fetched_bytes, meters.records
    lags = [lag for state in states if (lag := state.lag(read_committed=read_committed)) is not None]
    return {
        "fetch-rate": fetches.frequency(now),
        "fetch-total": fetches.count,
        "fetch-latency-avg": in_ms(fetches.mean(now)),
        "fetch-latency-max": in_ms(fetches.maximum(now)),
        "fetch-size-avg": size.mean(now),
        "fetch-size-max": size.maximum(now),
        "bytes-consumed-rate": size.rate(now),
        "bytes-consumed-total": round(size.total),
        "records-consumed-rate": records.rate(now),
        "records-consumed-total": round(records.total),
        "assigned-partitions": len(states),
        "paused-partitions": sum(state.paused for state in states),
        "bytes-buffered": sum(state.buffered for state in states),
        "records-lag-max": max(lags, default=None),
        "last-poll-seconds-ago": _ago(meters.polled_at, now),
        "time-between-poll-avg": in_ms(meters.between_polls.mean(now)),
        "time-between-poll-max": in_ms(meters.between_polls.maximum(now)),
    }


def group_metrics(meters: ConsumerMeters, view: MemberView, last_lag: float, longest_lag: float, now: float) -> Metrics:
    """About the membership, commits, and the lag of the event loop."""
    commits, rebalances = meters.commit_latency, meters.rebalance_latency
    return {
        "group-id": view.group_id,
        "member-id": view.member_id,
        "member-state": view.state.name,
        "generation": view.generation,
        "commit-rate": commits.frequency(now),
        "commit-total": commits.count,
        "commit-latency-avg": in_ms(commits.mean(now)),
        "commit-latency-max": in_ms(commits.maximum(now)),
        "heartbeat-total": view.heartbeats,
        "last-heartbeat-seconds-ago": _ago(view.heartbeat_at, now),
        "rebalance-total": rebalances.count,
        "rebalance-latency-avg": in_ms(rebalances.mean(now)),
        "rebalance-latency-max": in_ms(rebalances.maximum(now)),
        "rebalance-latency-last": in_ms(rebalances.last),
        "failed-rebalance-total": meters.failed_rebalances,
        "last-rebalance-seconds-ago": _ago(meters.rebalanced_at, now),
        "event-loop-lag": in_ms(last_lag),
        "event-loop-lag-max": in_ms(longest_lag),
    }


def _ago(then: float | None, now: float) -> float | None:
    return None if then is None else now - then
