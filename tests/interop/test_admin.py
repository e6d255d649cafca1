"""Topics and configuration, administered with each client library."""

import pytest

from tests.interop.clients.base import Client, Code, Partition, Refused
from tests.interop.waiting import ask_until, read

pytestmark = pytest.mark.interop


def test_topics(client: Client, fresh: str) -> None:
    """Create, list and delete topics"""
    admin = client.admin()
    admin.create_topic(fresh, 3)
    ask_until(lambda: admin.topics().get(fresh) == 3, "the new topic")
    with pytest.raises(Refused) as refused:
        admin.create_topic(fresh, 3)
    assert refused.value.code == Code.TOPIC_ALREADY_EXISTS
    admin.delete_topic(fresh)
    ask_until(lambda: fresh not in admin.topics(), "the topic gone")
    with pytest.raises(Refused) as refused:
        admin.delete_topic(fresh)
    assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_recreated_topic(client: Client, fresh: str) -> None:
    """A topic deleted and created again is empty"""
    admin = client.admin()
    for _ in range(2):
        admin.create_topic(fresh, 1)
        # Closed before the topic goes, because a producer that asks for it would create it again.
        with client.sender() as sender, client.reader() as reader:
            sender.send(fresh, b"value")
            assert [one.offset for one in sender.flush()] == [0]
            reader.assign(Partition(fresh, 0))
            assert len(read(reader, 1)) == 1
        admin.delete_topic(fresh)
        ask_until(lambda: fresh not in admin.topics(), "the topic gone")


def test_partitions(client: Client, fresh: str) -> None:
    """Add partitions; removing them is refused"""
    admin = client.admin()
    admin.create_topic(fresh, 2)
    admin.add_partitions(fresh, 5)
    ask_until(lambda: admin.topics().get(fresh) == 5, "five partitions")
    with pytest.raises(Refused) as refused:
        admin.add_partitions(fresh, 3)
    assert refused.value.code == Code.INVALID_PARTITIONS


def test_topic_config(client: Client, fresh: str) -> None:
    """Set, read and change a topic's configuration"""
    admin = client.admin()
    admin.create_topic(fresh, 1, {"retention.ms": "3600000"})
    config = admin.topic_config(fresh)
    assert config["retention.ms"] == "3600000"
    assert config["cleanup.policy"] == "delete"
    admin.set_topic_config(fresh, "retention.ms", "7200000")
    ask_until(lambda: admin.topic_config(fresh)["retention.ms"] == "7200000", "the new value")
    with pytest.raises(Refused) as refused:
        admin.create_topic(f"{fresh}-2", 1, {"retention.ms": "soon"})
    assert refused.value.code == Code.INVALID_CONFIG


def test_broker_config(client: Client) -> None:
    """Read a broker's configuration"""
    admin = client.admin()
    (node,) = admin.nodes()
    config = admin.broker_config(node)
    assert config["group.min.session.timeout.ms"] == "6000"
    assert config["auto.create.topics.enable"] == "true"
