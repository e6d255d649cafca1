"""ACLs and users of three brokers: what one broker stores, all enforce, also after restarts and failover."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_client import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclResourceType,
    Admin,
    Consumer,
    NewTopic,
    Producer,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from barnabas_client.errors import AuthenticationFailedError
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.certificates import Authority
from tests.cluster.harness import Brokers, Node, eventually

pytestmark = pytest.mark.cluster

LIMIT: Final = 120
ADMIN, ADA, EVE = ("admin", "s3cret-admin"), ("ada", "lovelace-s3cret"), ("eve", "s3cret-of-eve")
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE = AclOperation.READ, AclOperation.WRITE
#: What ada may do.
ACLS: Final = (
    AclBinding("User:ada", WRITE, TOPIC, "orders"),
    AclBinding("User:ada", READ, TOPIC, "orders"),
    AclBinding("User:ada", READ, GROUP, "billing-", AclPatternType.PREFIXED),
)


class Cluster:
    """Three brokers with mutual TLS among them; clients log in with SCRAM over TLS."""

    def __init__(self, brokers: Brokers, authority: Authority) -> None:
        self.brokers, self._authority = brokers, authority

    async def start(self, password: Path) -> None:
        for node_id in (1, 2, 3):
            file = self._authority.issue(f"b{node_id}", "127.0.0.1", "localhost", common_name=f"broker-{node_id}")
            node = self.brokers.add(
                node_id,
                f"ssl.keystore.location={file}",
                f"ssl.truststore.location={self._authority.trust}",
                # The first one is for the harness, which asks for metadata without a login.
                "listeners=PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CLIENTS:SASL_SSL",
                "inter.broker.listener.name=INTERNAL",
                "listener.name.internal.ssl.client.auth=required",
                "ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/,DEFAULT",
                "sasl.enabled.mechanisms=SCRAM-SHA-512",
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users=User:admin;User:broker-1;User:broker-2;User:broker-3",
                "min.insync.replicas=2",
                "offsets.topic.replication.factor=3",
                "offsets.topic.num.partitions=3",
                "group.initial.rebalance.delay.ms=0",
            )
            node.flags = ("--add-user", f"admin={password}")
            node.launch()
        for node in self.brokers.running:
            await node.serving()
        await self.brokers.live(3)

    def as_user(self, user: tuple[str, str], *nodes: Node) -> dict[str, Any]:
        """The arguments of a client."""
        return {
            "bootstrap_servers": ",".join(map(clients_address, nodes or self.brokers.running)),
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self._authority.trust),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": user[0],
            "sasl_plain_password": user[1],
        }


def clients_address(node: Node) -> str:
    """The listener for clients of a broker's last start, by its log."""
    return node.output.read_text().rpartition("listeners=")[2].partition("CLIENTS://")[2].split(",")[0].split()[0]


def found_in_files(folder: Path, secrets: list[str]) -> list[Path]:
    """The files of the brokers that have a secret in plain text."""
    files = [file for file in folder.glob("node-*/**/*") if file.is_file()]
    assert files
    return [file for file in files if any(secret.encode() in file.read_bytes() for secret in secrets)]


