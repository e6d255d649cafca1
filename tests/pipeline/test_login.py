"""The Spark source logs in: the connections of driver and executors, without Spark."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Broker
from barnabas_client import TopicPartition
from barnabas_client.errors import AuthenticationFailedError
from barnabas_client.loop_thread import close_loop_thread
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_protocol.jaas import quoted


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    with Broker(process=False, security="SASL_SSL", users={"ada": 'love"lace'}) as broker:
        broker.create_topic("t")
        yield broker
        close_loop_thread()


def settings(broker: Broker, mechanism: str, password: str = 'love"lace') -> Settings:
    return Settings.of(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": str(broker.cafile),
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'Module required username="ada" password={quoted(password)};',
        }
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_it_logs_in(secure: Broker, mechanism: str) -> None:
    brokers = remote_for(settings(secure, mechanism))
    assert "t" in brokers.topics()
    assert brokers.latest([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 0}


def test_a_wrong_password(secure: Broker) -> None:
    with pytest.raises(AuthenticationFailedError, match="does not accept the user 'ada'"):
        remote_for(settings(secure, "SCRAM-SHA-256", "hush")).topics()
