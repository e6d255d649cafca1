"""ISRs that leaders propose."""

import pytest

from barnabas_broker.cluster.controller import IsrChange, alter_isr
from barnabas_broker.cluster.image import PartitionInfo
from barnabas_protocol.errors import ErrorCode
from tests.broker.cluster.support import TOPIC_ID, brokers, only, partition, refused, with_topic

IMAGE = with_topic(brokers(1, 2, 3), partition(1, (1, 2, 3), (1, 2)))
ALL = ((1, 10), (2, 20), (3, 30))
WISH = IsrChange("topic", TOPIC_ID, 0, 5, 7, ALL)


def test_a_leader_adds_and_removes_isr_members() -> None:
    events, (outcome,) = alter_isr(IMAGE, 1, 10, [WISH])
    assert isinstance(outcome, PartitionInfo)
    assert outcome == only(IMAGE, events)
    assert (outcome.isr, outcome.leader, outcome.leader_epoch, outcome.partition_epoch) == ((1, 2, 3), 1, 5, 8)
    events, (outcome,) = alter_isr(IMAGE, 1, 10, [WISH._replace(isr=((1, -1),))])
    assert only(IMAGE, events).isr == (1,)


def test_an_unchanged_isr_makes_no_event() -> None:
    assert alter_isr(IMAGE, 1, 10, [WISH._replace(isr=((2, 20), (1, 10)))]) == (
        [],
        [IMAGE.topics["topic"].partitions[0]],
    )


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (WISH._replace(topic="nothing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (WISH._replace(topic_id=b"x" * 16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (WISH._replace(partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (WISH._replace(leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (WISH._replace(leader_epoch=6), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (WISH._replace(partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION),
        (WISH._replace(isr=((3, 30),)), ErrorCode.INVALID_REQUEST),
        (WISH._replace(isr=((2, 20), (3, 30))), ErrorCode.INVALID_REQUEST),
        (WISH._replace(isr=((2, 21),)), ErrorCode.INELIGIBLE_REPLICA),
        (WISH._replace(isr=()), ErrorCode.INVALID_REQUEST),
        (WISH._replace(isr=((1, 10), (1, 10))), ErrorCode.INVALID_REQUEST),
        (WISH._replace(isr=((1, 10), (9, 90))), ErrorCode.INVALID_REQUEST),
        (WISH._replace(isr=((1, 10), (2, 20), (3, 29))), ErrorCode.INELIGIBLE_REPLICA),
        (WISH._replace(isr=((1, 10), (2, 20), (3, -1))), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_invalid_proposals_are_rejected(wish: IsrChange, code: ErrorCode) -> None:
    assert alter_isr(IMAGE, 1, 10, [wish]) == ([], [code])


def test_a_leader_resigns_and_names_the_next_one() -> None:
    image = with_topic(brokers(1, 2, 3), partition(1, (1, 2, 3), (1, 2, 3)))
    events, _ = alter_isr(image, 1, 10, [WISH._replace(isr=((3, 30), (2, -1)), min_isr=2)])
    found = only(image, events)
    assert (found.leader, found.leader_epoch, found.isr, found.elr) == (3, 6, (2, 3), ())


def test_a_leader_that_resigns_stays_eligible_while_too_few_are_in_sync() -> None:
    """As after the end of its lease: the high watermark stays until the ISR is large enough."""
    for min_isr in (1, 2):
        events, _ = alter_isr(IMAGE, 1, 10, [WISH._replace(isr=((2, -1),), min_isr=min_isr)])
        found = only(IMAGE, events)
        assert (found.leader, found.leader_epoch, found.isr, found.elr) == (2, 6, (2,), (1,))


def test_a_leader_resigns_in_favour_of_an_eligible_replica() -> None:
    image = with_topic(brokers(1, 2, 3), partition(1, (1, 2, 3), (1,))._replace(elr=(3,)))
    events, _ = alter_isr(image, 1, 10, [WISH._replace(isr=((3, -1),), min_isr=2)])
    found = only(image, events)
    assert (found.leader, found.leader_epoch, found.isr, found.elr) == (3, 6, (3,), (1,))
    wishes = [WISH._replace(isr=isr, min_isr=2) for isr in (((2, 20),), ((3, -1), (2, 20)), ((1, 10), (3, -1)))]
    errors = [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.INELIGIBLE_REPLICA]
    assert [alter_isr(image, 1, 10, [wish]) for wish in wishes] == [([], [error]) for error in errors]


def test_a_leader_does_not_resign_in_favour_of_a_broker_that_is_not_registered() -> None:
    image = with_topic(brokers(1, 3), partition(1, (1, 2, 3), (1, 2, 3)))
    wish = WISH._replace(isr=((2, -1), (3, -1)), min_isr=2)
    assert alter_isr(image, 1, 10, [wish]) == ([], [ErrorCode.INELIGIBLE_REPLICA])


def test_an_unregistered_broker_is_not_added() -> None:
    image = with_topic(brokers(1, 2), partition(1, (1, 2, 3), (1, 2)))
    assert alter_isr(image, 1, 10, [WISH._replace(isr=((1, 10), (2, 20), (3, -1)))])[1] == [
        ErrorCode.INELIGIBLE_REPLICA
    ]


def test_a_broker_that_does_not_lead_is_rejected() -> None:
    assert alter_isr(IMAGE, 2, 20, [WISH]) == ([], [ErrorCode.NOT_LEADER_OR_FOLLOWER])


@pytest.mark.parametrize(("node", "epoch"), [(1, 9), (1, 11), (7, 70)])
def test_an_earlier_broker_epoch_is_rejected(node: int, epoch: int) -> None:
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        alter_isr(IMAGE, node, epoch, [WISH])


def test_a_rejected_proposal_does_not_affect_others() -> None:
    image = with_topic(brokers(1, 2, 3), partition(1, (1, 2, 3), (1,)), partition(1, (1, 2, 3), (1,)))
    wishes = [WISH._replace(partition_epoch=1), WISH._replace(partition=1)]
    events, outcomes = alter_isr(image, 1, 10, wishes)
    assert outcomes[0] is ErrorCode.INVALID_UPDATE_VERSION
    assert only(image, events, 0).isr == (1,)
    assert only(image, events, 1).isr == (1, 2, 3)
