"""Who has changed what is in the audit log: each change that a row names, by whom and from where, and no other."""

import ast
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster import controller
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_broker.handlers.table import join
from barnabas_broker.security.audit import Change
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryData,
    OpData,
)
from barnabas_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas_protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.describe_client_quotas import EntityData
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas_protocol.messages.elect_leaders import TopicPartitions as ElectedPartitions
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.http.support import commit, join_alone, make_topic
from tests.wire import Wire

#: What a request of this test sets as a user's credential.
SALTED: Final = b"the-salted-password-of-this-test"
#: The tests that compare the lines of changes.
MODULES: Final = (Path(__file__), Path(__file__).with_name("test_changes.py"))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    settings = {
        "log.dir": str(tmp_path / "data"),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": "2",
    }
    running = await BrokerServer.start(Config(BROKER_KEYS, settings), port=0)
    yield running
    await running.stop()


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "barnabas_broker.audit")
    return caplog


def upsertion(user: str, iterations: int) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=2, iterations=iterations, salt=b"salt-of-this-test", salted_password=SALTED * 2
    )


def lines(audited: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the audit log since the last call, without the client."""
    found: list[dict[str, Any]] = [r.msg for r in audited.records if r.name == "barnabas_broker.audit"]  # type: ignore[misc]
    audited.clear()
    for line in found:
        if "peer" in line:
            assert line.pop("peer").startswith("127.0.0.1:")
            assert line.pop("client_id") == "test"
    return [dict(line) for line in found]


def compared() -> Iterator[str]:
    """The texts in the assertions of these tests."""
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Assert):
                constants = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
                yield from (value for value in constants if isinstance(value, str))


def test_the_lines_of_each_change_are_compared() -> None:
    assert {change for route in join().values() for change in route.changes} == set(Change)
    texts = list(compared())
    # A line of the log continues with the pairs of the change.
    assert [change for change in Change if not any(f"{text} ".startswith(f"{change} ") for text in texts)] == []


async def test_users(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    one = upsertion("ada", 4096)
    bad = upsertion("eve", 1)
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[one, bad])
    await wire.ask(request, 0, AlterUserScramCredentialsResponse)
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="ada", mechanism=2)], upsertions=[]
    )
    for _ in range(2):
        await wire.ask(request, 0, AlterUserScramCredentialsResponse)
    whole = audited.text
    assert lines(audited) == [
        {"event": "user credential set", "user": "ada", "mechanism": "SCRAM-SHA-512"},
        {"event": "user credential deleted", "user": "ada", "mechanism": "SCRAM-SHA-512"},
    ]
    assert SALTED.decode() not in whole
    assert "salt-of" not in whole


async def test_acls(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    creation = AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:ada",
        host="*",
        operation=3,
        permission_type=3,
    )
    for _ in range(2):
        await wire.ask(CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse)
    delete = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=2,
                resource_name_filter="orders",
                pattern_type_filter=3,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
        ]
    )
    for _ in range(2):
        await wire.ask(delete, 3, DeleteAclsResponse)
    acl = "ALLOW User:ada from *: READ on TOPIC orders"
    assert lines(audited) == [{"event": "ACL created", "acl": acl}, {"event": "ACL deleted", "acl": acl}]


async def test_quotas(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    for remove, validate_only in ((False, True), (False, False), (True, False)):
        change = OpData(key="producer_byte_rate", value=1000.0, remove=remove)
        entity = [EntityData(entity_type="user", entity_name="ada")]
        entries = [AlterEntryData(entity=entity, ops=[change])]
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        await wire.ask(request, 1, AlterClientQuotasResponse)
    assert lines(audited) == [
        {"event": "quota set", "entity": "{user=ada}", "key": "producer_byte_rate", "value": 1000.0},
        {"event": "quota removed", "entity": "{user=ada}", "key": "producer_byte_rate"},
    ]


async def test_offsets_and_groups(broker: BrokerServer, wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    await make_topic(wire, "t")
    await commit(wire, "g", "t", {0: 5})
    lines(audited)
    for offset in (1, 2, 3):
        await commit(wire, "g", "t", {0: offset})
    assert lines(audited) == []  # the first commit was written
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7)]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
    await wire.ask(request, 0, OffsetDeleteResponse)
    assert lines(audited) == [{"event": "offsets deleted", "group": "g", "topic": "t", "partitions": [0]}]
    await commit(wire, "g", "t", {0: 5})
    await wire.ask(DeleteGroupsRequest(groups_names=["g", "other"]), 2, DeleteGroupsResponse)
    assert lines(audited) == [{"event": "group deleted", "group": "g"}]
    broker.services.audit.close()
    by = {"principal": "User:ANONYMOUS", "host": "127.0.0.1", "client_id": "test"}
    assert lines(audited) == [{"event": "offsets set", "group": "g", **by, "repeated": 4}]


async def test_offsets_that_are_set_are_written_once(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    await make_topic(wire, "t")
    lines(audited)
    for _ in range(3):
        await commit(wire, "g", "t", {0: 5})
    by = {"principal": "User:ANONYMOUS", "host": "127.0.0.1", "client_id": "test"}
    changed = [line for line in lines(audited) if line["event"] != "topic created"]
    assert changed == [{"event": "offsets set", "group": "g", **by}]


async def test_offsets_that_clients_set_on_one_connection_are_written_with_the_client(
    wire: Wire, audited: pytest.LogCaptureFixture
) -> None:
    """A proxy may send the requests of several clients on one connection."""
    await make_topic(wire, "t")
    await commit(wire, "g", "t", {0: 5})
    lines(audited)
    for client_id, version in (("a", 8), ("b", 8), ("b", 7), ("c", 7), ("a", 8)):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
        await wire.ask(request, version, OffsetCommitResponse, client_id)
    written = [line["client_id"] for line in lines(audited) if line["event"] == "offsets set"]
    assert written == ["a", "b", "c"]


async def test_a_reset_that_names_a_member_is_written(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    await make_topic(wire, "t")
    await commit(wire, "g", "t", {0: 5})
    await commit(wire, "h", "t", {0: 5}, member_id="odd")
    groups = [line["group"] for line in lines(audited) if line["event"] == "offsets set"]
    assert groups == ["g", "h"]


async def test_a_commit_that_is_refused_is_not_written(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    await make_topic(wire, "t")
    await join_alone(wire, "g", "t", 0)
    lines(audited)
    topics = [
        OffsetCommitRequestTopic(
            name="t",
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)],
        )
    ]
    answer = await wire.ask(OffsetCommitRequest(group_id="g", topics=topics), 7, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert lines(audited) == []


async def test_transactions_that_an_administrator_ends(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    await make_topic(wire, "t")
    lines(audited)

    async def mark(commit: bool, *partitions: int) -> None:
        topic = WritableTxnMarkerTopic(name="t", partition_indexes=list(partitions))
        marker = WritableTxnMarker(
            producer_id=7, producer_epoch=0, transaction_result=commit, topics=[topic], coordinator_epoch=0
        )
        await wire.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)

    await mark(True, 0, 0)
    await mark(False, 0, 99)
    of = {"producer_id": 7, "topic": "t", "partitions": [0]}
    assert lines(audited) == [{"event": "transaction committed", **of}, {"event": "transaction aborted", **of}]


async def test_a_producer_that_is_named_with_both_ends_is_written_with_both(
    wire: Wire, audited: pytest.LogCaptureFixture
) -> None:
    await make_topic(wire, "t")
    await make_topic(wire, "u")
    lines(audited)
    markers = [
        WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=commits,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        for commits, topic in ((False, "t"), (True, "u"))
    ]
    await wire.ask(WriteTxnMarkersRequest(markers=markers), 1, WriteTxnMarkersResponse)
    assert lines(audited) == [
        {"event": "transaction aborted", "producer_id": 7, "topic": "t", "partitions": [0]},
        {"event": "transaction committed", "producer_id": 7, "topic": "u", "partitions": [0]},
    ]


async def test_elections(wire: Wire, audited: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    await make_topic(wire, "t")
    lines(audited)
    request = ElectLeadersRequest(
        election_type=0, topic_partitions=[ElectedPartitions(topic="t", partitions=[0])], timeout_ms=1000
    )
    await wire.ask(request, 2, ElectLeadersResponse)
    assert lines(audited) == []  # the only broker leads it

    def elect(*_: Any) -> Any:
        return [], {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.ELECTION_NOT_NEEDED}

    monkeypatch.setattr(controller, "elect_leaders", elect)
    await wire.ask(request, 2, ElectLeadersResponse)
    assert lines(audited) == [{"event": "leader elected", "partition": "t-0", "election": "preferred"}]


async def test_configurations_of_groups(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    for value in ("50000", "no number"):
        config = IncrementalAlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value=value)
        group = IncrementalAlterConfigsResource(resource_type=32, resource_name="g", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[group], validate_only=False)
        await wire.ask(request, 1, IncrementalAlterConfigsResponse)
    changed = {"set": {"consumer.session.timeout.ms": "50000"}, "removed": []}
    assert lines(audited) == [{"event": "group configured", "group": "g", **changed}]


async def test_configurations_of_client_metrics(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    for value in ("500", "no number"):
        config = IncrementalAlterableConfig(name="interval.ms", config_operation=0, value=value)
        metrics = IncrementalAlterConfigsResource(resource_type=16, resource_name="all", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[metrics], validate_only=False)
        await wire.ask(request, 1, IncrementalAlterConfigsResponse)
    changed = {"set": {"interval.ms": "500"}, "removed": []}
    assert lines(audited) == [{"event": "client metrics configured", "name": "all", **changed}]


async def test_names_of_clients_cannot_forge_a_line(wire: Wire, audited: pytest.LogCaptureFixture) -> None:
    await make_topic(wire, "t")
    lines(audited)
    await commit(wire, "g\n2026 [info] forged", "t", {0: 5})
    assert "g\\n2026 [info] forged" in [line["group"] for line in lines(audited) if line["event"] == "offsets set"]
