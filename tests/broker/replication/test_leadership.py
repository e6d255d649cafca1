"""The leader's view of its followers: high watermark and ISR."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.cluster.image import BrokerInfo, PartitionInfo
from barnabas_broker.replication.leadership import Leadership, Resignation

LAG = 10.0


def partition(isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionInfo:
    return PartitionInfo(leader=1, leader_epoch=4, replicas=replicas, isr=isr, partition_epoch=9)


def live(*nodes: int) -> dict[int, BrokerInfo]:
    """Registered brokers; the broker epoch of each is ten times its node id."""
    return {node: BrokerInfo(node, {}, None, node * 10) for node in nodes}


def test_alone_in_the_isr_the_high_watermark_is_the_end() -> None:
    leading = Leadership(1, partition((1,)), 7, 0.0)
    assert leading.alone
    assert leading.high_watermark(3) == 7


def test_a_new_leader_keeps_its_high_watermark_until_all_of_the_isr_have_fetched() -> None:
    leading = Leadership(1, partition((1, 2, 3)), 7, 0.0)
    assert leading.high_watermark(3) == 3
    leading.fetched(2, 20, 7, 1.0)
    assert leading.high_watermark(3) == 3
    leading.fetched(3, 30, 5, 1.0)
    assert leading.high_watermark(3) == 5


def test_the_high_watermark_does_not_go_back_when_a_follower_does() -> None:
    leading = Leadership(1, partition((1, 2)), 7, 0.0)
    leading.fetched(2, 20, 7, 1.0)
    leading.fetched(2, 21, 2, 2.0)
    assert leading.high_watermark(7) == 7


def test_a_fetch_of_a_broker_that_is_not_a_replica_is_rejected() -> None:
    assert not Leadership(1, partition((1, 2)), 7, 0.0).fetched(8, 80, 7, 1.0)


def test_a_follower_may_join_with_all_committed_records_and_those_before_the_epoch() -> None:
    leading = Leadership(1, partition((1, 2)), 7, 0.0)
    leading.fetched(3, 30, 6, 1.0)
    assert not leading.may_join(3, 5), "records of earlier leaders are missing"
    leading.fetched(3, 30, 7, 2.0)
    assert leading.may_join(3, 7)
    assert not leading.may_join(3, 8), "a committed record is missing"
    assert not leading.may_join(2, 7), "it is a member already"


def test_a_proposed_follower_counts_at_once() -> None:
    leading = Leadership(1, partition((1,)), 7, 0.0)
    leading.fetched(2, 20, 7, 1.0)
    assert leading.propose((1, 2)) == ((1, -1), (2, 20))
    leading.log_end = 9
    assert leading.high_watermark(7) == 7
    leading.rejected()
    assert leading.high_watermark(7) == 9


def test_a_follower_in_an_unknown_proposal_counts_until_the_partition_changes() -> None:
    leading = Leadership(1, partition((1,)), 7, 0.0)
    leading.fetched(2, 20, 7, 1.0)
    leading.propose((1, 2))
    leading.outcome_unknown()
    leading.log_end = 9
    assert leading.high_watermark(7) == 7
    leading.changed(partition((1,)), 3.0)
    assert leading.high_watermark(7) == 9


def test_a_proposed_follower_counts_until_the_partition_changes() -> None:
    leading = Leadership(1, partition((1,)), 7, 0.0)
    leading.fetched(2, 20, 7, 1.0)
    leading.propose((1, 2))
    leading.log_end = 9
    leading.changed(partition((1,)), 2.0)  # the topic has got more partitions, and this one is as it was
    assert leading.high_watermark(7) == 7
    leading.changed(partition((1,))._replace(partition_epoch=10), 3.0)
    assert leading.proposed is None
    assert leading.high_watermark(7) == 9


def test_a_follower_that_does_not_fetch_leaves() -> None:
    leading = Leadership(1, partition((1, 2, 3)), 7, 0.0)
    leading.fetched(2, 20, 7, 1.0)
    leading.fetched(3, 30, 7, 1.0)
    leading.log_end = 8
    leading.fetched(2, 20, 8, 11.5)
    assert leading.wanted_isr(7, 11.0, LAG, live(1, 2, 3)) == (1, 2, 3)
    assert leading.wanted_isr(7, 11.6, LAG, live(1, 2, 3)) == (1, 2)


def test_a_follower_that_has_left_returns_only_with_a_fetch() -> None:
    """It has all committed records. Without this it left and returned for as long as the leader was cut off from it."""
    leading = Leadership(1, partition((1,)), 7, 0.0)
    leading.fetched(3, 30, 7, 1.0)
    leading.log_end = 8
    assert leading.wanted_isr(7, 1.0 + LAG, LAG, live(1, 3)) == (1, 3)
    assert leading.wanted_isr(7, 1.1 + LAG, LAG, live(1, 3)) == (1,)
    leading.fetched(3, 30, 7, 2.0 + LAG)
    assert leading.wanted_isr(7, 2.1 + LAG, LAG, live(1, 3)) == (1, 3)


def test_a_follower_that_fetches_and_never_catches_up_leaves() -> None:
    leading = Leadership(1, partition((1, 2)), 100, 0.0)
    for second in range(1, 13):
        leading.fetched(2, 20, second, float(second))
    assert leading.wanted_isr(0, 12.0, LAG, live(1, 2)) == (1,)


def test_a_follower_that_is_always_one_fetch_behind_stays() -> None:
    leading = Leadership(1, partition((1, 2)), 10, 0.0)
    leading.fetched(2, 20, 10, 1.0)
    for second in range(2, 40):
        leading.log_end += 10
        leading.fetched(2, 20, leading.log_end - 10, float(second))
    assert leading.wanted_isr(10, 40.0, LAG, live(1, 2)) == (1, 2)


def test_an_idle_follower_with_everything_stays() -> None:
    leading = Leadership(1, partition((1, 2)), 10, 0.0)
    leading.fetched(2, 20, 10, 1.0)
    assert leading.wanted_isr(10, 1000.0, LAG, live(1, 2)) == (1, 2)


def cut_off(isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3)) -> Leadership:
    """A leader whose followers have fetched until second 1, and a record that they lack."""
    leading = Leadership(1, partition(isr, replicas), 7, 0.0)
    for node in leading.followers:
        leading.fetched(node, node * 10, 7, 1.0)
    leading.log_end = 8
    return leading


def goes_to(*isr: int) -> Resignation:
    """Enough replicas are in sync with the new leader."""
    return Resignation(isr, enough=True)


def waits_for_others(*isr: int) -> Resignation:
    """Other replicas must be in sync with the new leader first."""
    return Resignation(isr, enough=False)


def test_a_leader_that_no_follower_reaches_wants_the_others_to_go_on() -> None:
    leading = cut_off()
    assert leading.wanted_without_me(0.9, 2, live(1, 2, 3)) is None
    assert leading.wanted_without_me(1.1, 2, live(1, 2, 3)) == goes_to(2, 3)


def test_a_leader_stays_while_it_has_enough_in_sync() -> None:
    leading = cut_off()
    leading.fetched(2, 20, 7, 6.0)
    assert leading.wanted_without_me(1.1, 2, live(1, 2, 3)) is None
    assert cut_off().wanted_without_me(1.1, 1, live(1, 2, 3)) is None


def test_a_leader_stays_if_the_others_would_be_too_few() -> None:
    assert cut_off().wanted_without_me(1.1, 3, live(1, 2, 3)) is None
    assert cut_off((1, 2), (1, 2)).wanted_without_me(1.1, 2, live(1, 2)) is None
    assert cut_off().wanted_without_me(1.1, 2, live(1, 2)) is None, "broker 3 has ended"
    assert cut_off((1, 2)).wanted_without_me(1.1, 2, live(1, 2)) is None, "broker 3 has ended"


def test_a_leader_goes_after_a_follower_has_left_the_isr() -> None:
    """The followers became silent one after the other. The first one has less than is committed, and cannot lead."""
    leading = cut_off((1, 3))
    assert leading.wanted_without_me(0.9, 2, live(1, 2, 3)) is None
    assert leading.wanted_without_me(1.1, 2, live(1, 2, 3)) == waits_for_others(3)


def test_a_leader_goes_after_all_followers_have_left_the_isr() -> None:
    """The last one that left is eligible: the high watermark has not moved since."""
    leading = cut_off((1,))
    assert leading.wanted_without_me(1.1, 2, live(1, 2, 3)) is None, "no other replica has all committed records"
    leading.changed(partition((1,))._replace(elr=(3,)), 2.0)
    assert leading.wanted_without_me(1.1, 2, live(1, 2, 3)) == waits_for_others(3)
    assert leading.wanted_without_me(1.1, 2, live(1, 2)) is None, "broker 3 has ended"
    leading.changed(partition((1,))._replace(elr=(2, 3)), 2.0)
    assert leading.wanted_without_me(1.1, 2, live(1, 2, 3)) == waits_for_others(2, 3)


def test_a_leader_stays_while_enough_followers_reach_it() -> None:
    """One that is not in sync yet, and one that has left the ISR because it was slow."""
    leading = cut_off((1, 3))
    leading.fetched(2, 20, 0, 6.0)
    assert leading.wanted_without_me(1.1, 2, live(1, 2, 3)) is None
    leading.changed(partition((1,))._replace(elr=(2, 3)), 7.0)
    assert leading.wanted_without_me(1.1, 2, live(1, 2, 3)) is None


def test_a_leader_stays_while_followers_lack_nothing_or_fetch_and_lag() -> None:
    idle, slow = cut_off(), cut_off()
    idle.log_end = 7
    assert idle.wanted_without_me(995.0, 2, live(1, 2, 3)) is None
    for second in range(2, 40):
        slow.log_end += 10
        for node in (2, 3):
            slow.fetched(node, node * 10, 7, float(second))
    assert slow.wanted_without_me(35.0, 2, live(1, 2, 3)) is None


def test_a_follower_that_does_not_reach_the_leader_is_to_lead() -> None:
    """The one that reaches it may be cut off together with it."""
    leading = cut_off((1, 2, 3, 4, 5), (1, 2, 3, 4, 5))
    leading.fetched(2, 20, 7, 6.0)
    assert leading.wanted_without_me(1.1, 3, live(1, 2, 3, 4, 5)) == goes_to(3, 4, 5, 2)
    leading = cut_off((1, 2, 3, 4), (1, 2, 3, 4, 5))
    leading.fetched(2, 20, 7, 6.0)
    assert leading.wanted_without_me(1.1, 4, live(1, 2, 3, 4, 5)) == waits_for_others(3, 4, 2)


def test_only_registered_brokers_join() -> None:
    leading = Leadership(1, partition((1,)), 7, 0.0)
    leading.fetched(2, 20, 7, 1.0)
    assert leading.wanted_isr(7, 1.0, LAG, live(1)) == (1,)
    assert leading.wanted_isr(7, 1.0, LAG, live(1, 2)) == (1, 2)


def test_a_follower_that_is_registered_again_begins_anew() -> None:
    leading = Leadership(1, partition((1,)), 7, 0.0)
    leading.fetched(2, 19, 7, 1.0)
    assert leading.wanted_isr(7, 1.0, LAG, live(1, 2)) == (1,), "the present registration has fetched nothing"
    leading.registered(2, 20, 2.0)
    assert leading.followers[2].log_end_offset == -1
    leading.fetched(2, 20, 7, 3.0)
    leading.registered(2, 20, 4.0)
    assert leading.wanted_isr(7, 4.0, LAG, live(1, 2)) == (1, 2)


def test_fetches_of_an_earlier_registration_are_rejected() -> None:
    leading = Leadership(1, partition((1,)), 7, 0.0)
    assert leading.fetched(2, 20, 0, 1.0)
    assert not leading.fetched(2, 19, 7, 2.0)
    assert not leading.fetched(2, -1, 7, 2.0)
    assert leading.followers[2].log_end_offset == 0


fetches = st.lists(st.tuples(st.sampled_from([2, 3]), st.integers(0, 30), st.integers(0, 5)), max_size=40)


@given(fetches, st.sampled_from([(1, 2, 3), (1, 2), (1,)]))
def test_the_high_watermark_is_never_beyond_a_member_and_never_goes_back(
    steps: list[tuple[int, int, int]], isr: tuple[int, ...]
) -> None:
    leading = Leadership(1, partition(isr), 0, 0.0)
    mark, reached = 0, {2: 0, 3: 0}
    for now, (node, offset, more) in enumerate(steps):
        leading.log_end += more
        offset = max(reached[node], min(offset, leading.log_end))
        reached[node] = offset
        leading.fetched(node, node * 10, offset, float(now))
        after = leading.high_watermark(mark)
        assert after >= mark
        assert all(after <= reached[other] for other in isr if other != 1)
        assert after <= leading.log_end
        mark = after
