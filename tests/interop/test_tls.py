"""Clients of others over TLS with certificates: librdkafka, aiokafka, kafka-python, kafkajs, Kafka's own programs; and
the names of principals as Apache Kafka writes them."""

import asyncio
import base64
import datetime
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiokafka
import aiokafka.helpers
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from barnabas_broker.security.principals import PrincipalRules
from barnabas_broker.security.sasl import PLAIN_MODULE
from barnabas_broker.security.x509_names import subject
from barnabas_client import Producer
from barnabas_client.errors import AuthenticationFailedError
from tests.certificates import Authority
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import ApacheKafka, run_tool
from tests.interop.round_trips import by_aiokafka, by_kafkajs
from tests.interop.server import free_port
from tests.interop.test_kafkajs import kafkajs
from tests.kafka_python import kafka

__all__ = ["kafkajs"]

pytestmark = [pytest.mark.interop, pytest.mark.together, pytest.mark.timeout(180)]

#: Seconds that a client may take.
LIMIT: Final = 60
LINES: Final = [f"line {number}".encode() for number in range(500)]
PROGRAM: Final = Path(__file__).with_name("java") / "Principals.java"


class TlsBroker:
    """A broker with a listener for TLS, and the files of a client."""

    def __init__(self, broker: BarnabasBroker, port: int, authority: Authority, client: Path) -> None:
        self.broker = broker
        self.servers = f"localhost:{port}"
        self.authority = authority
        self.client = client

    @property
    def librdkafka(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.trust),
            "ssl.certificate.location": str(self.client),
            "ssl.key.location": str(self.client),
        }

    @property
    def java(self) -> str:
        return (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
            f"ssl.truststore.location={self.authority.trust}\nssl.keystore.location={self.client}\n"
        )


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    port, tls_port = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},EXTERNAL://127.0.0.1:{tls_port}",
        "advertised.listeners": f"EXTERNAL://localhost:{tls_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SSL",
        "listener.name.external.ssl.keystore.location": authority.issue("broker"),
        "listener.name.external.ssl.truststore.location": authority.trust,
        "listener.name.external.ssl.client.auth": "required",
    }
    with BarnabasBroker({key: str(value) for key, value in settings.items()}, port=port) as broker:
        yield TlsBroker(broker, tls_port, authority, authority.issue("duke", "duke@example.com", common_name="Duke"))


def test_librdkafka(tls: TlsBroker, fresh: str) -> None:
    producer = confluent_kafka.Producer(tls.librdkafka)
    for line in LINES:
        producer.produce(fresh, line)
    assert producer.flush(LIMIT) == 0
    group = {"group.id": fresh, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**tls.librdkafka, **group})
    consumer.subscribe([fresh])
    read = [message.value() for message in consumer.consume(len(LINES), LIMIT)]
    consumer.close()
    assert read == LINES


def test_librdkafka_is_told_why_it_is_refused(tls: TlsBroker) -> None:
    reasons: list[str] = []
    settings: dict[str, Any] = {key: value for key, value in tls.librdkafka.items() if ".location" not in key}
    settings["ssl.ca.location"] = str(tls.authority.trust)
    settings["error_cb"] = lambda error: reasons.append(error.str())
    admin = AdminClient(settings)
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=5)
    admin.poll(1)
    assert any("certificate required" in reason for reason in reasons), reasons
    assert "it has sent no certificate, which ssl.client.auth=required asks for" in tls.broker.server_log.read_text()


async def test_aiokafka(tls: TlsBroker, fresh: str) -> None:
    context = aiokafka.helpers.create_ssl_context(
        cafile=str(tls.authority.trust), certfile=str(tls.client), keyfile=str(tls.client)
    )
    secure = {"bootstrap_servers": tls.servers, "security_protocol": "SSL", "ssl_context": context}
    assert await by_aiokafka(secure, fresh, LINES, LIMIT) == LINES


def test_kafka_python(tls: TlsBroker, fresh: str) -> None:
    secure = {
        "bootstrap_servers": tls.servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(tls.authority.trust),
        "ssl_certfile": str(tls.client),
        "ssl_keyfile": str(tls.client),
    }
    producer = kafka.KafkaProducer(**secure)
    for line in LINES:
        producer.send(fresh, line)
    producer.flush(LIMIT)
    producer.close()
    consumer = kafka.KafkaConsumer(fresh, auto_offset_reset="earliest", consumer_timeout_ms=LIMIT * 1000, **secure)
    # In this order: a consumer that is asked for one more record waits for its timeout.
    read = [record.value for _, record in zip(LINES, consumer, strict=False)]
    consumer.close()
    assert read == LINES


