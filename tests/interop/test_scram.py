"""Users of SCRAM, by programs of others: kafka-configs, the console clients, kafkajs and librdkafka."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.certificates import Authority
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import run_tool
from tests.interop.round_trips import by_kafkajs
from tests.interop.server import free_port
from tests.interop.test_kafkajs import kafkajs
from tests.kafka_python import kafka

__all__ = ["kafkajs"]

pytestmark = [pytest.mark.interop, pytest.mark.together, pytest.mark.timeout(180)]

#: Seconds that a program may take.
LIMIT: Final = 90
MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class ScramBroker:
    """A broker whose clients log in over TLS as ada, and the files of a client."""

    def __init__(self, plain: str, servers: str, again: str, trust: Path) -> None:
        self.plain = plain
        self.servers = servers
        #: Where sessions are short.
        self.again = again
        self.trust = trust

    def java(self, folder: Path, mechanism: str, user: str, password: str) -> str:
        """The file with the configuration of a Java client."""
        file = folder / "client.properties"
        file.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.trust}\n"
            f'sasl.jaas.config={MODULE} required username="{user}" password="{password}";\n'
        )
        return str(file)


@pytest.fixture(scope="module")
def scram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScramBroker]:
    folder = tmp_path_factory.mktemp("scram")
    authority = Authority(folder)
    port, sasl_port, again = free_port(), free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{sasl_port},AGAIN://127.0.0.1:{again}",
        "advertised.listeners": f"SASL_SSL://localhost:{sasl_port},AGAIN://localhost:{again}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,AGAIN:SASL_SSL",
        "ssl.keystore.location": str(authority.issue("broker")),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.again.connections.max.reauth.ms": "3000",
    }
    with BarnabasBroker(settings, port=port):
        yield ScramBroker(f"127.0.0.1:{port}", f"localhost:{sasl_port}", f"localhost:{again}", authority.trust)


def configs(servers: str, *words: str, config: str | None = None) -> str:
    """Run kafka-configs for users."""
    options = () if config is None else ("--command-config", config)
    done = run_tool(
        "kafka-configs", "--bootstrap-server", servers, *options, "--entity-type", "users", *words, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
def test_kafka_configs_and_the_console_clients(scram: ScramBroker, fresh: str, tmp_path: Path) -> None:
    for mechanism, iterations in (("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 4096)):
        change = f"{mechanism}=[iterations={iterations},password=love lace]"
        configs(scram.plain, "--alter", "--add-config", change, "--entity-name", "ada")
        config = scram.java(tmp_path, mechanism, "ada", "love lace")
        options = ("--bootstrap-server", scram.servers, "--command-config", config, "--topic", f"{fresh}-{mechanism}")
        done = run_tool("kafka-console-producer", *options, timeout=LIMIT, stdin="one\ntwo\n")
        assert done.returncode == 0, done.stdout + done.stderr
        done = run_tool("kafka-console-consumer", *options, "--from-beginning", "--max-messages", "2", timeout=LIMIT)
        assert done.stdout.split() == ["one", "two"], done.stderr
    shown = configs(scram.servers, "--describe", "--entity-name", "ada", config=config)
    assert "SCRAM-SHA-256=iterations=8192" in shown
    assert "SCRAM-SHA-512=iterations=4096" in shown
    configs(scram.plain, "--alter", "--delete-config", "SCRAM-SHA-256", "--entity-name", "ada")
    assert "SCRAM-SHA-256" not in configs(scram.plain, "--describe", "--entity-name", "ada")
    for user, password in (("ada", "wrong"), ("eve", "love lace")):
        config = scram.java(tmp_path, "SCRAM-SHA-512", user, password)
        connect = ("--bootstrap-server", scram.servers, "--command-config", config)
        done = run_tool("kafka-topics", *connect, "--list", timeout=LIMIT)
        assert done.returncode == 1
        assert (
            "SaslAuthenticationException: Authentication failed during authentication due to invalid credentials with "
            "SASL mechanism SCRAM-SHA-512" in done.stdout + done.stderr
        )


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_java_logs_in_again_while_it_produces(scram: ScramBroker, fresh: str, tmp_path: Path, mechanism: str) -> None:
    configs(scram.plain, "--alter", "--add-config", f"{mechanism}=[password=curie]", "--entity-name", "marie")
    config = scram.java(tmp_path, mechanism, "marie", "curie")
    # Ten seconds, and three sessions.
    words = ("--num-records", "1000", "--record-size", "10", "--throughput", "100", "--topic", fresh)
    done = run_tool(
        "kafka-producer-perf-test",
        *(*words, "--bootstrap-server", scram.again, "--command-config", config),
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1000 records sent" in done.stdout
    assert "Exception" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafkajs(kafkajs: Path, scram: ScramBroker, fresh: str, mechanism: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=scram.plain)
    change = kafka.admin.UserScramCredentialUpsertion("grace", mechanism, "hopper")
    admin.alter_user_scram_credentials([change])
    admin.close()
    security = {
        "ssl": {"ca": [scram.trust.read_text()]},
        "sasl": {"mechanism": mechanism.lower(), "username": "grace", "password": "hopper"},
    }
    by_kafkajs(kafkajs, scram.servers, fresh, security, LIMIT)


def test_librdkafka_changes_users(scram: ScramBroker) -> None:
    admin = AdminClient({"bootstrap.servers": scram.plain})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 10_000)
    changes = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alan", info, b"turing")])
    assert changes["alan"].result(LIMIT) is None
    login: dict[str, str | int | float | bool] = {
        "bootstrap.servers": scram.servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(scram.trust),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alan",
        "sasl.password": "turing",
    }
    assert AdminClient(login).list_topics(timeout=LIMIT).brokers
    described = admin.describe_user_scram_credentials(["alan"])
    assert isinstance(described, dict)
    found = described["alan"].result(LIMIT)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 10_000)
    ]
    gone = admin.alter_user_scram_credentials([UserScramCredentialDeletion("alan", ScramMechanism.SCRAM_SHA_256)])
    assert gone["alan"].result(LIMIT) is None
