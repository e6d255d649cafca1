"""A test's broker with TLS and users, and every client of Python that logs in to it."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from barnabas import Consumer, Producer
from barnabas.errors import AuthenticationFailedError, TopicAuthorizationFailedError
from barnabas.testing import Broker, BrokerError
from barnabas_broker.security.permissions import read_acls
from tests.interop.round_trips import by_aiokafka
from tests.kafka_python import kafka
from tests.sampling import slow_except

pytestmark = [pytest.mark.programs, pytest.mark.together]

LIMIT: Final = 30
LINES: Final = [f"line {number}".encode() for number in range(50)]
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS: Final = {"ada": 'love"la\\ce', "bob": "builder"}


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    with Broker(process=False, security="SASL_SSL", users=USERS) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", slow_except(MECHANISMS, "SCRAM-SHA-512"))
def test_confluent(secure: Broker, mechanism: Any) -> None:
    topic = f"confluent-{mechanism}"
    settings: dict[str, Any] = secure.confluent_settings(mechanism=mechanism)
    producer = confluent_kafka.Producer(settings)
    for line in LINES:
        producer.produce(topic, line)
    assert producer.flush(LIMIT) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read = [message.value() for message in consumer.consume(len(LINES), LIMIT)]
    consumer.close()
    assert read == LINES
    reasons: list[str] = []
    settings |= {"sasl.password": "x", "error_cb": lambda error: reasons.append(error.str()), "log_level": 0}
    wrong = AdminClient(settings)
    with pytest.raises(confluent_kafka.KafkaException):
        wrong.list_topics(timeout=3)
    wrong.poll(1)
    assert any("Authentication failed" in reason for reason in reasons), reasons


@pytest.mark.parametrize("mechanism", slow_except(MECHANISMS, "SCRAM-SHA-256"))
async def test_aiokafka(secure: Broker, mechanism: Any) -> None:
    topic, settings = f"aiokafka-{mechanism}", secure.client_settings("bob", mechanism)
    assert await by_aiokafka(settings, topic, LINES, LIMIT) == LINES


@pytest.mark.parametrize("mechanism", slow_except(MECHANISMS, "PLAIN"))
def test_kafka_python(secure: Broker, mechanism: Any) -> None:
    topic, settings = f"kafka-python-{mechanism}", secure.client_settings(mechanism=mechanism)
    producer = kafka.KafkaProducer(**settings)
    for line in LINES:
        producer.send(topic, line)
    producer.flush(LIMIT)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=LIMIT * 1000, **settings)
    read = [record.value for _, record in zip(LINES, consumer, strict=False)]
    consumer.close()
    assert read == LINES


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_barnabas(secure: Broker, mechanism: Any) -> None:
    topic, settings = f"barnabas-{mechanism}", secure.client_settings(mechanism=mechanism)
    async with asyncio.timeout(LIMIT):
        async with Producer(**settings) as producer:
            for line in LINES:
                await producer.send(topic, line)
        read: list[bytes | None] = []
        async with Consumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            while len(read) < len(LINES):
                read.append((await consumer.getone()).value)
        assert read == LINES
        for wrong in ({"sasl_plain_password": "x"}, {"sasl_plain_username": "eve"}):
            with pytest.raises(AuthenticationFailedError, match="does not accept the user"):
                await Producer(**{**settings, **wrong}).start()


def test_users_of_scram_by_kafka_python(secure: Broker) -> None:
    admin = kafka.KafkaAdminClient(**secure.client_settings())
    try:
        changed = admin.alter_user_scram_credentials(
            [kafka.admin.UserScramCredentialUpsertion("cyd", "SCRAM-SHA-256", "charisse")]
        )
        assert changed == {"cyd": None}
        found = admin.describe_user_scram_credentials(["cyd"])
        assert [(each["mechanism"].name, each["iterations"]) for each in found["cyd"]["credential_infos"]] == [
            ("SCRAM_SHA_256", 4096)
        ]
        assert set(admin.describe_user_scram_credentials()) == {"ada", "bob", "cyd"}
        login = {**secure.client_settings(mechanism="SCRAM-SHA-256"), "sasl_plain_username": "cyd"}
        kafka.KafkaAdminClient(**login | {"sasl_plain_password": "charisse"}).close()
        admin.alter_user_scram_credentials([kafka.admin.UserScramCredentialDeletion("cyd", "SCRAM-SHA-256")])
        assert set(admin.describe_user_scram_credentials()) == {"ada", "bob"}
    finally:
        admin.close()


def test_it_keeps_port_users_and_certificates_over_a_restart() -> None:
    with Broker(process=False, security="SASL_SSL", users=USERS) as broker:
        address, certificate = broker.bootstrap_servers, broker.cafile.read_bytes()
        broker.restart()
        assert broker.bootstrap_servers == address
        broker.stop()
        broker.start()
        assert (broker.bootstrap_servers, broker.cafile.read_bytes()) == (address, certificate)
        assert AdminClient(broker.confluent_settings()).list_topics(timeout=LIMIT).brokers
        assert broker.cafile.parent.stat().st_mode & 0o077 == 0


def test_tls_alone_with_certificates_of_clients() -> None:
    config = {"ssl.client.auth": "required"}
    with Broker(process=False, security="SSL", config=config) as broker:
        assert AdminClient(broker.confluent_settings()).list_topics(timeout=LIMIT).brokers
        admin = kafka.KafkaAdminClient(**broker.client_settings())
        admin.list_topics()
        admin.close()


def test_users_without_tls() -> None:
    with Broker(process=False, security="SASL_PLAINTEXT", users=USERS) as broker:
        assert AdminClient(broker.confluent_settings("bob", "PLAIN")).list_topics(timeout=LIMIT).brokers
        with pytest.raises(BrokerError, match="has no TLS"):
            _ = broker.cafile


def test_plain_text_has_settings_as_well() -> None:
    with Broker(process=False) as broker:
        assert broker.confluent_settings() == {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "PLAINTEXT",
        }


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"security": "TLS"}, "security is 'TLS': give one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security": "SASL_SSL"}, "security is 'SASL_SSL': give users"),
        ({"users": {"ada": "x"}}, "users are given, and security is 'PLAINTEXT'"),
        ({"security": "SSL", "users": {"ada": "x"}}, "users are given, and security is 'SSL'"),
        ({"security": "SASL_SSL", "users": {"a b": "x"}}, "must be of letters, digits"),
        ({"security": "SASL_SSL", "users": {"ada": ""}}, "and have a password"),
        ({"security": "SSL", "config": {"listeners": "SSL://:1"}}, "security and listeners are given"),
        ({"acls": {"ada": []}}, "acls are given for 'ada': give a password in users as well"),
        ({"security": "SASL_SSL", "users": USERS, "acls": {"ada": "read topic t"}}, "give a list for each user"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Broker(**arguments)


async def test_users_may_do_what_acls_say() -> None:
    acls = {"ada": ["write topic orders-*", "READ topic *", "deny read topic secrets", "read group billing"]}
    with Broker(process=False, security="SASL_SSL", users=USERS, acls=acls) as broker:
        broker.create_topic("orders-1")
        broker.create_topic("secrets")
        for _ in range(2):
            async with asyncio.timeout(LIMIT), Producer(**broker.client_settings("ada")) as producer:
                await producer.send_and_wait("orders-1", b"one")
                with pytest.raises(TopicAuthorizationFailedError):
                    await producer.send_and_wait("secrets", b"two")
            login = broker.client_settings("ada")
            async with (
                asyncio.timeout(LIMIT),
                Consumer("orders-1", group_id="billing", auto_offset_reset="earliest", **login) as consumer,
            ):
                assert (await consumer.getone()).value == b"one"
                await consumer.commit()
            async with Producer(**broker.client_settings("bob"), enable_idempotence=False) as producer:
                with pytest.raises(TopicAuthorizationFailedError):
                    await producer.send_and_wait("orders-1", b"three")
            broker.restart()


@pytest.mark.parametrize(
    ("acl", "why"),
    [
        ("read orders", "must be an operation, a type of resource and a name"),
        ("", "must be an operation"),
        ("reed topic orders", "there is no 'REED'"),
        ("read topics orders", "there is no 'TOPICS'"),
        ("any topic orders", "Invalid operation ANY"),
        ("alter cluster other", "The only valid name for the CLUSTER resource is kafka-cluster"),
    ],
)
def test_acls_that_cannot_be_read(acl: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_acls({"ada": [acl]})


def test_acls_of_the_cluster() -> None:
    assert [str(each) for each in read_acls({"ada": ["alter-configs cluster"]})] == [
        "ALLOW User:ada from *: ALTER_CONFIGS on CLUSTER kafka-cluster"
    ]


def test_an_unknown_user(secure: Broker) -> None:
    with pytest.raises(ValueError, match="the broker has no user 'eve', only ada, bob"):
        secure.client_settings("eve")


def test_passwords_are_not_shown(secure: Broker) -> None:
    assert "builder" not in f"{secure!r} {secure._secured!r}"