@pytest.mark.slow
def test_kafkajs(kafkajs: Path, tls: TlsBroker, fresh: str) -> None:
    mine = tls.client.read_text()
    secure = {"ca": [tls.authority.trust.read_text()], "cert": mine, "key": mine}
    by_kafkajs(kafkajs, tls.servers, fresh, {"ssl": secure}, LIMIT)


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
def test_programs_of_apache_kafka(tls: TlsBroker, fresh: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(tls.java)

    def run(name: str, *args: str, stdin: str | None = None) -> str:
        option = "--command-config"
        done = run_tool(name, "--bootstrap-server", tls.servers, option, str(config), *args, timeout=90, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("kafka-topics", "--create", "--topic", fresh, "--partitions", "1")
    run("kafka-console-producer", "--topic", fresh, stdin="one\ntwo\n")
    read = run("kafka-console-consumer", "--topic", fresh, "--from-beginning", "--max-messages", "2")
    assert read.split() == ["one", "two"]


# Logins


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a broker whose clients log in over TLS as ada, and the certificates to trust."""
    folder = tmp_path_factory.mktemp("sasl")
    authority = Authority(folder)
    port, sasl_port = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{sasl_port}",
        "advertised.listeners": f"SASL_SSL://localhost:{sasl_port}",
        "ssl.keystore.location": str(authority.issue("broker")),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ada="love;lace";',
    }
    with BarnabasBroker(settings, port=port):
        yield f"localhost:{sasl_port}", authority.trust


def test_librdkafka_logs_in(sasl: tuple[str, Path], fresh: str) -> None:
    servers, trust = sasl
    login: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(trust),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": "love;lace",
    }
    producer = confluent_kafka.Producer(login)
    for line in LINES:
        producer.produce(fresh, line)
    assert producer.flush(LIMIT) == 0
    reasons: list[str] = []
    login |= {"sasl.password": "x", "error_cb": lambda error: reasons.append(error.str())}
    wrong = AdminClient(login)
    with pytest.raises(confluent_kafka.KafkaException):
        wrong.list_topics(timeout=5)
    wrong.poll(1)
    assert any("Invalid username or password" in reason for reason in reasons), reasons


async def test_aiokafka_logs_in(sasl: tuple[str, Path], fresh: str) -> None:
    servers, trust = sasl
    login = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_SSL",
        "ssl_context": aiokafka.helpers.create_ssl_context(cafile=str(trust)),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "ada",
        "sasl_plain_password": "love;lace",
    }
    async with asyncio.timeout(LIMIT), aiokafka.AIOKafkaProducer(**login) as producer:
        await producer.send_and_wait(fresh, b"one")


def test_kafka_python_logs_in(sasl: tuple[str, Path], fresh: str) -> None:
    servers, trust = sasl
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SASL_SSL",
        ssl_cafile=str(trust),
        sasl_mechanism="PLAIN",
        sasl_plain_username="ada",
        sasl_plain_password="love;lace",
    )
    producer.send(fresh, b"one").get(LIMIT)
    producer.close()


@pytest.mark.slow
def test_kafkajs_logs_in(kafkajs: Path, sasl: tuple[str, Path], fresh: str) -> None:
    servers, trust = sasl
    login = {"mechanism": "plain", "username": "ada", "password": "love;lace"}
    by_kafkajs(kafkajs, servers, fresh, {"ssl": {"ca": [trust.read_text()]}, "sasl": login}, LIMIT)


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
def test_programs_of_apache_kafka_log_in(sasl: tuple[str, Path], tmp_path: Path) -> None:
    servers, trust = sasl
    config = tmp_path / "client.properties"
    for password, status in (("love;lace", 0), ("wrong", 1)):
        config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={trust}\n"
            f'sasl.jaas.config={PLAIN_MODULE} required username="ada" password="{password}";\n'
        )
        arguments = ("--bootstrap-server", servers, "--command-config", str(config), "--list")
        done = run_tool("kafka-topics", *arguments, timeout=90)
        assert done.returncode == status, done.stdout + done.stderr
    assert (
        "SaslAuthenticationException: Authentication failed: Invalid username or password" in done.stdout + done.stderr
    )


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
async def test_the_client_logs_in_to_apache_kafka(kafka_with_logins: str, fresh: str, mechanism: str) -> None:
    login: dict[str, Any] = {
        "bootstrap_servers": kafka_with_logins,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ada",
        "sasl_plain_password": "lovelace",
    }
    async with asyncio.timeout(LIMIT), Producer(**login) as producer:
        await producer.send_and_wait(fresh, b"one")
    async with asyncio.timeout(LIMIT):
        with pytest.raises(AuthenticationFailedError, match="does not accept the user 'ada'"):
            await Producer(**{**login, "sasl_plain_password": "wrong"}).start()


@pytest.fixture(scope="module")
def kafka_with_logins() -> Iterator[str]:
    """The address at which clients of an Apache Kafka log in."""
    port, sasl_port = free_port(), free_port()
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ada="lovelace";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": scram,
    }
    users = [f"{mechanism}=[name=ada,password=lovelace]" for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    format_args = [word for user in users for word in ("--add-scram", user)]
    with ApacheKafka(settings, port=port, format_args=format_args):
        yield f"127.0.0.1:{sasl_port}"


# Names of principals

KEY: Final = ec.generate_private_key(ec.SECP256R1())
KINDS: Final = [
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.USER_ID,
    NameOID.TITLE,
    NameOID.SURNAME,
]
LETTERS: Final = 'ab ,=+<>#;"\\\0 \r\n\té漢😀-_.'


def some_certificate(dice: random.Random) -> bytes:
    def attribute() -> x509.NameAttribute[str]:
        return x509.NameAttribute(dice.choice(KINDS), "".join(dice.choices(LETTERS, k=dice.randint(1, 8))))

    parts = [x509.RelativeDistinguishedName([attribute()]) for _ in range(dice.randint(1, 4))]
    name = x509.Name(parts)
    begin = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 5, begin, begin + datetime.timedelta(days=9999))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def some_rules(dice: random.Random) -> str:
    parts = [
        "CN=(.*?),OU=(.*?)",
        ".*",
        "^CN=(.*?),.*$",
        "(a)|b.*",
        r"CN=\/x.*",
        "",
        "$1",
        "x$2",
        r"a\$b",
        "/",
        "/L",
        "/U",
    ]
    rules = [
        dice.choice(("DEFAULT", "RULE:" + "/".join(dice.choices(parts[:6], k=1) + dice.choices(parts[5:], k=2))))
        for _ in range(dice.randint(1, 3))
    ]
    return ",".join(rules)


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def ours(rules: str, name: str) -> str:
    try:
        return encoded(PrincipalRules(rules).apply(name))
    except ValueError:
        return "refused"


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
def test_principals_have_the_names_that_apache_kafka_gives_them() -> None:
    dice = random.Random(20)
    certificates = [some_certificate(dice) for _ in range(200)]
    names = ["CN=Duke,OU=Test,O=x", "CN=Duke", "CN=/x1", "a", "", "CN=a,OU=b"]
    asked = [(some_rules(dice), dice.choice(names)) for _ in range(3000)]
    lines = [f"subject {encoded(each)}" for each in certificates]
    lines += [f"rules {encoded(rules)} {encoded(name)}" for rules, name in asked]
    done = run_tool(str(PROGRAM), timeout=100, stdin="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr[-2000:]
    java = done.stdout.splitlines()
    assert [encoded(subject(each)) for each in certificates] == java[: len(certificates)]
    answers = dict(zip(asked, java[len(certificates) :], strict=True))
    assert sum(answer != "refused" for answer in answers.values()) > 50
    differ = [each for each in answers if ours(*each) != answers[each]]
    assert [each for each in differ if not refused_at_the_start(each[0])] == []


def refused_at_the_start(rules: str) -> bool:
    """Whether a rule refers to a group where it has none: Kafka fails when a client connects to which it applies."""
    try:
        PrincipalRules(rules)
    except ValueError as error:
        return "has 0 groups" in str(error)
    return False
