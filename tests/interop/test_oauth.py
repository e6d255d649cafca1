"""OAUTHBEARER by clients of others: librdkafka, aiokafka, kafka-python, kafkajs, Kafka's own programs; and this client
with Apache Kafka."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiokafka
import aiokafka.abc
import aiokafka.helpers
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from barnabas_broker.config.keys import SIGNED_TOKENS, UNSECURED_TOKENS
from barnabas_broker.security.bearer import OAUTHBEARER_MODULE
from barnabas_broker.security.sasl import PLAIN_MODULE
from barnabas_client import AbstractTokenProvider, Consumer, Producer
from barnabas_client.errors import AuthenticationFailedError
from tests.certificates import Authority
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.servers import logs_in
from tests.interop.kafka_server import SERVER_JVM, TOOL_JVM, ApacheKafka, run_tool
from tests.interop.round_trips import by_aiokafka, by_kafkajs
from tests.interop.server import free_port
from tests.interop.test_kafkajs import kafkajs
from tests.kafka_python import kafka
from tests.sampling import slow
from tests.tokens import TokenMaker

__all__ = ["kafkajs"]

pytestmark = [pytest.mark.interop, pytest.mark.together, pytest.mark.timeout(180)]

#: Seconds that a program may take.
LIMIT: Final = 90
LINES: Final = [f"line {number}".encode() for number in range(200)]
#: The option of Java that allows the addresses of tokens and keys, since Kafka 4.
ALLOWED: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="


class OauthBroker:
    """A broker whose clients log in by the tokens of `maker`: also with short sessions, and with unsigned tokens."""

    def __init__(
        self, maker: TokenMaker, servers: str, again: str, open_to_all: str, over_tls: str, trust: Path
    ) -> None:
        self.maker = maker
        self.servers = servers
        self.again = again
        self.open_to_all = open_to_all
        self.over_tls = over_tls
        self.trust = trust


@pytest.fixture(scope="module")
def oauth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OauthBroker]:
    folder = tmp_path_factory.mktemp("oauth")
    maker, authority = TokenMaker(folder), Authority(folder)
    names = ("OAUTH", "AGAIN", "OPEN", "TLS")
    ports = {name: free_port() for name in ("PLAINTEXT", *names)}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OAUTH:SASL_PLAINTEXT,AGAIN:SASL_PLAINTEXT,"
        "OPEN:SASL_PLAINTEXT,TLS:SASL_SSL",
        **maker.settings("OAUTH"),
        **maker.settings("AGAIN"),
        **maker.settings("TLS"),
        "listener.name.tls.ssl.keystore.location": str(authority.issue("broker")),
        "listener.name.again.oauthbearer.connections.max.reauth.ms": "3000",
        "listener.name.open.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.open.oauthbearer.sasl.server.callback.handler.class": UNSECURED_TOKENS,
        "listener.name.open.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
    }
    with BarnabasBroker(settings, port=ports["PLAINTEXT"]):
        once, again, open_to_all, over_tls = (f"127.0.0.1:{ports[name]}" for name in names)
        yield OauthBroker(maker, once, again, open_to_all, over_tls, authority.trust)


@pytest.mark.parametrize("way", ["once", slow("again"), "tls"])
def test_librdkafka(oauth: OauthBroker, fresh: str, way: str) -> None:
    again = way == "again"
    asked: list[float] = []

    def give(config: str) -> tuple[str, float]:
        asked.append(time.time())
        return oauth.maker.token("librdkafka", 300), time.time() + 300

    login: dict[str, Any] = {
        "bootstrap.servers": oauth.again if again else oauth.servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": give,
    }
    if way == "tls":
        login |= {
            "bootstrap.servers": oauth.over_tls,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(oauth.trust),
        }
    failed: list[str] = []
    producer = confluent_kafka.Producer({**login, "error_cb": lambda error: failed.append(error.str())})
    end = time.monotonic() + (7 if again else 0)
    count = 0
    while count < len(LINES) or time.monotonic() < end:
        producer.produce(fresh, LINES[count % len(LINES)])
        assert producer.flush(LIMIT) == 0
        count += 1
    consumer = confluent_kafka.Consumer({**login, "group.id": fresh, "auto.offset.reset": "earliest"})
    consumer.subscribe([fresh])
    read = [message.value() for message in consumer.consume(len(LINES), LIMIT)]
    consumer.close()
    assert read == LINES
    assert asked
    assert failed == []


def test_librdkafka_with_a_token_that_is_refused(oauth: OauthBroker) -> None:
    reasons: list[str] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": oauth.servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (oauth.maker.token(aud="other"), time.time() + 300),
        "error_cb": lambda error: reasons.append(error.str()),
    }
    admin = AdminClient(settings)
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=5)
    admin.poll(1)
    assert any('{"status":"invalid_token"}' in reason for reason in reasons), reasons


class OfAiokafka(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, maker: TokenMaker) -> None:
        self.maker = maker

    async def token(self) -> str:
        return self.maker.token("aiokafka")

    def extensions(self) -> dict[str, str]:
        return {"traceId": "123"}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_aiokafka(oauth: OauthBroker, fresh: str, tls: bool) -> None:
    login: dict[str, Any] = {
        "bootstrap_servers": oauth.servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": OfAiokafka(oauth.maker),
    }
    if tls:
        context = aiokafka.helpers.create_ssl_context(cafile=str(oauth.trust))
        login |= {"bootstrap_servers": oauth.over_tls, "security_protocol": "SASL_SSL", "ssl_context": context}
    assert await by_aiokafka(login, fresh, LINES, LIMIT) == LINES


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_kafka_python(oauth: OauthBroker, fresh: str, tls: bool) -> None:
    from kafka.net.sasl.oauth import AbstractTokenProvider as OfKafkaPython

    class Provider(OfKafkaPython):  # type: ignore[misc]
        def token(self) -> str:
            return oauth.maker.token("kafka-python")

    login = {
        "bootstrap_servers": oauth.servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    if tls:
        login |= {
            "bootstrap_servers": oauth.over_tls,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(oauth.trust),
        }
    producer = kafka.KafkaProducer(**login)
    for line in LINES:
        producer.send(fresh, line)
    producer.flush(LIMIT)
    producer.close()
    consumer = kafka.KafkaConsumer(fresh, auto_offset_reset="earliest", consumer_timeout_ms=LIMIT * 1000, **login)
    read = [next(consumer).value for _ in LINES]
    consumer.close()
    assert read == LINES


@pytest.mark.parametrize("tls", [slow(False), True], ids=["plain", "tls"])
def test_kafkajs(kafkajs: Path, oauth: OauthBroker, fresh: str, tls: bool) -> None:
    security: dict[str, Any] = {"sasl": {"mechanism": "oauthbearer", "token": oauth.maker.token("kafkajs")}}
    if tls:
        security["ssl"] = {"ca": [oauth.trust.read_text()]}
    # Node checks no certificate for an address.
    servers = oauth.over_tls.replace("127.0.0.1", "localhost") if tls else oauth.servers
    by_kafkajs(kafkajs, servers, fresh, security, LIMIT)


def java(folder: Path, lines: Mapping[str, str]) -> str:
    """The file with the configuration of a Java client."""
    file = folder / "client.properties"
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **lines}
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return str(file)


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
def test_java_with_a_file(oauth: OauthBroker, fresh: str, tmp_path: Path) -> None:
    token = tmp_path / "token.jwt"
    token.write_text(oauth.maker.token("java", 3600))
    of_file = {
        "sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        "sasl.login.callback.handler.class": SIGNED_TOKENS[0].replace("ValidatorC", "LoginC"),
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    config = java(tmp_path, of_file)
    jvm = (*TOOL_JVM, ALLOWED + token.as_uri())
    # Ten seconds, and three sessions.
    words = ("--num-records", "1000", "--record-size", "10", "--throughput", "100", "--topic", fresh)
    done = run_tool(
        "kafka-producer-perf-test",
        *(*words, "--bootstrap-server", oauth.again, "--command-config", config),
        timeout=LIMIT,
        jvm=jvm,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1000 records sent" in done.stdout
    assert "Exception" not in done.stdout + done.stderr
    over_tls = {"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": oauth.trust}
    java(tmp_path, {**of_file, **{key: str(value) for key, value in over_tls.items()}})
    done = run_tool(
        "kafka-topics",
        *("--bootstrap-server", oauth.over_tls, "--command-config", config, "--list"),
        timeout=LIMIT,
        jvm=jvm,
    )
    assert fresh in done.stdout.split(), done.stderr
    java(tmp_path, of_file)
    token.write_text(oauth.maker.token("java", 3600, iss="other"))
    connect = ("--bootstrap-server", oauth.servers, "--command-config", config)
    done = run_tool("kafka-topics", *connect, "--list", timeout=LIMIT, jvm=jvm)
    assert done.returncode == 1
    assert 'SaslAuthenticationException: {"status":"invalid_token"}' in done.stdout + done.stderr


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
def test_java_without_a_signature(oauth: OauthBroker, fresh: str, tmp_path: Path) -> None:
    config = java(
        tmp_path, {"sasl.jaas.config": f'{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="java";'}
    )
    options = ("--bootstrap-server", oauth.open_to_all, "--command-config", config, "--topic", fresh)
    done = run_tool("kafka-console-producer", *options, timeout=LIMIT, stdin="one\ntwo\n")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_tool("kafka-console-consumer", *options, "--from-beginning", "--max-messages", "2", timeout=LIMIT)
    assert done.stdout.split() == ["one", "two"], done.stderr


class Tokens(AbstractTokenProvider):
    def __init__(self, maker: TokenMaker, **claims: str) -> None:
        self.maker = maker
        self.claims = claims

    async def token(self) -> str:
        return self.maker.token("barnabas", 300, **self.claims)

    def extensions(self) -> dict[str, str]:
        return {"traceId": "123"}


@pytest.fixture
def reference(needs_jars: None, tmp_path: Path) -> Iterator[tuple[ApacheKafka, TokenMaker]]:
    """Apache Kafka, whose clients log in by tokens, with short sessions."""
    maker = TokenMaker(tmp_path)
    listener = "listener.name.plaintext."
    settings = {
        **maker.settings("PLAINTEXT"),
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{listener}sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{listener}plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required username="root" password="root" user_root="root";'
        ),
        f"{listener}oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        f"{listener}oauthbearer.sasl.server.callback.handler.class": SIGNED_TOKENS[0],
        f"{listener}oauthbearer.connections.max.reauth.ms": "2500",
    }
    with ApacheKafka(settings, ready=logs_in, jvm=(*SERVER_JVM, ALLOWED + maker.url)) as server:
        yield server, maker


@pytest.mark.kafka
async def test_this_client_with_apache_kafka(reference: tuple[ApacheKafka, TokenMaker]) -> None:
    server, maker = reference
    login: dict[str, Any] = {
        "bootstrap_servers": server.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    provider = Tokens(maker)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LIMIT):
        async with Producer(**login, sasl_oauth_token_provider=provider) as producer:
            # Two sessions and more.
            end, sent = loop.time() + 6, 0
            while loop.time() < end or sent < len(LINES):
                await producer.send_and_wait("t", LINES[sent % len(LINES)])
                sent += 1
        consumer = Consumer(
            "t", group_id="g", auto_offset_reset="earliest", **login, sasl_oauth_token_provider=provider
        )
        async with consumer:
            read = 0
            while read < sent:
                read += len(await consumer.poll(timeout_ms=1000))
        with pytest.raises(AuthenticationFailedError, match='"status":"invalid_token"'):
            await Producer(**login, sasl_oauth_token_provider=Tokens(maker, aud="other")).start()
