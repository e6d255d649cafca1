"""The transactions that `read_committed` consumers wait for, as the lag report names them."""

from barnabas_broker.testing import Broker
from barnabas_client import Admin, Producer, TopicPartition
from barnabas_client.structs import OffsetAndMetadata
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.cli.lag import open_transactions
from tests.pipeline.support import run


def test_a_group_that_waits_for_a_transaction(broker: Broker, topic: str) -> None:
    servers, place = broker.bootstrap_servers, TopicPartition(topic, 0)
    remote = remote_for(Settings.of({"kafka.bootstrap.servers": servers}))

    async def work() -> None:
        async with (
            Admin(bootstrap_servers=servers) as admin,
            Producer(bootstrap_servers=servers, transactional_id=f"writer of {topic}") as producer,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"open", partition=0)
            groups = [f"waits {topic}"]
            await admin.alter_consumer_group_offsets(groups[0], {place: OffsetAndMetadata(0)})
            (found,) = remote.run(open_transactions(remote, groups))[groups[0]]
            assert found.transactional_id == f"writer of {topic}"
            assert found.text.startswith(
                f"{topic}-0: read_committed consumers wait at offset 0 for an open transaction"
            )
            await producer.abort_transaction()
            assert remote.run(open_transactions(remote, groups)) == {}
            assert remote.run(open_transactions(remote, [])) == {}

    run(work())
