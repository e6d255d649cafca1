"""Who leads after all replicas of a partition were down (KIP-966)."""

from collections.abc import Mapping

import pytest

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import IsrChange, LogEnd, leaders
from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import BrokerInfo, Image, LastKnown, PartitionChanged, PartitionInfo
from barnabas_protocol.errors import ErrorCode
from tests.broker.cluster.support import TOPIC_ID, brokers, clean, one, partition, refused, two, unclean, with_topic

WHERE = ("topic", 0)


class Cluster:
    """Brokers 1 to 3 with the directories a, b, c; broker 1 leads the only partition, all are in sync."""

    def __init__(self, *, min_isr: leaders.MinIsrRule = two, **topic: str) -> None:
        image = brokers(1, 2, 3)
        infos = {node: broker._replace(directory="abc"[node - 1]) for node, broker in image.brokers.items()}
        self.image = with_topic(image._replace(brokers=infos), partition(1, (1, 2, 3)), **topic)
        self.registered: dict[int, BrokerInfo] = dict(infos)
        self.min_isr = min_isr
        self.epoch = 100
        #: The brokers whose registrations say that their replica has lost records.
        self.damaged: dict[int, frozenset[tuple[bytes, int]]] = {}

    @property
    def info(self) -> PartitionInfo:
        return self.image.topics["topic"].partitions[0]

    def react(self) -> None:
        for _ in range(10):
            events = controller.reconcile(self.image, 1, self.registered, clean, self.min_isr, damaged=self.damaged)
            if not events:
                return
            self.image = self.image.apply_all(event_from_json(event_to_json(event)) for event in events)
        raise AssertionError("it does not come to an end")

    def lost(self, *nodes: int) -> None:
        """Their leases expire."""
        for node in nodes:
            del self.registered[node]
        self.react()

    def stopped(self, node: int) -> None:
        """It shuts down."""
        epoch = self.registered.pop(node).epoch
        self.image = self.image.apply_all(
            controller.broker_fenced(self.image, node, epoch, clean, self.min_isr, stopped=True)
        )

    def back(self, node: int, *, directory: str | None = None, intact: bool = False, damaged: bool = False) -> None:
        """It registers, by default after an unclean stop with its own directory."""
        self.epoch += 1
        self.damaged.pop(node, None)
        if damaged:
            self.damaged[node] = frozenset([(TOPIC_ID, 0)])
        known = self.image.fenced[node].info
        self.registered[node] = known._replace(
            epoch=self.epoch,
            directory=directory or "abc"[node - 1],
            intact=(known.epoch, known.epoch) if intact else (-1, -1),
        )
        self.react()

    def reports(self, node: int, epoch: int, end: int, *, damaged: bool = False) -> None:
        events = controller.report_log_ends(
            self.image, node, self.registered[node].epoch, [LogEnd("topic", TOPIC_ID, 0, epoch, end, damaged)]
        )
        self.image = self.image.apply_all(events)

    def confirmed(self, min_isr: int) -> PartitionInfo:
        """The leader proposes the ISR that it has."""
        info = self.info
        wish = IsrChange(
            "topic", TOPIC_ID, 0, info.leader_epoch, info.partition_epoch, tuple((n, -1) for n in info.isr), min_isr
        )
        events, _ = controller.alter_isr(self.image, info.leader, self.registered[info.leader].epoch, [wish])
        self.image = self.image.apply_all(events)
        return self.info

    @property
    def recovery(self) -> controller.LeaderRecovery | None:
        return next((found[3] for found in controller.recovering(self.image)), None)


def test_replicas_that_leave_an_isr_that_becomes_too_small_are_eligible() -> None:
    cluster = Cluster()
    cluster.stopped(2)
    assert (cluster.info.isr, cluster.info.elr) == ((1, 3), ())
    cluster.stopped(3)
    assert (cluster.info.isr, cluster.info.elr) == ((1,), (3,))
    cluster.lost(1)
    assert (cluster.info.leader, cluster.info.isr, cluster.info.elr) == (-1, (1,), (3,))


def test_an_eligible_replica_leads_when_the_isr_has_lost_its_directory() -> None:
    cluster = Cluster()
    cluster.stopped(2)
    cluster.stopped(3)
    cluster.lost(1)
    cluster.back(1, directory="new")
    assert (cluster.info.leader, cluster.info.isr, cluster.info.elr) == (-1, (), (3,))
    assert cluster.info.last_known == (LastKnown(1, "a"),)
    cluster.back(2, intact=True)
    assert cluster.info.leader == -1, "it left when two others were in sync, which may have gone on"
    assert cluster.recovery == controller.LeaderRecovery((1, 3), False, False)
    cluster.back(3, intact=True)
    assert (cluster.info.leader, cluster.info.isr) == (3, (3,))


