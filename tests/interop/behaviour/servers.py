"""The settings for scenarios, the same for Apache Kafka and Barnabas."""

import asyncio
from collections.abc import Mapping
from typing import Final

from barnabas_broker.security.sasl import PLAIN_MODULE
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.language import Server
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import answers
from tests.wire import Wire

#: The users of the setting "secured", whose passwords are their names. A connection of another name is root's, who may
#: do everything. The others may do what a scenario allows them.
USERS: Final = ("root", "allowed", "denied", "operator")
_PASSWORDS: Final = " ".join(f'user_{name}="{name}"' for name in USERS)
_JAAS: Final = f'{PLAIN_MODULE} required username="root" password="root" {_PASSWORDS};'

_SHORT: Final = {
    "group.consumer.assignment.interval.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.share.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 1,
}

SETTINGS: Final[Mapping[Server, Mapping[str, str | int | bool]]] = {
    "plain": {**_SHORT, "group.initial.rebalance.delay.ms": 0},
    # An initial rebalance delay, small groups of one protocol, no automatic creation and no deletion of topics.
    "strict": {
        **_SHORT,
        "auto.create.topics.enable": False,
        "delete.topic.enable": False,
        "group.consumer.max.size": 2,
        "group.consumer.migration.policy": "disabled",
        "group.initial.rebalance.delay.ms": 1500,
        "group.max.size": 2,
        "group.share.max.size": 2,
    },
    # The default number of partitions of __consumer_offsets. No other groups run under this setting, because the
    # scenarios check the ends of partitions.
    "sharded": {"offsets.topic.num.partitions": 50},
    # Clients log in, and need ACLs; see USERS.
    "secured": {
        **_SHORT,
        "group.initial.rebalance.delay.ms": 0,
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "connections.max.reauth.ms": 3_600_000,
        "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root;User:ANONYMOUS",
    },
    # Offsets that expire soon.
    "expiring": {"offsets.retention.check.interval.ms": 200},
}


def launch(kind: type[ApacheKafka] | type[BarnabasBroker], name: Server) -> ApacheKafka | BarnabasBroker:
    """A server with the settings of this name, not started."""
    return kind(SETTINGS[name], ready=logs_in if name == "secured" else answers)


def logs_in(port: int) -> bool:
    """Whether root can log in and ask for the brokers."""

    async def ask() -> bool:
        wire = await log_in(await Wire.connect(port), "root")
        try:
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            return bool((await wire.ask(request, 9, MetadataResponse)).brokers)
        finally:
            await wire.close()

    try:
        return asyncio.run(asyncio.wait_for(ask(), 2))
    except (OSError, TimeoutError, asyncio.IncompleteReadError, AssertionError):
        return False


async def log_in(wire: Wire, user: str) -> Wire:
    """Log in with PLAIN."""
    shaken = await wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
    assert shaken.error_code == 0, shaken
    message = f"\0{user}\0{user}".encode()
    done = await wire.ask(SaslAuthenticateRequest(auth_bytes=message), 1, SaslAuthenticateResponse)
    assert done.error_code == 0, done
    return wire
