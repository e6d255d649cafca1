"""Consumer groups with each client library."""

import pytest

from tests.interop.clients.base import Admin, Assignor, Client, Code, Partition, Reader, Record, Refused
from tests.interop.waiting import Members, read, read_until
from tests.sampling import slow

pytestmark = pytest.mark.interop


def _fill(client: Client, topic: str, partitions: int, each: int) -> list[Partition]:
    client.admin().create_topic(topic, partitions)
    sender = client.sender()
    for number in range(partitions * each):
        sender.send(topic, b"%d" % number, partition=number % partitions)
    sender.flush()  # afterwards every partition has a leader that is in the metadata
    return [Partition(topic, number) for number in range(partitions)]


def _member(client: Client, group: str, topic: str) -> Reader:
    reader = client.reader(group)
    reader.subscribe(topic)
    return reader


def test_commit(client: Client, fresh: str) -> None:
    """Manual commit, and a later consumer that resumes from it"""
    (at,) = _fill(client, fresh, 1, 100)
    first = _member(client, fresh, fresh)
    assert len(read(first, 100)) == 100
    assert first.committed(at) is None
    first.commit({at: 60})
    assert first.committed(at) == 60
    first.close()
    second = _member(client, fresh, fresh)
    assert [record.offset for record in read(second, 40)] == list(range(60, 100))


def test_auto_commit(client: Client, fresh: str) -> None:
    """Automatic commits"""
    (at,) = _fill(client, fresh, 1, 100)
    reader = client.reader(fresh, auto_commit=True)
    reader.subscribe(fresh)
    read(reader, 100)
    read_until(reader, lambda: reader.committed(at) == 100, "the automatic commit")


@pytest.mark.parametrize("assignor", ["range", slow("roundrobin"), "cooperative-sticky"])
def test_assignors(client: Client, fresh: str, members: Members, assignor: Assignor) -> None:
    """Rebalance when members join and leave: range, round robin, cooperative sticky"""
    partitions = _fill(client, fresh, 6, 1)
    readers = [client.reader(fresh, assignor=assignor) for _ in range(3)]
    members.add(*readers[:2], topic=fresh)
    members.wait_shared(partitions)
    members.add(readers[2], topic=fresh)
    members.wait_shared(partitions)
    members.remove(readers[0])
    members.wait_shared(partitions)


def test_pattern(client: Client, fresh: str) -> None:
    """Subscription by pattern, including topics created later"""
    _fill(client, f"{fresh}-a", 1, 10)
    _fill(client, f"other-{fresh}", 1, 10)
    reader = client.reader(fresh)
    reader.subscribe_pattern(f"{fresh}-.*")
    assert {record.partition.topic for record in read(reader, 10)} == {f"{fresh}-a"}
    _fill(client, f"{fresh}-b", 1, 10)
    later: list[Record] = []  # nothing was committed: after the rebalance it reads records again
    read_until(reader, lambda: f"{fresh}-b" in {record.partition.topic for record in later}, "the new topic", later)
    assert {record.partition.topic for record in later} <= {f"{fresh}-a", f"{fresh}-b"}


def test_more_partitions(client: Client, operator: Admin, fresh: str) -> None:
    """Partitions added to a subscribed topic are consumed"""
    _fill(client, fresh, 1, 10)
    reader = _member(client, fresh, fresh)
    read(reader, 10)
    operator.add_partitions(fresh, 3)
    read_until(reader, lambda: len(reader.assignment()) == 3, "three partitions")
    sender = client.sender()
    for number in range(3):
        sender.send(fresh, b"more", partition=number)
    sender.flush()
    got: list[Record] = []
    read_until(reader, lambda: {0, 1, 2} <= {one.partition.number for one in got if one.value == b"more"}, "all", got)


def test_static_member(client: Client, operator: Admin, fresh: str, members: Members) -> None:
    """A static member restarts without a rebalance"""
    partitions = _fill(client, fresh, 4, 1)
    one, two = client.reader(fresh, instance_id="one"), client.reader(fresh, instance_id="two")
    for reader in (one, two):
        members.add(reader, topic=fresh)
        members.wait_shared(partitions)
    mine, other = members.assigned(two), members.assigned(one)
    # The other member no longer polls, so a rebalance could not complete: a new assignment means that none was needed.
    members.close()
    two.close()
    again = client.reader(fresh, instance_id="two")
    again.subscribe(fresh)
    read_until(again, lambda: bool(again.assignment()), "the assignment of the closed member")
    assert again.assignment() == mine
    assert one.assignment() == other
    found = operator.describe_group(fresh)
    assert found.state == "STABLE"
    assert {member.instance_id: member.partitions for member in found.members} == {"one": other, "two": mine}


def test_describe(client: Client, fresh: str) -> None:
    """List and describe groups, with their offsets"""
    partitions = _fill(client, fresh, 2, 10)
    admin = client.admin()
    reader = client.reader(fresh, client_id="somebody")
    reader.subscribe(fresh)
    read(reader, 20)
    reader.commit(dict.fromkeys(partitions, 7))
    assert fresh in admin.groups()
    found = admin.describe_group(fresh)
    assert found.state == "STABLE"
    assert [(member.client_id, member.partitions) for member in found.members] == [("somebody", frozenset(partitions))]
    assert admin.group_offsets(fresh) == dict.fromkeys(partitions, 7)
    reader.close()
    assert admin.describe_group(fresh).state == "EMPTY"
    assert admin.group_offsets(fresh) == dict.fromkeys(partitions, 7)


def test_offsets_set_from_outside(client: Client, fresh: str) -> None:
    """Set the offsets of an empty group"""
    (at,) = _fill(client, fresh, 1, 100)
    client.admin().set_group_offsets(fresh, {at: 90})
    reader = _member(client, fresh, fresh)
    assert [record.offset for record in read(reader, 10)] == list(range(90, 100))


def test_delete_group(client: Client, fresh: str) -> None:
    """Delete a group; refused while it has members"""
    (at,) = _fill(client, fresh, 1, 10)
    admin = client.admin()
    reader = _member(client, fresh, fresh)
    read(reader, 10)
    reader.commit({at: 10})
    with pytest.raises(Refused) as refused:
        admin.delete_group(fresh)
    assert refused.value.code == Code.NON_EMPTY_GROUP
    reader.close()
    admin.delete_group(fresh)
    assert fresh not in admin.groups()
    with pytest.raises(Refused) as refused:
        admin.delete_group(fresh)
    assert refused.value.code == Code.GROUP_ID_NOT_FOUND


def test_by_hand(client: Client, fresh: str) -> None:
    """Manually assigned partitions, with committed offsets"""
    partitions = _fill(client, fresh, 2, 10)
    reader = client.reader(fresh)
    reader.assign(*partitions)
    read(reader, 20)
    reader.commit({partitions[0]: 3, partitions[1]: 8})
    reader.close()
    successor = client.reader(fresh)
    successor.assign(*partitions)
    got = sorted((record.partition.number, record.offset) for record in read(successor, 9))
    assert got == [(0, offset) for offset in range(3, 10)] + [(1, 8), (1, 9)]