def test_a_replica_with_another_directory_never_leads_while_others_have_the_records() -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    cluster.back(1, directory="new")
    assert (cluster.info.leader, cluster.info.isr) == (-1, (2, 3))
    cluster.reports(1, 0, 0)
    cluster.back(2)
    cluster.back(3)
    cluster.reports(2, 5, 90)
    cluster.reports(3, 5, 100)
    assert cluster.info.leader == -1
    assert cluster.recovery == controller.LeaderRecovery((1,), True, True), (
        "the other directory of 1 may return for a moment"
    )
    cluster.image = cluster.image.apply_all(controller.recover(cluster.image, [WHERE]))
    assert (cluster.info.leader, cluster.info.isr, cluster.info.last_known) == (3, (3,), ())


@pytest.mark.parametrize("ends", [{1: (5, 40), 2: (5, 100), 3: (5, 90)}, {1: (4, 200), 2: (5, 100), 3: (-1, 0)}])
def test_of_replicas_that_all_stopped_uncleanly_the_one_with_the_highest_epoch_and_end_leads(
    ends: Mapping[int, tuple[int, int]],
) -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    for node in (1, 3, 2):
        cluster.back(node)
        assert cluster.info.leader == -1
    for node, (epoch, end) in ends.items():
        assert cluster.info.leader == -1
        cluster.reports(node, epoch, end)
    assert (cluster.info.leader, cluster.info.isr) == (2, (2,))


def test_of_replicas_with_the_same_end_one_without_damage_leads() -> None:
    # Followers could not fetch what is damaged.
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    for node in (1, 2, 3):
        cluster.back(node)
    for node in (1, 2, 3):
        cluster.reports(node, 5, 100, damaged=node == 1)
    assert cluster.info.leader == 2


def test_a_replica_that_was_stopped_cleanly_leads_at_once() -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    cluster.back(1)
    cluster.reports(1, 5, 10)
    cluster.back(2, intact=True)
    assert (cluster.info.leader, cluster.info.isr, cluster.info.elr) == (2, (2,), (3,))


def test_a_replica_that_has_everything_and_was_stopped_is_awaited_without_end() -> None:
    cluster = Cluster()
    cluster.lost(1)
    cluster.stopped(2)
    cluster.stopped(3)
    assert (cluster.info.leader, cluster.info.isr, cluster.info.elr) == (-1, (3,), (2,))
    cluster.back(2)
    cluster.reports(2, 5, 10)
    assert cluster.recovery == controller.LeaderRecovery((3,), False, False)
    assert controller.recover(cluster.image, [WHERE]) == []


def test_replicas_that_do_not_return_are_awaited_for_some_time() -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    cluster.back(1)
    assert controller.recover(cluster.image, []) == []
    cluster.back(2)
    cluster.reports(1, 5, 10)
    cluster.reports(2, 5, 20)
    assert cluster.recovery == controller.LeaderRecovery((3,), True, False)
    cluster.image = cluster.image.apply_all(controller.recover(cluster.image, [WHERE]))
    assert cluster.info.leader == 2


def test_a_replica_that_has_returned_and_has_not_reported_yet_is_not_one_that_was_replaced() -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    cluster.back(1, directory="new")
    cluster.back(2)
    cluster.reports(2, 5, 10)
    cluster.back(3)
    assert cluster.recovery == controller.LeaderRecovery((1, 3), True, False)


def test_a_report_ends_with_the_registration_that_it_was_made_in() -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    cluster.back(1)
    cluster.reports(1, 5, 100)
    cluster.lost(1)
    cluster.back(1)
    assert cluster.info.last_known == (LastKnown(1, "a"),)
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        controller.report_log_ends(cluster.image, 1, 101, [])


def test_a_broker_that_registers_again_without_a_stop_has_lost_nothing() -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    cluster.back(3, intact=True)
    assert cluster.info.leader == 3


def test_an_earlier_copy_of_the_directory_counts_as_an_unclean_stop() -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    known = cluster.image.fenced[1].info
    cluster.registered[1] = known._replace(epoch=200, intact=(3, known.epoch - 1))
    cluster.react()
    assert cluster.info.last_known == (LastKnown(1, "a"),)


def test_the_only_replica_leads_after_an_unclean_stop() -> None:
    image = with_topic(brokers(1, 2), partition(1, (1,)))
    gone = image.apply_all(controller.reconcile(image, 2, {2: image.brokers[2]}, clean, two))
    back = {2: image.brokers[2], 1: image.brokers[1]._replace(epoch=99)}
    events = controller.reconcile(gone, 2, back, clean, two)
    (changed,) = [event for event in events if isinstance(event, PartitionChanged)]
    assert (changed.partition.leader, changed.partition.isr) == (1, (1,))


def test_the_only_replica_with_another_directory_leads_when_the_first_one_returns() -> None:
    cluster = Cluster()
    single = cluster.info._replace(replicas=(1,), isr=(1,))
    cluster.image = cluster.image.apply(PartitionChanged("topic", 0, single))
    cluster.lost(1)
    cluster.back(1, directory="not mounted")
    assert (cluster.info.leader, cluster.info.last_known) == (-1, (LastKnown(1, "a"),))
    assert cluster.recovery == controller.LeaderRecovery((1,), False, True)
    cluster.lost(1)
    cluster.back(1)
    assert (cluster.info.leader, cluster.info.isr, cluster.info.last_known) == (1, (1,), ())


