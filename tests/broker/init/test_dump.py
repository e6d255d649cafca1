"""`barnabas init --dump` prints the file with which a new broker becomes the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker

pytestmark = pytest.mark.programs

FILE = """\
topics:
  audit:
    partitions: 1
  orders:
    partitions: 2
    config:
      cleanup.policy: "compact,delete"
      retention.ms: "604800000"
  "true":
    partitions: 1
users:
  ada: {password_file: ada.password}
acls:
  "*":
    - "describe cluster"
  ada:
    - "deny write topic audit*"
    - "read group *"
quotas:
  - {client_id: "<default>", consumer_byte_rate: 5}
  - {user: ada, producer_byte_rate: 1000000, request_percentage: 12.5}
groups:
  billing:
    orders: {0: 7, 1: 0}
"""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def dumped(broker: Broker) -> str:
    command = [sys.executable, "-m", "barnabas_client.cli", "init", "--dump", "-b", broker.bootstrap_servers]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr == ""
    return ended.stdout


def test_a_new_broker_becomes_the_same(tmp_path: Path) -> None:
    file = tmp_path / "init.yaml"
    file.write_text(FILE)
    (tmp_path / "ada.password").write_text("lovelace\n")
    with Broker(process=False, config=AUTHORIZER, init=file) as broker:
        assert dumped(broker) == FILE
        broker.restart()
        assert dumped(broker) == FILE


def test_a_broker_without_anything(tmp_path: Path) -> None:
    with Broker(process=False) as broker:
        assert dumped(broker) == ""
