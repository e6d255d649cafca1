"""Each client library over TLS, and logged in."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from barnabas_broker.security.sasl import PLAIN_MODULE
from tests.certificates import Authority
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.clients.base import LIMIT, Client, Login, Mechanism, Partition
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server, free_port
from tests.interop.waiting import read
from tests.sampling import slow

pytestmark = [pytest.mark.interop, pytest.mark.together]

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Listeners:
    """The addresses of a server with TLS, without and with a login, and the certificates to trust."""

    def __init__(self, tls: str, sasl: str, trust: str) -> None:
        self.tls = tls
        self.sasl = sasl
        self.trust = trust


@pytest.fixture(scope="module", params=[BarnabasBroker, pytest.param(ApacheKafka, marks=pytest.mark.kafka)])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Listeners]]:
    if request.param is ApacheKafka:
        request.getfixturevalue("needs_jars")
    authority = Authority(tmp_path_factory.mktemp("logins"))
    port, tls, sasl = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://localhost:{tls},SASL_SSL://localhost:{sasl}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker")),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ada="lovelace";',
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{MODULE} required;",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{MODULE} required;",
    }
    with request.param(settings, port=port) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion("ada", ScramCredentialInfo(mechanism, 4096), b"lovelace")
            for done in admin.alter_user_scram_credentials([credential]).values():
                done.result(LIMIT)
        yield server, Listeners(f"localhost:{tls}", f"localhost:{sasl}", str(authority.trust))


@pytest.fixture
def server(secured: tuple[Server, Listeners]) -> Server:
    """The server of the fixture `client`."""
    return secured[0]


@pytest.fixture
def listeners(secured: tuple[Server, Listeners]) -> Listeners:
    return secured[1]


def _round_trip(client: Client, topic: str) -> None:
    client.admin().create_topic(topic, 1)
    sender = client.sender()
    values = [b"%d" % number for number in range(100)]
    for value in values:
        sender.send(topic, value)
    sender.flush()
    reader = client.reader(topic)
    reader.subscribe(topic)
    assert [record.value for record in read(reader, 100)] == values
    reader.commit({Partition(topic, 0): 100})


def test_tls(client: Client, listeners: Listeners, fresh: str) -> None:
    """TLS"""
    _round_trip(client.at(listeners.tls, Login(listeners.trust)), fresh)


@pytest.mark.parametrize("mechanism", [slow("PLAIN"), slow("SCRAM-SHA-256"), "SCRAM-SHA-512"])
def test_sasl(client: Client, listeners: Listeners, fresh: str, mechanism: Mechanism) -> None:
    """Logins over TLS: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"""
    _round_trip(client.at(listeners.sasl, Login(listeners.trust, mechanism, "ada", "lovelace")), fresh)
