"""Topics, brokers, transactions and ACLs of any cluster as JSON, from what an admin client gets."""

import json

from barnabas.console import overview
from barnabas.console.overview import Known, brokers, one_topic, sizes_of, topics, transactions
from barnabas_client.admin.types import (
    BrokerLogDirs,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    LogDir,
    PartitionProducer,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
)
from barnabas_client.network.metadata import Node, PartitionInfo, TopicInfo
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
T = TopicInfo("t", b"\1" * 16, {0: PartitionInfo(0, 1, 5, (1, 2), (1,)), 1: PartitionInfo(1, -1, 6, (2,), ())})
INTERNAL = TopicInfo("__consumer_offsets", bytes(16), {0: PartitionInfo(0, 2, -1, (2,), (2,))}, internal=True)
FAILED = LogDir("/b", KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), {})
DIRECTORIES = [
    BrokerLogDirs(1, None, (LogDir("/a", None, {T0: 100, T1: 7}, 1_000, 10), FAILED)),
    BrokerLogDirs(2, None, (LogDir("/a", None, {T0: 90}),)),
]
NOTHING = Known({}, {}, {}, {})


def test_the_size_of_a_partition_is_that_of_its_leader() -> None:
    assert sizes_of([T], DIRECTORIES) == {T0: 100}


def test_what_is_not_known_is_not_zero() -> None:
    made = topics([T, INTERNAL], NOTHING, time_ms=17, notes=["why"])
    row, internal = made["topics"]
    assert (row["records"], row["end"], row["size"], row["known"]) == (None, None, None, 0)
    assert (row["partitions"], row["replicas"], row["under_replicated"], row["offline"]) == (2, 2, 2, 1)
    assert (internal["internal"], made["notes"]) == (True, ["why"])
    some = topics([T], Known({T0: 3}, {T0: 8}, {T0: 9}, {T0: 100}), time_ms=17)["topics"][0]
    assert (some["records"], some["end"], some["size"], some["known"]) == (6, 9, 100, 1)


def test_a_topic_with_its_configuration() -> None:
    configs = [
        ConfigEntry("retention.ms", "5", ConfigSource.TOPIC),
        ConfigEntry("cleanup.policy", "delete", ConfigSource.DEFAULT),
    ]
    made = one_topic(T, Known({T0: 3}, {T0: 8}, {T0: 9}, {}), configs, time_ms=1, shows_records=True)
    assert made["configs"] == [
        {"name": "cleanup.policy", "value": "delete", "source": "DEFAULT", "default": True},
        {"name": "retention.ms", "value": "5", "source": "TOPIC", "default": False},
    ]
    first, second = made["partitions"]
    assert (first["start"], first["stable"], first["end"], first["size"]) == (3, 8, 9, None)
    assert (second["leader"], second["end"]) == (-1, None)
    assert one_topic(INTERNAL, NOTHING, [], time_ms=1, shows_records=False)["topic_id"] is None


def test_brokers_that_are_gone_are_listed_with_what_they_should_keep() -> None:
    cluster = ClusterDescription("c", 1, (Node(1, "h", 9092, "r"),))
    made = brokers(cluster, [T, INTERNAL], DIRECTORIES[:1], {2: "no answer"}, time_ms=1)
    one, two = made["brokers"]
    assert (one["live"], one["address"], one["rack"], one["controller"]) == (True, "h:9092", "r", True)
    assert (one["leads"], one["replicas"], one["not_in_sync"]) == (1, 1, 0)
    assert (two["live"], two["address"], two["replicas"], two["not_in_sync"]) == (False, None, 3, 2)
    assert (two["log_directories"], two["reason"]) == (None, "no answer")
    good, bad = one["log_directories"]
    assert (good["size"], good["disk_bytes"], good["disk_free_bytes"], good["failure"]) == (107, 1_000, 10, None)
    assert (bad["disk_bytes"], bad["failure"] is not None) == (None, True)
    assert made["offline"] == 1


def test_a_partition_waits_for_the_producer_whose_transaction_begins_at_its_last_stable_offset() -> None:
    listed = [TransactionListing("pay", 7, "Ongoing", 1), TransactionListing("old", 8, "Empty", 1)]
    described = [
        TransactionDescription("pay", None, "Ongoing", 7, 0, 60_000, 100, (T0,), 1),
        TransactionDescription("over", None, "CompleteCommit", 9, 0, 60_000, None, (), 1),
        TransactionDescription("lost", KafkaError(ErrorCode.NOT_COORDINATOR)),
    ]
    producers = {
        T0: PartitionProducers((PartitionProducer(7, 0, 1, 90, 0, 5), PartitionProducer(8, 0, 1, 95, 0, 8))),
        T1: PartitionProducers(error=KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
    }
    made = transactions(listed, described, {T1: (0, 1), T0: (5, 9)}, producers, time_ms=1)
    assert [each["transactional_id"] for each in made["open"]] == ["pay"]
    assert made["open"][0]["client"] is None
    first, second = made["blocked"]
    assert (first["records"], first["open"]) == (4, 2)
    assert first["producer"] == {"producer_id": 7, "transactional_id": "pay", "last_write_ms": 90}
    assert (second["producer"], second["producers_known"]) == (None, False)
    json.dumps(made)


def test_acls_that_cannot_be_read_have_their_reason() -> None:
    made = overview.acls([], authorizer=True, reason="not allowed")
    assert (made["reason"], made["acls"], made["super_users"]) == ("not allowed", [], None)
