"""Importing the consumer imports what a consumer needs, and nothing else: scripts and workers start quickly."""

import subprocess
import sys

import pytest

import barnabas
from tests.wire import PATIENCE

#: Packages and modules that a consumer may need later, or never.
HEAVY = {
    "structlog",
    "rich",
    "crc32c",
    "importlib.metadata",
    "sysconfig",
    "uvloop",
    "concurrent.futures.process",
    "difflib",
    "pathlib",
    "uuid",
    "barnabas_broker",
    "barnabas_client.admin",
    "barnabas_client.assignors.ownership",
    "barnabas_client.cli",
    "barnabas_client.consumer.parallel.runner",
    "barnabas_client.membership.consumer_member",
    "barnabas_client.network.login",
    "barnabas_client.producer",
    "barnabas_client.sync",
    "barnabas_explain",
    "barnabas_protocol.acls",
    "barnabas_protocol.apis",
    "barnabas_protocol.messages.consumer_group_heartbeat",
    "barnabas_protocol.messages.create_topics",
    "barnabas_protocol.messages.delete_topics",
    "barnabas_protocol.messages.list_config_resources",
    "barnabas_protocol.messages.list_transactions",
    "barnabas_protocol.messages.produce",
    "barnabas_protocol.records.builder",
    "barnabas_protocol.records.fields",
    "barnabas_protocol.sasl",
    "barnabas_protocol.scram",
}

#: What producers need.
PRODUCERS = {
    "barnabas_client.producer",
    "barnabas_protocol.messages.produce",
    "barnabas_protocol.records.builder",
    "barnabas_protocol.records.fields",
}


def imported(program: str) -> set[str]:
    """The modules that a new interpreter has imported after `program`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return set(done.stdout.split())


def test_a_consumer_is_imported_alone() -> None:
    loaded = imported("from barnabas import Consumer")
    assert "barnabas_client.consumer.consumer" in loaded
    assert not loaded & HEAVY


def test_the_first_connection_and_the_first_checksum_import_nothing_large() -> None:
    loaded = imported(
        "from barnabas import Consumer\n"
        "from barnabas_client.network.connection import api_versions_request\n"
        "from barnabas_protocol.records.checksums import crc32c\n"
        "assert api_versions_request().client_software_version\n"
        "assert crc32c(b'123456789') == 0xE3069283"
    )
    assert not loaded & HEAVY


def test_a_producer_does_not_import_the_admin() -> None:
    loaded = imported("from barnabas import Producer")
    assert "barnabas_client.producer.producer" in loaded
    assert not loaded & (HEAVY - PRODUCERS)


def test_the_admin_is_imported_with_the_first_of_its_names() -> None:
    loaded = imported("from barnabas import NewTopic")
    assert "barnabas_client.admin.types" in loaded
    assert "barnabas_client.admin.admin" not in loaded


def test_completion_lists_all_names() -> None:
    assert set(barnabas.__all__) <= set(dir(barnabas))


def test_an_unknown_name_is_an_attribute_error() -> None:
    name = "Konsumer"
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(barnabas, name)
