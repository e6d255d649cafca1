"""Three brokers that prove to each other who they are: by certificates, by SCRAM and by PLAIN, over TLS."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_client import Admin, Consumer, NewTopic, Producer, ScramMechanism, UserScramCredentialUpsertion
from barnabas_client.errors import AuthenticationFailedError
from barnabas_protocol.messages.metadata import MetadataResponse
from tests.certificates import Authority
from tests.cluster.harness import Brokers

pytestmark = pytest.mark.cluster

COUNT: Final = 300
LIMIT: Final = 60
PLAIN_USERS: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="s3cret" '
    'user_broker="s3cret" user_ada="lovelace";'
)
SCRAM_USER: Final = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="s3cret";'
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def start(cluster: Brokers, authority: Authority, *settings: str, flags: tuple[str, ...] = ()) -> str:
    """Start three brokers; the address at which clients log in with SCRAM over TLS."""
    for node_id in (1, 2, 3):
        file = authority.issue(f"broker-{node_id}", "127.0.0.1", "localhost", common_name=f"broker-{node_id}")
        node = cluster.add(
            node_id,
            f"ssl.keystore.location={file}",
            f"ssl.truststore.location={authority.trust}",
            "listeners=PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
            "inter.broker.listener.name=INTERNAL",
            "listener.name.clients.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
            "min.insync.replicas=3",
            *settings,
        )
        node.flags = flags
        node.launch()
    for node in cluster.running:
        await node.serving()
    await cluster.live(3)
    return clients_address(cluster[1].output.read_text())


def clients_address(log: str) -> str:
    """The address of the listener for clients, by the log of a broker."""
    return log.partition("listeners=")[2].partition("CLIENTS://")[2].split(",")[0].split()[0]


async def replicate(cluster: Brokers, servers: str, authority: Authority) -> None:
    """Write and read as a user, with all replicas in sync."""
    login: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(authority.trust),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ada",
        "sasl_plain_password": "lovelace",
    }
    plain = f"127.0.0.1:{cluster[1].port}"
    async with asyncio.timeout(LIMIT):
        async with Admin(bootstrap_servers=plain) as admin:
            users = [UserScramCredentialUpsertion("ada", mechanism, "lovelace") for mechanism in ScramMechanism]
            for user in users:
                await admin.alter_user_scram_credentials([user])
        async with Admin(**login) as admin:
            await admin.create_topics([NewTopic("events", num_partitions=3, replication_factor=3)])
            assert [each.user for each in await admin.describe_user_scram_credentials(["ada"])] == ["ada"]
        async with Producer(**login, acks="all") as producer:
            for number in range(COUNT):
                await producer.send("events", str(number).encode(), partition=number % 3)
            await producer.flush()
        read: set[bytes | None] = set()
        async with Consumer("events", group_id="readers", auto_offset_reset="earliest", **login) as consumer:
            while len(read) < COUNT:
                read.add((await consumer.getone()).value)
        with pytest.raises(AuthenticationFailedError):
            await Producer(**{**login, "sasl_plain_password": "wrong"}).start()

    def all_in_sync(metadata: MetadataResponse) -> bool:
        return all(sorted(each.isr_nodes) == [1, 2, 3] for each in metadata.topics[0].partitions)

    await cluster.agree("all replicas are in sync", all_in_sync, "events")


async def test_brokers_with_certificates(cluster: Brokers, authority: Authority) -> None:
    servers = await start(
        cluster,
        authority,
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CLIENTS:SASL_SSL",
        "listener.name.internal.ssl.client.auth=required",
    )
    await replicate(cluster, servers, authority)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
async def test_brokers_that_log_in(cluster: Brokers, authority: Authority, tmp_path: Path, mechanism: str) -> None:
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    servers = await start(
        cluster,
        authority,
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL,CLIENTS:SASL_SSL",
        f"listener.name.internal.sasl.enabled.mechanisms={mechanism}",
        f"sasl.mechanism.inter.broker.protocol={mechanism}",
        f"listener.name.internal.plain.sasl.jaas.config={PLAIN_USERS}",
        f"listener.name.internal.scram-sha-512.sasl.jaas.config={SCRAM_USER}",
        # They log in again while they replicate.
        "listener.name.internal.connections.max.reauth.ms=2000",
        flags=("--add-user", f"broker={password}"),
    )
    await replicate(cluster, servers, authority)
    logs = cluster.logs()
    failed = [line for line in logs.splitlines() if "authentication failed" in line]
    assert failed
    assert all("listener=CLIENTS" in line for line in failed)
    assert "has not authenticated again in time" not in logs
    assert "s3cret" not in logs
    assert "lovelace" not in logs
