"""The profile `secure` of `docker-compose.yml`: mutual TLS among brokers, SCRAM over TLS for clients, ACLs."""

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compose.stack import SECURE, Stack

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

#: Seconds.
PATIENCE: Final = 60.0
PASSWORD: Final = "lovelace-of-the-test"
#: The status of a request over HTTP inside a container, with the token or without.
_STATUS: Final = """
import sys, urllib.request, urllib.error
token = open("/secure/http.token").read().strip()
for path, headers in (("/readyz", {}), ("/metrics", {}), ("/metrics", {"Authorization": f"Bearer {token}"})):
    try:
        print(urllib.request.urlopen(urllib.request.Request(f"http://secure2:9308{path}", headers=headers)).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


class Secure:
    """The running containers."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        self.trust = folder / "authority.pem"
        self.trust.write_text(self.exec("cat", "/secure/authority.pem"))
        self.admin_password = self.exec("cat", "/secure/admin.password").strip()

    def exec(self, *command: str, service: str = "secure1") -> str:
        return self.stack.compose("--profile", "secure", "exec", "-T", service, *command)

    def client(self, user: str, password: str, **more: Any) -> dict[str, Any]:
        """The settings of a client."""
        return {
            "bootstrap.servers": self.stack.secure_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            **more,
        }


@pytest.fixture(scope="module")
def secure(image: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """The containers, with the topics, and the user ada who may use one of them."""
    try:
        image.up_secure("--build")
        running = Secure(image, tmp_path_factory.mktemp("secure"))
        admin = AdminClient(running.client("admin", running.admin_password))
        topics = [NewTopic(name, 3, 3) for name in ("orders", "secrets")]
        for created in admin.create_topics(topics, operation_timeout=PATIENCE).values():
            created.result(PATIENCE)
        for user in ("ada", "eve"):
            running.exec("sh", "-c", f"echo {PASSWORD} | barnabas users add {user}", service="secure2")
        running.exec("barnabas", "acls", "add", "User:ada", "--operation", "all", "--topic", "orders")
        running.exec("barnabas", "acls", "add", "User:ada", "--operation", "read", "--group", "billing")
        yield running
    except BaseException:
        print(image.compose("--profile", "secure", "logs", "--no-color"))
        raise
    finally:
        image.down("--volumes", "--timeout=0")


def written(settings: dict[str, Any], topic: str, value: bytes) -> KafkaError | None:
    """Write a record; the error, None if it is acknowledged."""
    outcome: list[KafkaError | None] = []
    failed: list[KafkaError] = []
    given = {**settings, "acks": "all", "error_cb": failed.append, "message.timeout.ms": int(PATIENCE * 1000)}
    producer = Producer(given)
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    deadline = time.monotonic() + PATIENCE
    while not outcome and time.monotonic() < deadline:
        producer.poll(0.1)
        # Before a login librdkafka tries again until the message is too old.
        fatal = [each for each in failed if each.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)]
        if fatal:
            return fatal[0]
    assert outcome, f"neither acknowledged nor refused: {failed}"
    return outcome[0]


def test_a_client_that_logs_in_writes_and_reads(secure: Secure) -> None:
    ada = secure.client("ada", PASSWORD)
    for number in range(3):
        assert written(ada, "orders", b"order %d" % number) is None
    consumer = Consumer({**ada, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found: set[bytes | None] = set()
    deadline = time.monotonic() + PATIENCE
    while len(found) < 3 and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            found.add(message.value())
    consumer.close()
    assert found == {b"order 0", b"order 1", b"order 2"}


def test_what_no_acl_allows_is_refused(secure: Secure) -> None:
    for user, topic in (("eve", "orders"), ("ada", "secrets"), ("eve", "no-such-topic")):
        error = written(secure.client(user, PASSWORD), topic, b"x")
        assert error is not None, (user, topic)
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, (user, topic)


def test_wrong_passwords_and_plain_text_are_refused(secure: Secure) -> None:
    error = written(secure.client("ada", "wrong"), "orders", b"x")
    assert error is not None
    assert error.code() == KafkaError._AUTHENTICATION
    admin = AdminClient({"bootstrap.servers": secure.stack.secure_servers, "log_level": 2})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=5)
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.get_server_certificate(
            ("localhost", secure.stack.secure_port("secure1")), ca_certs=ssl.get_default_verify_paths().cafile
        )


def test_brokers_follow_each_other_and_store_no_secret_in_plain_text(secure: Secure) -> None:
    admin = AdminClient(secure.client("admin", secure.admin_password))
    deadline = time.monotonic() + PATIENCE
    while True:
        partitions = admin.list_topics("orders", PATIENCE).topics["orders"].partitions.values()
        if all(len(each.isrs) == 3 for each in partitions):
            break
        assert time.monotonic() < deadline, "not all replicas are in sync"
        time.sleep(0.2)
    logs = secure.stack.compose("--profile", "secure", "logs", "--no-color")
    assert "not authorized" in logs
    assert "User:eve" in logs
    assert "the certificate is not for the advertised host" not in logs
    assert PASSWORD not in logs
    assert secure.admin_password not in logs
    for service in SECURE:
        search = f"grep -rlF -e {PASSWORD} -e {secure.admin_password} /data; test $? = 1"
        assert secure.exec("sh", "-c", search, service=service) == ""


def test_http_needs_the_token(secure: Secure) -> None:
    assert secure.exec("python", "-c", _STATUS).split() == ["200", "401", "200"]


def test_the_secrets_belong_to_the_broker(secure: Secure) -> None:
    modes = secure.exec("sh", "-c", "stat -c '%a %u %n' /secure /secure/* /secure/barnabas/*").splitlines()
    assert modes[0] == "700 1001 /secure"
    assert {line.split()[0] for line in modes if not line.endswith("/barnabas")} <= {"700", "600"}
    assert not [line for line in modes if line.endswith("authority.key")]
    container = secure.stack.inspect("secure1")
    assert secure.admin_password not in json.dumps(container)


def test_all_of_it_is_there_after_a_restart(secure: Secure) -> None:
    secure.stack.compose("--profile", "secure", "kill", "secure1")
    secure.stack.up_secure("--no-recreate")
    assert written(secure.client("ada", PASSWORD), "orders", b"after the restart") is None
    error = written(secure.client("eve", PASSWORD), "orders", b"x")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
