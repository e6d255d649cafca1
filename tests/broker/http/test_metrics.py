"""/metrics after requests: kafka_exporter's names, labels and meanings, and our own metrics."""

import asyncio
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from barnabas_broker.broker import BrokerServer
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.testing.clock import AdvancingClock
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.fetch import FetchResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.produce import ProduceResponse
from barnabas_protocol.schema import Request, Response
from barnabas_protocol.uuids import uuid_text
from tests.broker.handlers.test_quotas import fetching, producing, set_quota
from tests.broker.handlers.test_telemetry import asked, push, subscribe
from tests.broker.http.conftest import Http, StartBroker
from tests.broker.http.support import commit, coordinated, join_alone, make_topic, produce
from tests.broker.telemetry.test_points import gauge, message, point, total
from tests.wire import PATIENCE, Wire

#: kafka_exporter's metrics with their labels, without the one about ZooKeeper. All of them are gauges.
KAFKA_EXPORTER = {
    "kafka_brokers": set(),
    "kafka_broker_info": {"id", "address"},
    "kafka_topic_partitions": {"topic"},
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partition_oldest_offset": {"topic", "partition"},
    "kafka_topic_partition_in_sync_replica": {"topic", "partition"},
    "kafka_topic_partition_leader": {"topic", "partition"},
    "kafka_topic_partition_leader_is_preferred": {"topic", "partition"},
    "kafka_topic_partition_replicas": {"topic", "partition"},
    "kafka_topic_partition_under_replicated_partition": {"topic", "partition"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_current_offset_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_lag_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_members": {"consumergroup"},
}

#: Kafka's metrics with the names of the JMX exporter.
KAFKA_JMX = {
    "kafka_server_replicamanager_partitioncount": "gauge",
    "kafka_server_replicamanager_leadercount": "gauge",
    "kafka_server_replicamanager_underreplicatedpartitions": "gauge",
    "kafka_server_replicamanager_underminisrpartitioncount": "gauge",
    "kafka_server_replicamanager_atminisrpartitioncount": "gauge",
    "kafka_server_replicamanager_isrshrinks": "counter",
    "kafka_server_replicamanager_isrexpands": "counter",
    "kafka_controller_kafkacontroller_activecontrollercount": "gauge",
    "kafka_controller_kafkacontroller_globalpartitioncount": "gauge",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "gauge",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": "gauge",
}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(families: list[Metric]) -> Iterator[tuple[tuple[str, frozenset[tuple[str, str]]], float]]:
    for family in families:
        for sample in family.samples:
            yield (sample.name, frozenset(sample.labels.items())), sample.value


async def scrape(http: Http) -> tuple[list[Metric], Samples]:
    response = await http.get("/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(response.text))
    samples = list(samples_of(families))
    assert len(dict(samples)) == len(samples), "a sample stands twice"
    assert len({family.name for family in families}) == len(families), "a family is torn apart"
    return families, dict(samples)


def at(samples: Samples, name: str, **labels: Any) -> float | None:
    return samples.get((name, frozenset((key, str(value)) for key, value in labels.items())))


@pytest.fixture
async def broker(start_broker: StartBroker) -> BrokerServer:
    return await start_broker(num_partitions="2")


async def test_kafka_exporters_names_and_labels(wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    await join_alone(wire, "g", "t", 0)
    await commit(wire, "h", "t", {0: 0})
    families, _ = await scrape(http)
    found = {family.name: family for family in families if family.name.startswith("kafka_")}
    assert {name: found.pop(name).type for name in KAFKA_JMX} == KAFKA_JMX
    assert found.keys() == KAFKA_EXPORTER.keys()
    for name, family in found.items():
        assert family.type == "gauge"
        assert family.documentation
        assert all(set(sample.labels) == KAFKA_EXPORTER[name] for sample in family.samples), name


async def test_topics_and_partitions(wire: Wire, http: Http, broker: BrokerServer) -> None:
    await make_topic(wire, "t")
    assert await produce(wire, "t", 1, 7) == ErrorCode.NONE
    _, samples = await scrape(http)
    assert at(samples, "kafka_brokers") == 1
    assert at(samples, "kafka_broker_info", id=1, address=f"127.0.0.1:{broker.port}") == 1
    assert at(samples, "kafka_topic_partitions", topic="t") == 2
    partition = {"topic": "t", "partition": 1}
    assert at(samples, "kafka_topic_partition_current_offset", **partition) == 7
    assert at(samples, "kafka_topic_partition_oldest_offset", **partition) == 0
    assert at(samples, "kafka_topic_partition_leader", **partition) == 1
    assert at(samples, "kafka_topic_partition_leader_is_preferred", **partition) == 1
    assert at(samples, "kafka_topic_partition_replicas", **partition) == 1
    assert at(samples, "kafka_topic_partition_in_sync_replica", **partition) == 1
    assert at(samples, "kafka_topic_partition_under_replicated_partition", **partition) == 0
    assert (at(samples, "barnabas_topic_log_size_bytes", topic="t") or 0) > 60


async def test_lag(wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    await commit(wire, "g", "t", {0: 2})
    _, samples = await scrape(http)
    group = {"consumergroup": "g", "topic": "t"}
    assert at(samples, "kafka_consumergroup_current_offset", **group, partition=0) == 2
    assert at(samples, "kafka_consumergroup_lag", **group, partition=0) == 3
    # Partition 1 has no committed offset: kafka_exporter shows -1.
    assert at(samples, "kafka_consumergroup_current_offset", **group, partition=1) == -1
    assert at(samples, "kafka_consumergroup_lag", **group, partition=1) == -1
    assert at(samples, "kafka_consumergroup_current_offset_sum", **group) == 2
    assert at(samples, "kafka_consumergroup_lag_sum", **group) == 3
    assert at(samples, "kafka_consumergroup_members", consumergroup="g") == 0
    assert at(samples, "barnabas_groups", state="Empty") == 1
    await commit(wire, "g", "t", {0: 99, 1: 0})
    _, samples = await scrape(http)
    assert at(samples, "kafka_consumergroup_lag", **group, partition=0) == 0, "a commit beyond the end is no lag"


@pytest.mark.parametrize(("first", "unstable"), [(4, 1), (3, 2), (2, 3), (0, 3)])
async def test_lag_behind_an_open_transaction(
    wire: Wire, http: Http, broker: BrokerServer, first: int, unstable: int
) -> None:
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    await commit(wire, "g", "t", {0: 2})
    where = {"consumergroup": "g", "topic": "t", "partition": 0}
    _, samples = await scrape(http)
    assert at(samples, "barnabas_consumergroup_unstable_lag", **where) == 0
    broker.services.replicas.find("t", 0).log.producers.open[first] = 7
    _, samples = await scrape(http)
    assert at(samples, "barnabas_consumergroup_unstable_lag", **where) == unstable
    assert at(samples, "kafka_consumergroup_lag", **where) == 3
    offset = (await http.get("/groups/g")).json["offsets"][0]
    assert (offset["last_stable_offset"], offset["lag"], offset["unstable_lag"]) == (first, 3, unstable)


async def test_members_and_rebalances(wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    await join_alone(wire, "g", "t", 0)
    _, samples = await scrape(http)
    assert at(samples, "kafka_consumergroup_members", consumergroup="g") == 1
    assert at(samples, "barnabas_groups", state="Stable") == 1
    assert at(samples, "barnabas_rebalances_total", cause="member_joined") == 1
    assert at(samples, "barnabas_rebalance_duration_seconds_count") == 1
    assert at(samples, "barnabas_group_events_total", type="rebalance_over") == 1
    gap = at(samples, "barnabas_heartbeat_gap_seconds", consumergroup="g")
    ratio = at(samples, "barnabas_heartbeat_gap_ratio", consumergroup="g")
    assert gap is not None
    assert ratio is not None
    assert 0 <= gap < 20
    assert ratio == pytest.approx(gap / 60, abs=0.001)


async def test_for_how_long_a_member_has_been_revoking(wire: Wire, http: Http, broker: BrokerServer) -> None:
    await make_topic(wire, "t")
    await coordinated(wire, "g")

    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (await wire.ask(request, 1, ConsumerGroupHeartbeatResponse)).error_code == ErrorCode.NONE
    group = broker.services.groups.groups["g"].group
    assert isinstance(group, ConsumerGroup)
    _, samples = await scrape(http)
    assert at(samples, "barnabas_consumergroup_revoking_seconds", consumergroup="g") == 0
    member = group.members["a"]
    member.must_revoke(member.last_seen - 12, 10)
    _, samples = await scrape(http)
    assert (at(samples, "barnabas_consumergroup_revoking_seconds", consumergroup="g") or 0) >= 12


async def test_requests_and_their_errors(wire: Wire, http: Http) -> None:
    await coordinated(wire, "g")
    unknown = HeartbeatRequest(group_id="g", generation_id=1, member_id="stranger")
    for _ in range(3):
        await wire.ask(unknown, 4, HeartbeatResponse)
    assert await produce(wire, "no such topic", 0, 1) != ErrorCode.NONE
    _, samples = await scrape(http)
    assert at(samples, "barnabas_request_duration_seconds_count", api="Heartbeat") == 3
    assert at(samples, "barnabas_request_duration_seconds_bucket", api="Heartbeat", le="+Inf") == 3
    assert (at(samples, "barnabas_request_duration_seconds_sum", api="Heartbeat") or 0) > 0
    assert at(samples, "barnabas_request_errors_total", api="Heartbeat", code="UNKNOWN_MEMBER_ID") == 3
    produced = {"api": "Produce", "code": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert at(samples, "barnabas_request_errors_total", **produced) == 1


async def test_connections_and_bytes(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker(max_connections="2")
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        async with await Wire.connect(broker.port) as garbage:
            garbage.writer.write(b"\xff" * 16)
            assert await garbage.closed()
        async with await Wire.connect(broker.port) as second:
            await make_topic(second, "t")
            async with await Wire.connect(broker.port) as third:
                assert await third.closed()
            _, samples = await scrape(http)
    assert at(samples, "barnabas_connections") == 2
    assert at(samples, "barnabas_connections_accepted_total") == 4
    assert at(samples, "barnabas_connections_refused_total") == 1
    assert at(samples, "barnabas_connections_dropped_total") == 1
    assert (at(samples, "barnabas_received_bytes_total") or 0) > 16
    assert (at(samples, "barnabas_sent_bytes_total") or 0) > 50


async def test_quotas(wire: Wire, http: Http, broker: BrokerServer) -> None:
    await make_topic(wire, "t")
    quotas = {
        "producer_byte_rate": 1000.0,
        "consumer_byte_rate": 1000.0,
        "request_percentage": 1e-6,
        "controller_mutation_rate": 1.0,
    }
    waited: dict[str, list[float]] = {}
    for _ in range(2):
        await wire.ask(producing(5_000), 9, ProduceResponse)
    for key, value in quotas.items():
        await set_quota(wire, [("client-id", key)], **{key: value})
    _, samples = await scrape(http)
    for key in quotas:
        assert at(samples, "barnabas_quota_throttled_total", quota=key) == 0
        assert at(samples, "barnabas_quota_wait_seconds_total", quota=key) == 0
        assert at(samples, "barnabas_quota_clients", quota=key) == 0

    async def ask(key: str, request: Request, version: int, answer: type[Response]) -> None:
        # Over its quota, a connection is muted: each request has its own.
        async with await Wire.connect(broker.port) as one:
            found: Any = await one.ask(request, version, answer, key)
        waited.setdefault(key, []).append(found.throttle_time_ms / 1000)

    for size in (9_000, 2_000):
        await ask("producer_byte_rate", producing(size), 9, ProduceResponse)
    for _ in range(2):
        await ask("consumer_byte_rate", fetching(), 12, FetchResponse)
    await ask("request_percentage", ApiVersionsRequest(client_software_name="t"), 3, ApiVersionsResponse)
    topics = [
        CreatableTopic(name=f"new-{n}", num_partitions=n, replication_factor=1, assignments=[], configs=[])
        for n in (20, 1)
    ]
    await ask("controller_mutation_rate", CreateTopicsRequest(topics=topics, timeout_ms=9000), 6, CreateTopicsResponse)
    _, samples = await scrape(http)
    for key in quotas:
        throttled = [wait for wait in waited[key] if wait]
        assert len(throttled) == 1, key
        assert at(samples, "barnabas_quota_throttled_total", quota=key) == 1
        assert at(samples, "barnabas_quota_wait_seconds_total", quota=key) == pytest.approx(throttled[0], abs=0.01)
        assert at(samples, "barnabas_quota_clients", quota=key) == 1
    assert at(samples, "barnabas_connections_delayed_total") == 0
    await set_quota(wire, [("ip", "127.0.0.1")], connection_creation_rate=1)

    async def refused() -> bool:
        async with await Wire.connect(broker.port) as one:
            one.send(ApiVersionsRequest(client_software_name="t"), 3)
            return await one.closed()

    async with asyncio.timeout(PATIENCE):
        while not await refused():
            pass
    await set_quota(wire, [("ip", "127.0.0.1")], connection_creation_rate=None)
    _, samples = await scrape(http)
    assert (at(samples, "barnabas_connections_delayed_total") or 0) >= 1


async def test_the_process(broker: BrokerServer, http: Http) -> None:
    families, samples = await scrape(http)
    assert (at(samples, "process_cpu_seconds_total") or 0) > 0
    assert at(samples, "barnabas_log_directory_online") == 1
    assert at(samples, "barnabas_offsets_partitions_unloaded") == 0
    types = {family.name: family.type for family in families}
    assert types["barnabas_event_loop_lag_seconds"] == "histogram"
    assert types["barnabas_connections_accepted"] == "counter"


async def test_group_names_are_escaped(wire: Wire, http: Http) -> None:
    name = 'a "group"\\ of\nmine'
    await make_topic(wire, "t")
    await commit(wire, name, "t", {0: 0})
    _, samples = await scrape(http)
    assert at(samples, "kafka_consumergroup_members", consumergroup=name) == 0
    assert at(samples, "kafka_consumergroup_lag", consumergroup=name, topic="t", partition=0) == 0


async def test_groups_without_members_and_offsets_are_left_out(wire: Wire, http: Http) -> None:
    await coordinated(wire, "g")
    unknown = HeartbeatRequest(group_id="g", generation_id=1, member_id="stranger")
    await wire.ask(unknown, 4, HeartbeatResponse)
    _, samples = await scrape(http)
    assert not any(name.startswith("kafka_consumergroup") for name, _ in samples)


async def test_concurrent_scrapes_during_changes(wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")

    async def change() -> None:
        for n in range(12):
            await make_topic(wire, f"topic-{n}")
            await commit(wire, f"group-{n}", f"topic-{n}", {0: 0, 1: n})

    changing = asyncio.create_task(change())
    while not changing.done():
        await asyncio.gather(*(scrape(http) for _ in range(3)))
    await changing
    _, samples = await scrape(http)
    assert sum(name == "kafka_consumergroup_members" for name, _ in samples) == 12


async def open_transaction(wire: Wire) -> InitProducerIdResponse:
    """Open a transaction of the transactional id "id" in the first partition of the new topic "t"."""
    found = FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])
    await wire.ask(found, 6, FindCoordinatorResponse)
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    who = await wire.ask(request, 5, InitProducerIdResponse)
    while who.error_code != ErrorCode.NONE:  # the coordinator is being loaded
        who = await wire.ask(request, 5, InitProducerIdResponse)
    await make_topic(wire, "t")
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    await wire.ask(added, 3, AddPartitionsToTxnResponse)
    return who


async def test_transactions(wire: Wire, http: Http) -> None:
    who = await open_transaction(wire)
    _, samples = await scrape(http)
    assert at(samples, "barnabas_transactional_ids") == 1
    assert at(samples, "barnabas_transactions_open") == 1
    assert (at(samples, "barnabas_transactions_oldest_seconds") or 0) >= 0
    end = EndTxnRequest(
        transactional_id="id", producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=False
    )
    await wire.ask(end, 4, EndTxnResponse)
    _, samples = await scrape(http)
    assert at(samples, "barnabas_transactions_open") == 0
    assert at(samples, "barnabas_transactions_ended_total", outcome="abort", cause="client") == 1


async def test_a_slow_transaction_has_a_metric_an_event_and_a_log_line(
    start_broker: StartBroker, http: Http, caplog: pytest.LogCaptureFixture
) -> None:
    clock = AdvancingClock()
    broker = await start_broker(clock=clock, transaction_abort_timed_out_transaction_cleanup_interval_ms="20")
    async with await Wire.connect(broker.port) as wire:
        who = await open_transaction(wire)
        assert at((await scrape(http))[1], "barnabas_transactions_slow_total") == 0
        clock.advance(31)
        async with asyncio.timeout(PATIENCE):
            while not (records := await events_of_transactions(http)):
                pass
    assert at((await scrape(http))[1], "barnabas_transactions_slow_total") == 1
    (event,) = records
    assert (event["type"], event["producer_id"], event["client_id"]) == ("transaction_slow", who.producer_id, "test")
    assert event["partitions"] == {"t": [0]} and event["open_ms"] >= 30_000
    (line,) = [one.getMessage() for one in caplog.records if "transaction is open for long" in one.getMessage()]
    assert re.search(r"client_id=.?test.*partitions=.?t-0", line)


async def events_of_transactions(http: Http) -> list[dict[str, Any]]:
    """The values of the records of ``__transaction_events``."""
    found = (await http.get("/topics/__transaction_events/records")).json["records"]
    return [json.loads(b64decode(each["value"]["base64"])) for each in found]


async def test_metrics_of_clients(wire: Wire, http: Http) -> None:
    assert await subscribe(wire, {"metrics": "*"}) is ErrorCode.NONE
    answer = await asked(wire)
    counter = total("org.apache.kafka.a.total", 2, point(3, node_id="1", client_id="forged"))
    assert await push(wire, answer, message(counter, gauge("b", point(0.5)))) is ErrorCode.NONE
    families, samples = await scrape(http)
    client = {"client_id": "shop", "client_instance_id": uuid_text(answer.client_instance_id)}
    assert at(samples, "barnabas_client_a_total", **client, node_id=1) == 3
    assert at(samples, "barnabas_client_b", **client) == 0.5
    types = {family.name: family.type for family in families}
    assert (types["barnabas_client_a"], types["barnabas_client_b"]) == ("counter", "gauge")
    assert at(samples, "barnabas_telemetry_clients") == 1
    assert at(samples, "barnabas_telemetry_series") == 2
    assert at(samples, "barnabas_telemetry_dropped_total") == 0


async def test_of_a_long_client_id_the_beginning_is_shown(wire: Wire, http: Http) -> None:
    assert await subscribe(wire, {"metrics": "*"}) is ErrorCode.NONE
    request = GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16))
    answer = await wire.ask(request, 0, GetTelemetrySubscriptionsResponse, "s" * 32_000)
    assert await push(wire, answer, message(gauge("b", point(0.5)))) is ErrorCode.NONE
    _, samples = await scrape(http)
    client = {"client_id": "s" * 200, "client_instance_id": uuid_text(answer.client_instance_id)}
    assert at(samples, "barnabas_client_b", **client) == 0.5
