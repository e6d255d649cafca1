"""Clients that need what is not served stop with an error that names it, where they can; the broker logs it once."""

import ssl
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import pytest
from aiokafka.errors import KafkaConnectionError

from barnabas_broker.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.programs]

SASL = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def warnings(broker: Broker, client: str) -> list[str]:
    return [line for line in broker.log_lines if "does not serve" in line and client in line]


@pytest.mark.parametrize(
    ("settings", "error", "logged"),
    [
        ({"security.protocol": "ssl"}, "SSL", "TLS"),
        ({"security.protocol": "sasl_plaintext", **SASL}, "not valid in current SASL state", "SASL"),
    ],
    ids=["ssl", "sasl"],
)
def test_librdkafka_reports_the_protocol(broker: Broker, settings: dict[str, str], error: str, logged: str) -> None:
    seen: list[str] = []
    client = f"librdkafka-{logged}"
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": client,
            "error_cb": lambda problem: seen.append(str(problem)),
            "log_level": 0,
            **settings,
        }
    )
    for _ in range(200):  # at most 20 s
        producer.poll(0.1)
        # Several attempts: each of them is refused, one of them is logged.
        if len([problem for problem in seen if error in problem]) >= 3:
            break
    assert len([problem for problem in seen if error in problem]) >= 3, seen
    # A ClientHello has no client id.
    assert len(warnings(broker, f"asks for {logged},")) == 1


async def test_aiokafka_fails_at_once(broker: Broker) -> None:
    settings = {"bootstrap_servers": broker.bootstrap_servers, "request_timeout_ms": 10_000}
    for client, security in (
        ("aio-sasl", {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "a", "sasl_plain_password": "b"}),
        ("aio-ssl", {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}),
    ):
        consumer = aiokafka.AIOKafkaConsumer(client_id=client, **settings, **security)
        with pytest.raises(KafkaConnectionError):
            await consumer.start()
        await consumer.stop()
    assert len(warnings(broker, "aio-sasl")) == 1