async def refusal(action: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await action
    return raised.value.code


async def write(login: dict[str, Any], topic: str, value: bytes) -> None:
    async with Producer(**login, acks="all") as producer:
        await producer.send_and_wait(topic, value)


async def read(login: dict[str, Any], topic: str, group: str, count: int) -> list[bytes | None]:
    async with Consumer(topic, group_id=group, auto_offset_reset="earliest", **login) as consumer:
        return [(await consumer.getone()).value for _ in range(count)]


async def read_by_pattern(login: dict[str, Any], pattern: str, group: str) -> str:
    async with Consumer(group_id=group, auto_offset_reset="earliest", **login) as consumer:
        consumer.subscribe(pattern=pattern)
        return (await consumer.getone()).topic


async def check_enforced(cluster: Cluster, node: Node, number: int) -> None:
    """Check on one broker what ada may do, and eve may not."""
    ada, eve = cluster.as_user(ADA, node), cluster.as_user(EVE, node)
    await write(ada, "orders", b"order")
    assert await read(ada, "orders", f"billing-{number}", 1) == [b"order"]
    assert await read_by_pattern(ada, "orders|secrets", f"billing-pattern-{number}") == "orders"
    assert await refusal(write(ada, "secrets", b"x")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await refusal(read(ada, "secrets", f"billing-{number}", 1)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await refusal(read(ada, "orders", "another", 1)) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert await refusal(write(eve, "orders", b"x")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # Whether the topic exists is not said.
    assert await refusal(write(eve, "no-such-topic", b"x")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(AuthenticationFailedError):
        await Producer(**cluster.as_user(("ada", "wrong"), node)).start()
    with pytest.raises(AuthenticationFailedError):
        await Producer(**cluster.as_user(("mallory", "lovelace"), node)).start()


async def test_acls_and_users_of_three_brokers(cluster: Brokers, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(f"{ADMIN[1]}\n")
    three = Cluster(cluster, Authority(tmp_path))
    await three.start(password)
    async with asyncio.timeout(LIMIT):
        async with Admin(**three.as_user(ADMIN, cluster[1])) as admin:
            await admin.create_topics([NewTopic(name, 3, 3) for name in ("orders", "secrets")])
            for user, secret in (ADA, EVE):
                credential = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, secret)
                await admin.alter_user_scram_credentials([credential])
        # Through the second broker.
        async with Admin(**three.as_user(ADMIN, cluster[2])) as admin:
            assert all(each.error is None for each in await admin.create_acls(ACLS))

        async def everywhere() -> bool:
            for node in cluster.running:
                async with Admin(**three.as_user(ADMIN, node)) as admin:
                    if len(await admin.describe_acls(AclBindingFilter())) != len(ACLS):
                        return False
            return True

        await eventually("the ACLs are known to all", everywhere)
        for node in cluster.running:
            await check_enforced(three, node, node.node_id)

        def all_in_sync(metadata: Any) -> bool:
            return all(sorted(each.isr_nodes) == [1, 2, 3] for topic in metadata.topics for each in topic.partitions)

        # Brokers are super users: without it they could not follow each other.
        await cluster.agree("all replicas are in sync", all_in_sync, "orders", "secrets")

        # The one that stored the ACLs is gone: the others lead its partitions and coordinate its groups.
        cluster[2].kill()
        await cluster.live(2)
        for node in cluster.running:
            await check_enforced(three, node, 10 + node.node_id)
        cluster[2].launch()
        await cluster[2].serving()
        await cluster.live(3)
        await check_enforced(three, cluster[2], 22)

        # All of them restart.
        for node in cluster.running:
            await node.stop()
        for node in cluster.nodes.values():
            node.launch()
        for node in cluster.nodes.values():
            await node.serving()
        await cluster.live(3)
        await check_enforced(three, cluster[3], 33)

        # What is taken away is taken away everywhere.
        async with Admin(**three.as_user(ADMIN, cluster[3])) as admin:
            gone = await admin.delete_acls([AclBindingFilter(principal="User:ada", operation=WRITE)])
            assert [each.acl.operation for each in gone] == [WRITE]

        async def refused() -> bool:
            try:
                # An idempotent producer would be refused before: it may write to no topic.
                await write({**three.as_user(ADA, cluster[1]), "enable_idempotence": False}, "orders", b"x")
            except KafkaError as error:
                return error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return False

        await eventually("the first broker refuses it", refused)
    logs = cluster.logs()
    assert "ACL created" in logs
    assert "principal=User:admin" in logs
    for _, secret in (ADMIN, ADA, EVE):
        assert secret not in logs
    assert found_in_files(tmp_path, [secret for _, secret in (ADMIN, ADA, EVE)]) == []
