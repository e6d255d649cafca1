"""The metadata of a cluster, and how responses change it."""

from barnabas_client.network.metadata import NO_ID, Cluster, Node
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def partition(number: int, leader: int, epoch: int = -1) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0, partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=[0], isr_nodes=[0]
    )


def topic(
    *partitions: MetadataResponsePartition, name: str | None = "t", id: bytes = NO_ID, code: int = 0
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=id, partitions=list(partitions))


def answer(*topics: MetadataResponseTopic, nodes: int = 2) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host="h", port=9092 + node) for node in range(nodes)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=list(topics))


def test_an_empty_cluster_knows_nothing() -> None:
    cluster = Cluster()
    assert cluster.partitions("t") is None
    assert cluster.leader(T0) is None
    assert cluster.available("t") == ()
    assert cluster.topic_id("t") == NO_ID
    assert cluster.counts(["t"]) == {}


def test_a_response_becomes_a_cluster() -> None:
    cluster = Cluster().updated(answer(topic(partition(1, 1), partition(0, 0), id=b"x" * 16)), ())
    assert cluster.cluster_id == "c"
    assert cluster.controller_id == 1
    assert cluster.brokers[1] == Node(1, "h", 9093)
    assert cluster.partitions("t") == (0, 1)
    assert (cluster.leader(T0), cluster.leader(T1)) == (0, 1)
    assert cluster.counts(["t", "u"]) == {"t": 2}
    assert cluster.names == {b"x" * 16: "t"}
    assert cluster.version == 1


def test_a_partition_without_a_leader_is_not_available() -> None:
    cluster = Cluster().updated(answer(topic(partition(0, -1), partition(1, 1))), ())
    assert cluster.leader(T0) is None
    assert cluster.available("t") == (1,)
    assert cluster.partitions("t") == (0, 1)


def test_a_leader_that_is_not_a_known_broker_is_none() -> None:
    assert Cluster().updated(answer(topic(partition(0, 7))), ()).leader(T0) is None


def test_watched_topics_are_kept_if_a_response_does_not_mention_them() -> None:
    cluster = Cluster().updated(answer(topic(partition(0, 0)), topic(partition(0, 0), name="u")), ())
    assert set(cluster.updated(answer(), ["t"]).topics) == {"t"}
    assert set(cluster.updated(answer(), None).topics) == set()


def test_an_older_leader_epoch_is_ignored() -> None:
    cluster = Cluster().updated(answer(topic(partition(0, 1, epoch=5))), ())
    assert cluster.updated(answer(topic(partition(0, 0, epoch=4))), ()).leader(T0) == 1
    assert cluster.updated(answer(topic(partition(0, 0, epoch=5))), ()).leader(T0) == 0
    assert cluster.updated(answer(topic(partition(0, 0, epoch=6))), ()).leader(T0) == 0
    assert cluster.updated(answer(topic(partition(0, 0))), ()).leader(T0) == 0  # a broker that sends no epochs


def test_nothing_is_kept_of_a_topic_with_another_id() -> None:
    cluster = Cluster().updated(answer(topic(partition(0, 1, epoch=5), id=b"a" * 16)), ())
    again = cluster.updated(answer(topic(partition(0, 0, epoch=0), id=b"b" * 16)), ())
    assert again.leader(T0) == 0
    assert again.names == {b"b" * 16: "t"}


def test_a_temporary_error_keeps_the_known_partitions() -> None:
    cluster = Cluster().updated(answer(topic(partition(0, 1))), ())
    later = cluster.updated(answer(topic(code=ErrorCode.LEADER_NOT_AVAILABLE)), ())
    assert later.leader(T0) == 1
    assert later.topics["t"].error is ErrorCode.LEADER_NOT_AVAILABLE


def test_a_deleted_topic_has_no_partitions() -> None:
    cluster = Cluster().updated(answer(topic(partition(0, 1))), ())
    later = cluster.updated(answer(topic(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)), ())
    assert later.partitions("t") is None


def test_a_leader_from_an_error_response() -> None:
    cluster = Cluster().updated(answer(topic(partition(0, 0, epoch=5))), ())
    assert cluster.with_leader(T0, 1, 6).leader(T0) == 1
    assert cluster.with_leader(T0, 1, 5) is cluster
    assert cluster.with_leader(T0, 9, 6) is cluster
    assert cluster.with_leader(T1, 1, 6) is cluster


def test_topics_without_a_name_are_ignored() -> None:
    assert Cluster().updated(answer(topic(name=None, code=ErrorCode.UNKNOWN_TOPIC_ID)), ()).topics == {}
