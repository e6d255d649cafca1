"""Kafka's own kafka-acls program against Barnabas."""

from collections.abc import Iterator

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import run_tool

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("needs_jars"), pytest.mark.timeout(180)]


@pytest.fixture
def broker() -> Iterator[BarnabasBroker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BarnabasBroker(settings) as running:
        yield running


def test_kafka_acls(broker: BarnabasBroker) -> None:
    def run(*words: str) -> str:
        done = run_tool("kafka-acls", "--bootstrap-server", broker.bootstrap_servers, *words, timeout=100)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    run("--add", "--allow-principal", "User:ada", "--consumer", "--topic", "orders", "--group", "billing")
    run("--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.7", "--operation", "Write", "--topic", "or",
        "--resource-pattern-type", "prefixed")  # fmt: skip
    listed = run("--list")
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
    assert "ResourcePattern(resourceType=TOPIC, name=or, patternType=PREFIXED)" in listed
    assert "(principal=User:ada, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "(principal=User:*, host=10.0.0.7, operation=WRITE, permissionType=DENY)" in listed
    applying = run("--list", "--topic", "orders-2", "--resource-pattern-type", "match")
    assert "name=or," in applying
    assert "name=orders," not in applying
    run("--remove", "--force", "--allow-principal", "User:ada", "--consumer", "--topic", "orders", "--group", "billing")
    left = run("--list")
    assert "User:ada" not in left
    assert "User:*" in left
