"""Assignors inside of a member: what they receive, and racks."""

from barnabas_client.assignors import CooperativeStickyAssignor, MemberSubscription, PartitionCounts, StickyAssignor
from barnabas_client.assignors.user_data import decode_claim, encode_generation
from barnabas_client.membership.effects import Assign, CountPartitions
from barnabas_client.membership.member import MemberConfig
from barnabas_client.membership.member_data import decode_subscription
from barnabas_client.network.metadata import Cluster
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas_protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.client.member_driver import Driver, partitions


def stable(driver: Driver, protocol: str) -> MemberSubscription:
    """Bring the member to its first assignment and then to its second join; returns the subscription it sends there."""
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(protocol=protocol)
    driver.count()
    driver.sync(partitions(0, 2))
    driver.subscribe("t", "u")
    driver.release()
    return decode_subscription(driver.join(protocol=protocol, generation=2).protocols[0].metadata)


def test_sticky_sends_its_last_assignment() -> None:
    seen = stable(Driver(assignors=(StickyAssignor(),)), "sticky")
    assert seen.owned == ()
    claim = decode_claim(seen.user_data)
    assert (frozenset(claim.partitions), claim.generation) == (partitions(0, 2), 1)


def test_cooperative_sticky_sends_its_owned_partitions() -> None:
    seen = stable(Driver(assignors=(CooperativeStickyAssignor(),)), "cooperative-sticky")
    assert (frozenset(seen.owned), seen.generation) == (partitions(0, 2), 1)
    assert seen.user_data == encode_generation(1)


def in_rack(rack: str) -> PartitionCounts:
    return PartitionCounts({"t": 4}, {"t": [frozenset({rack})] * 4})


def led_from(rack: str | None) -> Driver:
    """A leader and only member, in `rack`, that knows the partitions in rack x."""
    driver = Driver(MemberConfig(group_id="g", rack=rack))
    driver.subscribe()
    driver.find()
    driver.release()
    join = driver.sent(JoinGroupRequest)
    assert isinstance(join.request, JoinGroupRequest)
    me = JoinGroupResponseMember(member_id="m1", metadata=join.request.protocols[0].metadata)
    response = JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="m1",
        member_id="m1",
        members=[me],
    )
    driver.happened(driver.machine.answered(join.ticket, response, driver.now))
    driver.happened(driver.machine.counted(driver.take(CountPartitions).ticket, in_rack("x"), driver.now))
    driver.sync(partitions(0, 1, 2, 3))
    driver.take(Assign)
    return driver


def test_the_leader_rejoins_when_replicas_move_to_other_racks() -> None:
    driver = led_from("x")
    driver.happened(driver.machine.metadata_changed(in_rack("x"), driver.now))
    assert driver.quiet()
    driver.happened(driver.machine.metadata_changed(in_rack("y"), driver.now))
    driver.release()
    assert "partitions of t changed" in (driver.join().reason or "")


def test_racks_of_replicas_do_not_matter_without_racks_of_members() -> None:
    driver = led_from(None)
    driver.happened(driver.machine.metadata_changed(in_rack("y"), driver.now))
    assert driver.quiet()


def test_a_cluster_knows_the_racks_of_replicas() -> None:
    replicas = [[1, 2], [2, 3], [3, 9]]
    topic = MetadataResponseTopic(
        error_code=0,
        name="t",
        partitions=[
            MetadataResponsePartition(
                error_code=0, partition_index=number, leader_id=1, replica_nodes=nodes, isr_nodes=nodes
            )
            for number, nodes in enumerate(replicas)
        ],
    )
    brokers = [
        MetadataResponseBroker(node_id=node, host="h", port=9092, rack=rack)
        for node, rack in {1: "x", 2: "y", 3: None}.items()
    ]
    counts = Cluster().updated(MetadataResponse(brokers=brokers, topics=[topic]), ()).counts(["t", "u"])
    assert counts == {"t": 3}
    assert counts.racks == {"t": [frozenset("xy"), frozenset("y"), frozenset()]}
