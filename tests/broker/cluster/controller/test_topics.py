"""Decisions about topics, with Kafka's errors."""

import pytest

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import BrokerRegistered, Image, ProducerIdsAllocated, TopicCreated
from barnabas_protocol.errors import ErrorCode, KafkaError


def cluster(brokers: int = 3) -> Image:
    image = Image("cluster")
    for node in range(1, brokers + 1):
        image = image.apply(BrokerRegistered(node, {"PLAINTEXT": ("host", 9092)}))
    return image


def create(
    image: Image,
    name: str = "topic",
    partitions: int = 1,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
) -> TopicCreated:
    return controller.create_topic(
        image,
        name,
        topic_id=bytes(range(16)),
        partitions=partitions,
        replication_factor=factor,
        configs={},
        assignments=assignments,
    )


def refused(code: ErrorCode) -> "pytest.RaisesExc[KafkaError]":
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../etc", "a b", "x" * 250, "ü", "a\n", "a\0"])
def test_invalid_topic_names_are_rejected(name: str) -> None:
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        create(cluster(), name)


@pytest.mark.parametrize("name", ["a", "...", "A-z_0.9", "x" * 249])
def test_valid_topic_names_are_accepted(name: str) -> None:
    assert create(cluster(), name).name == name


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    image = cluster().apply(create(cluster(), "a.b_c"))
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        create(image, "a_b.c")
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        create(image, "a.b_c")


def test_leaders_and_replicas_are_spread() -> None:
    event = create(cluster(), partitions=6, factor=2)
    assert [p.leader for p in event.partitions] == [1, 2, 3, 1, 2, 3]
    assert all(
        len(set(p.replicas)) == 2 and p.replicas[0] == p.leader and p.isr == p.replicas for p in event.partitions
    )


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-5, 1, ErrorCode.INVALID_PARTITIONS),
        (10**6, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers_are_rejected(partitions: int, factor: int, code: ErrorCode) -> None:
    with refused(code):
        create(cluster(), partitions=partitions, factor=factor)


def test_a_manual_assignment_is_followed() -> None:
    event = create(cluster(), assignments={0: [3, 1], 1: [1, 2]})
    assert [p.replicas for p in event.partitions] == [(3, 1), (1, 2)]


@pytest.mark.parametrize("assignment", [{1: [1]}, {0: []}, {0: [1, 1]}, {0: [9]}, {0: [1], 1: [1, 2]}])
def test_an_invalid_assignment_is_rejected(assignment: dict[int, list[int]]) -> None:
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        create(cluster(), assignments=assignment)


def test_partitions_can_only_grow() -> None:
    image = cluster()
    image = image.apply(create(image, partitions=2))
    assert len(controller.add_partitions(image, "topic", 5).partitions) == 3
    for total in (0, 1, 2):
        with refused(ErrorCode.INVALID_PARTITIONS):
            controller.add_partitions(image, "topic", total)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        controller.add_partitions(image, "nothing", 5)
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        controller.add_partitions(image, "topic", 4, [[1]])


def test_only_existing_topics_can_be_deleted() -> None:
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        controller.delete_topic(cluster(), "nothing")


def test_producer_id_blocks_do_not_overlap() -> None:
    image = cluster()
    first, event = controller.allocate_producer_ids(image)
    second, _ = controller.allocate_producer_ids(image.apply(event))
    assert not set(first) & set(second)
    later, _ = controller.allocate_producer_ids(image.apply(event), 10**15)
    assert later[0] == 10**15
    after, _ = controller.allocate_producer_ids(image.apply(ProducerIdsAllocated(2 * 10**15)), 10**15)
    assert after[0] == 2 * 10**15