def test_with_unclean_leader_election_a_live_replica_leads_at_once() -> None:
    cluster = Cluster()
    cluster.lost(1, 2, 3)
    cluster.registered[2] = cluster.image.fenced[2].info._replace(epoch=99)
    events = controller.reconcile(cluster.image, 1, cluster.registered, unclean, two)
    assert cluster.image.apply_all(events).topics["topic"].partitions[0].leader == 2


def test_a_leader_that_lives_ends_the_eligibility_of_others() -> None:
    # min.insync.replicas=1: broker 3 may lead only on paper, because it stopped before its lease has expired.
    cluster = Cluster(min_isr=one)
    cluster.lost(2)
    cluster.lost(1)
    assert (cluster.info.leader, cluster.info.isr, cluster.info.elr) == (3, (3,), (1,))
    too_small = cluster.confirmed(2)
    assert too_small.elr == (1,)
    enough = cluster.confirmed(1)
    assert (enough.isr, enough.elr) == ((3,), ())


def test_the_lease_of_the_leader_expires_after_a_follower_has_lost_power() -> None:
    cluster = Cluster(min_isr=one)
    cluster.lost(2)  # the ISR is {1, 3}
    cluster.lost(1)  # 3 has lost power already
    cluster.lost(3)
    cluster.back(3)
    assert cluster.info.leader == -1
    cluster.back(1, intact=True)
    assert cluster.info.leader == 1


def test_many_partitions_are_demoted_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "STEP", 3)
    cluster = Cluster()
    single = partition(1, (1,))
    cluster.image = with_topic(cluster.image, *(single for _ in range(10)))
    cluster.lost(1)
    cluster.back(1)
    assert [p.leader for p in cluster.image.topics["topic"].partitions] == [1] * 10


def test_fenced_brokers_are_in_the_snapshot() -> None:
    cluster = Cluster()
    cluster.stopped(2)
    cluster.lost(1, 3)
    assert cluster.image.fenced[2].stopped
    assert not cluster.image.fenced[1].stopped
    assert Image("cluster").apply_all(cluster.image.snapshot()) == cluster.image


def test_a_replica_that_has_lost_records_is_not_elected_although_its_broker_was_stopped_cleanly() -> None:
    cluster = Cluster()
    for node in (3, 2, 1):
        cluster.stopped(node)
    assert (cluster.info.leader, cluster.info.isr, cluster.info.elr) == (-1, (1,), (2,))
    cluster.back(1, intact=True, damaged=True)
    assert (cluster.info.leader, cluster.info.isr, cluster.info.elr) == (-1, (), (2,))
    cluster.back(3, intact=True)
    assert cluster.info.leader == -1, "it left when two others were in sync, which may have gone on"
    cluster.back(2, intact=True)
    assert (cluster.info.leader, cluster.info.isr) == (2, (2,))


def test_a_follower_that_has_lost_records_returns_out_of_sync() -> None:
    cluster = Cluster()
    cluster.lost(3)
    cluster.back(3, intact=True)
    cluster.registered[2] = cluster.registered[2]._replace(epoch=300, intact=(20, 20))
    cluster.damaged[2] = frozenset([(TOPIC_ID, 0)])
    cluster.react()
    found = cluster.info
    assert (found.leader, found.isr, found.elr) == (1, (1,), ())


def test_the_last_replica_in_sync_has_lost_records_and_the_best_of_all_leads() -> None:
    cluster = Cluster(min_isr=one)
    for node in (3, 2):
        cluster.stopped(node)
        cluster.confirmed(1)
    cluster.stopped(1)
    assert cluster.info.isr == (1,)
    assert not cluster.info.elr
    cluster.back(1, intact=True, damaged=True)
    assert [each.node_id for each in cluster.info.last_known] == [1, 2, 3]
    assert cluster.recovery == controller.LeaderRecovery((1, 2, 3), True, False)
    cluster.reports(1, 4, 10, damaged=True)
    cluster.back(2, intact=True)
    cluster.back(3, intact=True)
    cluster.reports(2, 5, 90)
    assert cluster.info.leader == -1
    cluster.reports(3, 5, 80)
    assert (cluster.info.leader, cluster.info.isr, cluster.info.last_known) == (2, (2,), ())


def test_the_only_replica_leads_with_what_it_has_left() -> None:
    image = with_topic(brokers(1), partition(1, (1,)))
    gone = image.apply_all(controller.broker_fenced(image, 1, 10, clean, one, stopped=True))
    back = {1: image.brokers[1]._replace(epoch=11, intact=(10, 10))}
    events = controller.reconcile(gone, 1, back, clean, one, damaged={1: frozenset([(TOPIC_ID, 0)])})
    found = gone.apply_all(events).topics["topic"].partitions[0]
    assert (found.leader, found.isr) == (1, (1,))


def test_what_a_registration_says_of_lost_records_counts_only_when_it_is_new() -> None:
    cluster = Cluster()
    cluster.damaged[2] = frozenset([(TOPIC_ID, 0)])
    cluster.lost(3)
    cluster.back(3)
    assert cluster.info.isr == (1, 2)
