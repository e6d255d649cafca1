"""Settings: valid values, and the errors for others."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_client import Admin, Consumer, Producer
from barnabas_client.assignors import RangeAssignor, RebalanceProtocol, RoundRobinAssignor
from barnabas_client.config import ClientConfig, ConsumerConfig, common_protocols, parse_servers
from barnabas_client.producer.config import ProducerConfig
from barnabas_protocol.records import Codec
from tests.certificates import Authority


class Tokens:
    async def token(self) -> str:
        return "a"


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2, c", [("a", 1), ("b", 2), ("c", 9092)]),
        (["a:1", "b:2,c:3"], [("a", 1), ("b", 2), ("c", 3)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
    ],
)
def test_addresses(given: str | list[str], parsed: list[tuple[str, int]]) -> None:
    assert list(parse_servers(given)) == parsed


@pytest.mark.parametrize("given", ["", " , ", [], "a:", "a:x", "a:0", "a:70000", ":9092", "[::1", "[::1]x", "a:-1"])
def test_invalid_addresses(given: str | list[str]) -> None:
    with pytest.raises(ValueError, match="bootstrap_servers"):
        parse_servers(given)


def test_addresses_of_another_type() -> None:
    wrong: Any = [("localhost", 9092)]
    with pytest.raises(TypeError, match="bootstrap_servers"):
        parse_servers(wrong)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"session_timeout_ms": "10"}, TypeError, "session_timeout_ms is '10': give an integer"),
        ({"max_poll_records": 0}, ValueError, "max_poll_records is 0: give at least 1"),
        ({"fetch_min_bytes": True}, TypeError, "fetch_min_bytes is True"),
        ({"auto_offset_reset": "smallest"}, ValueError, "give one of 'latest', 'earliest', 'none'"),
        ({"isolation_level": 1}, ValueError, "isolation_level is 1"),
        ({"group_id": ""}, ValueError, "group_id is ''"),
        ({"group_id": 5}, ValueError, "group_id is 5"),
        ({"group_instance_id": "i"}, ValueError, "group_instance_id is given without group_id"),
        ({"heartbeat_interval_ms": 10_000}, ValueError, "at most a third of it"),
        ({"key_deserializer": "json"}, TypeError, "key_deserializer is 'json': give a function"),
        ({"rebalance_timeout_ms": 0}, ValueError, "rebalance_timeout_ms is 0"),
        ({"partition_assignment_strategy": ()}, ValueError, "give at least one assignor"),
        ({"partition_assignment_strategy": (RangeAssignor(), RangeAssignor())}, ValueError, "give each assignor once"),
    ],
)
def test_refused_settings_of_a_consumer(settings: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        ConsumerConfig(**settings)


def test_assignors_must_have_a_rebalance_protocol_in_common() -> None:
    class Cooperative(RangeAssignor):
        name = "coop"
        protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    with pytest.raises(ValueError, match="mixes eager and cooperative"):
        ConsumerConfig(partition_assignment_strategy=(RangeAssignor(), Cooperative()))
    both = ConsumerConfig(partition_assignment_strategy=(RoundRobinAssignor(), RangeAssignor()))
    assert [assignor.name for assignor in both.partition_assignment_strategy] == ["roundrobin", "range"]


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"acks": 2}, ValueError, "acks is 2: give one of 'all', -1, 0, 1"),
        ({"acks": 1, "enable_idempotence": True}, ValueError, 'give acks="all" or switch it off'),
        ({"compression_type": "zip"}, ValueError, "compression_type is 'zip'"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"value_serializer": 1}, TypeError, "value_serializer"),
    ],
)
def test_refused_settings_of_a_producer(settings: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        ProducerConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "acks", "idempotent"),
    [
        ({}, -1, True),
        ({"acks": "all"}, -1, True),
        ({"acks": 1}, 1, False),
        ({"acks": 0}, 0, False),
        ({"acks": -1, "enable_idempotence": False}, -1, False),
    ],
)
def test_acks_and_idempotence(settings: dict[str, Any], acks: int, idempotent: bool) -> None:
    config = ProducerConfig(**settings)
    assert (config.required_acks, config.idempotent) == (acks, idempotent)


def test_compression_is_a_codec() -> None:
    assert ProducerConfig(compression_type="zstd").codec is Codec.ZSTD
    assert ProducerConfig().codec is Codec.NONE


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"client_id": None}, TypeError, "client_id"),
        ({"request_timeout_ms": 0}, ValueError, "request_timeout_ms"),
        ({"security_protocol": "TLS"}, ValueError, "'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL'"),
        ({"sasl_oauth_token_provider": Tokens()}, ValueError, 'give security_protocol="SASL_SSL"'),
        ({"security_protocol": "SASL_SSL", "sasl_oauth_token_provider": 5}, TypeError, "async method token"),
        (
            {"security_protocol": "SASL_SSL", "sasl_oauth_token_provider": Tokens()},
            ValueError,
            'give sasl_mechanism="OAUTHBEARER"',
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            ValueError,
            "sasl_oauth_token_provider is needed",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_plain_username": "a"},
            ValueError,
            "leave it out, the token has the user",
        ),
        ({"security_protocol": "SASL_SSL"}, ValueError, "sasl_plain_username and sasl_plain_password are needed"),
        (
            {"security_protocol": "SASL_SSL", "sasl_plain_username": "a", "sasl_plain_password": "b\0c"},
            ValueError,
            "without zero bytes",
        ),
        ({"sasl_plain_username": "a", "sasl_plain_password": "b"}, ValueError, 'give security_protocol="SASL_SSL"'),
        ({"sasl_mechanism": "GSSAPI"}, ValueError, "'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'"),
        ({"ssl_context": ssl.create_default_context()}, ValueError, 'give security_protocol="SSL" as well'),
        ({"ssl_cafile": "x"}, ValueError, 'give security_protocol="SSL" as well'),
        ({"ssl_check_hostname": "yes"}, TypeError, "give True or False"),
    ],
)
def test_refused_settings_of_any_client(settings: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        ClientConfig(servers=(("localhost", 9092),), **settings)


def test_tls_contexts(tmp_path: Path) -> None:
    servers = (("localhost", 9092),)
    mine = ssl.create_default_context()
    assert ClientConfig(servers=servers).tls is None
    assert ClientConfig(servers=servers, security_protocol="SSL", ssl_context=mine).tls is mine
    system = ClientConfig(servers=servers, security_protocol="SSL").tls
    assert system is not None
    assert system.minimum_version == ssl.TLSVersion.TLSv1_2
    assert (system.check_hostname, system.verify_mode) == (True, ssl.CERT_REQUIRED)
    authority = Authority(tmp_path)
    certificate = authority.issue("client", password="hush")
    given = ClientConfig(
        servers=servers,
        security_protocol="SSL",
        ssl_cafile=str(authority.trust),
        ssl_certfile=str(certificate),
        ssl_password="hush",
        ssl_check_hostname=False,
    )
    assert given.tls is given.tls is not None
    assert (given.tls.check_hostname, given.tls.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert len(given.tls.get_ca_certs()) == 1
    assert "hush" not in repr(given)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ssl_cafile": "/no/file"}, "ssl_cafile is '/no/file', which cannot be used .No such file"),
        ({"ssl_cafile": "{empty}"}, "ssl_cafile is .*which cannot be used"),
        ({"ssl_certfile": "{locked}"}, "ssl_certfile is .*and ssl_password if its key is encrypted"),
        ({"ssl_certfile": "{locked}", "ssl_password": "xyzzy"}, "ssl_certfile is .*cannot be used"),
        ({"ssl_keyfile": "x"}, "without ssl_certfile: give both"),
        ({"ssl_password": "x"}, "without ssl_certfile: give both"),
        ({"ssl_cafile": "x", "ssl_context": ssl.create_default_context()}, "ssl_cafile is given with ssl_context"),
    ],
)
def test_refused_certificates(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    (tmp_path / "empty.pem").write_text("")
    Authority(tmp_path).issue("locked", password="hush")
    files = {name: str(tmp_path / f"{name}.pem") for name in ("empty", "locked")}
    given: dict[str, Any] = {
        name: value.format(**files) if isinstance(value, str) else value for name, value in settings.items()
    }
    with pytest.raises(ValueError, match=says) as refused:
        ClientConfig(servers=(("localhost", 9092),), security_protocol="SSL", **given)
    assert "xyzzy" not in str(refused.value)


@pytest.mark.parametrize("make", [Consumer, Producer, Admin])
def test_unknown_arguments_are_refused(make: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="bootstrap_server"):
        make(bootstrap_server="localhost")


@pytest.mark.parametrize("make", [Consumer, Producer, Admin])
def test_nothing_happens_before_the_start(make: Callable[..., object]) -> None:
    make(bootstrap_servers="no-such-host.invalid:1")


def test_the_default_assignors_share_a_group_with_those_of_others() -> None:
    config = ConsumerConfig()
    assert [one.name for one in config.partition_assignment_strategy] == ["range", "roundrobin", "cooperative-sticky"]
    assert common_protocols(config.partition_assignment_strategy) == {RebalanceProtocol.EAGER}
    assert config.partition_assignment_strategy[2] is not ConsumerConfig().partition_assignment_strategy[2]
