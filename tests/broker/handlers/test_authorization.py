"""Every handler asks for what its row declares, and for nothing else; and answers what Kafka does if it is refused.

The answers themselves are compared with Apache Kafka's in tests/interop/behaviour.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.acls import AclCreated
from barnabas_broker.cluster.image import Event, Image, PartitionInfo, TopicCreated
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_broker.handlers.table import PUBLIC, join
from barnabas_broker.security import acls, operations
from barnabas_broker.security.acls import Permission
from barnabas_broker.security.authorizer import Access
from barnabas_broker.security.bindings import AclBinding
from barnabas_broker.security.principals import Principal
from barnabas_protocol.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.apis import APIS
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_protocol.messages.heartbeat import HeartbeatResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.records.builder import build_batch
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import BYTES, RECORDS, STRING, Request, Struct, WireType
from tests.wire import Wire, until

#: What no request of this test reaches: the coordinator of a share partition (key type 2), topics of share sessions,
#: and topics in responses about groups and transactions, of which the broker of this test has none.
UNREACHED: Final = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: {(acls.DESCRIBE, acls.TOPIC)},
    ApiKey.SHARE_GROUP_DESCRIBE: {(acls.DESCRIBE, acls.TOPIC)},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: {(acls.DESCRIBE, acls.TOPIC)},
    ApiKey.DESCRIBE_TRANSACTIONS: {(acls.DESCRIBE, acls.TOPIC)},
    ApiKey.LIST_TRANSACTIONS: {(acls.DESCRIBE, acls.TRANSACTIONAL_ID)},
    ApiKey.LIST_GROUPS: {(acls.DESCRIBE, acls.GROUP)},
    ApiKey.SHARE_FETCH: {(acls.READ, acls.TOPIC)},
    ApiKey.SHARE_ACKNOWLEDGE: {(acls.READ, acls.TOPIC)},
}
REFUSALS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
#: What they may not see is left out.
LISTS: Final = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER}


#: Responses without a field for the error; and requests with an id that no topic has.
WITHOUT_ERROR: Final = {(ApiKey.DESCRIBE_LOG_DIRS, 0), (ApiKey.FETCH, 18)}
#: What clients are allowed.
MODES: Final[dict[str, Callable[[AclOperation, AclResourceType], bool]]] = {
    "nothing": lambda operation, resource: False,
    "to describe topics": lambda operation, resource: operation is acls.DESCRIBE and resource is acls.TOPIC,
    "all topics": lambda operation, resource: resource is acls.TOPIC,
    "everything": lambda operation, resource: True,
}


def topic_created(image: Image) -> tuple[list[Event], None]:
    partitions = (PartitionInfo(1, 0, (1,), (1,)),)
    return ([] if "x" in image.topics else [TopicCreated("x", bytes([1] * 16), partitions, {})]), None


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    settings = {"log.dir": str(tmp_path / "data"), "authorizer.class.name": STANDARD_AUTHORIZER}
    running = await BrokerServer.start(Config(BROKER_KEYS, settings), port=0)
    yield running
    await running.stop()


def value(of: WireType[Any], name: str, version: int, variant: int) -> Any:
    if of.struct is not None:
        return filled(of.struct, version, variant)
    if of.element is not None:
        if name in ("assignments", "configs"):
            return []
        return [value(of.element, name, version, variant)]
    if of is STRING:
        return "x"
    if of is RECORDS or (of is BYTES and name == "records"):
        return build_batch(
            [(None, b"v", [], 0)],
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            transactional=bool(variant),
        )
    if name in ("resource_type", "operation", "permission_type"):
        return {"resource_type": (2, 4, 32)[variant]}.get(name, 3)
    if name == "key_type":
        return variant
    if name == "replica_id":
        return -1 if variant == 0 else 1
    if name in ("num_partitions", "replication_factor"):
        return 1
    return of.zero


def filled(kind: type[Struct], version: int, variant: int) -> Any:
    """A message in which every field that the version has is set."""
    fields = {
        each.name: value(each.type, each.name, version, variant) if version in each.versions else each.absent()
        for each in kind.FIELDS
    }
    if "transactional_id" in fields and variant == 1 and kind is api(ApiKey.INIT_PRODUCER_ID).request:
        fields["transactional_id"] = None
    for name in ("include_cluster_authorized_operations", "allow_auto_topic_creation"):
        if name in fields and version in next(f.versions for f in kind.FIELDS if f.name == name):
            fields[name] = True
    if "endpoint_type" in fields:
        fields["endpoint_type"] = 1
    if "producer_id" in fields and kind is api(ApiKey.INIT_PRODUCER_ID).request:
        fields["producer_id"] = fields["producer_epoch"] = -1
    return kind(**fields)


def codes(message: Any) -> Iterator[int]:
    """All error codes of a response."""
    if isinstance(message, list):
        for one in message:
            yield from codes(one)
    elif isinstance(message, Struct):
        for each in message.FIELDS:
            if each.name.endswith("error_code"):
                yield getattr(message, each.name)
            yield from codes(getattr(message, each.name))


@pytest.mark.parametrize("key", [key for key in APIS if key not in PUBLIC], ids=lambda key: key.name)
async def test_handlers_ask_for_what_their_rows_declare(
    key: ApiKey, broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[Permission] = set()
    allow = MODES["nothing"]

    def decide(who: str, host: str, operation: AclOperation, resource: AclResourceType, name: str) -> bool:
        asked.add(Permission(operation, resource))
        return allow(operation, resource)

    def decide_by_type(who: str, host: str, operation: AclOperation, resource: AclResourceType) -> bool:
        return decide(who, host, operation, resource, "")

    authorizer = broker.services.authorizer
    assert authorizer is not None
    monkeypatch.setattr(authorizer, "decide", decide)
    monkeypatch.setattr(authorizer, "decide_by_type", decide_by_type)
    # These ask for all operations that there are.
    monkeypatch.setattr(operations, "authorized", lambda *args: 0)
    route = join()[key]
    declared = {permission for each in route.authorizes for permission in each.any_of}
    for version in sorted({route.served.low, 3, 4, 7, 8, route.served.high}):
        if version not in route.served:
            continue
        for variant in (0, 1, 2):
            for mode in MODES:
                allow = MODES[mode]
                authorizer.change()
                if key is ApiKey.DELETE_TOPICS:
                    await broker.services.cluster.change(topic_created)
                before = set(asked)
                asked.clear()
                async with await Wire.connect(broker.port) as wire:
                    request = filled(api(key).request, version, variant)
                    assert isinstance(request, Request)
                    async with asyncio.timeout(20):
                        wire.send(request, version)
                        if key is ApiKey.PRODUCE:
                            assert await wire.closed()
                            response = None
                        else:
                            frame = await wire.frame()
                            response = broker_response(key, version, frame)
                assert asked <= declared, (mode, version, variant)
                if mode == "nothing" and response is not None and (key, version) not in WITHOUT_ERROR:
                    refused = REFUSALS & set(codes(response))
                    assert refused or not asked or key in LISTS, (version, variant, response)
                asked |= before
    assert asked | UNREACHED.get(key, set()) == declared


def broker_response(key: ApiKey, version: int, frame: bytes) -> Any:
    return decode_response(api(key).response, version, frame)


# From CreateAcls to what it allows


def binding(**change: Any) -> AclCreation:
    values: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "principal": "User:ANONYMOUS",
        "host": "*",
        "operation": acls.DESCRIBE,
        "permission_type": AclPermissionType.ALLOW,
    }
    return AclCreation(**values | change)


async def described(wire: Wire) -> ErrorCode:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    return ErrorCode((await wire.ask(request, 9, MetadataResponse)).topics[0].error_code)


def settings_of(folder: Path, **more: str) -> Config:
    return Config(BROKER_KEYS, {"log.dir": str(folder), "authorizer.class.name": STANDARD_AUTHORIZER, **more})


async def test_a_new_acl_counts_at_once_and_after_a_restart(tmp_path: Path) -> None:
    everything = {"super.users": "User:ANONYMOUS"}
    broker = await BrokerServer.start(settings_of(tmp_path, **everything), port=0)
    try:
        async with await Wire.connect(broker.port) as wire:
            request = CreateAclsRequest(creations=[binding(), binding(resource_name="")])
            results = (await wire.ask(request, 3, CreateAclsResponse)).results
            assert [each.error_code for each in results] == [0, ErrorCode.INVALID_REQUEST]
    finally:
        await broker.stop()
    cluster = binding(resource_type=4, resource_name="kafka-cluster", operation=acls.ALTER)
    broker = await BrokerServer.start(settings_of(tmp_path), port=0)
    try:
        async with await Wire.connect(broker.port) as wire:
            assert await described(wire) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = (await wire.ask(CreateAclsRequest(creations=[cluster]), 3, CreateAclsResponse)).results
            assert refused[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert len(broker.services.cluster.image.acls) == 1
    finally:
        await broker.stop()


async def test_a_deleted_acl_counts_no_more(tmp_path: Path) -> None:
    broker = await BrokerServer.start(settings_of(tmp_path), port=0)
    try:
        alter = AclBinding(
            acls.CLUSTER,
            CLUSTER_NAME,
            AclPatternType.LITERAL,
            "User:ANONYMOUS",
            "127.0.0.1",
            acls.ALTER,
            AclPermissionType.ALLOW,
        )
        await broker.services.cluster.change(lambda image: ([AclCreated(alter)], None))
        async with await Wire.connect(broker.port) as wire:
            assert await described(wire) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await wire.ask(CreateAclsRequest(creations=[binding(), binding()]), 3, CreateAclsResponse)
            assert await described(wire) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics = DeleteAclsFilter(
                resource_type_filter=2,
                resource_name_filter=None,
                pattern_type_filter=AclPatternType.ANY,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            deleted = await wire.ask(DeleteAclsRequest(filters=[topics]), 3, DeleteAclsResponse)
            assert [each.resource_name for each in deleted.filter_results[0].matching_acls] == ["orders"]
            assert await described(wire) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    finally:
        await broker.stop()


async def test_a_fetch_that_is_refused_for_a_topic_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await BrokerServer.start(settings_of(tmp_path), port=0)
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(broker.services.groups.fetches, "denied", lambda client, *of: found.append((client.host, *of)))
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    fetch = FetchRequest(
        max_wait_ms=1_000, min_bytes=1, topics=[FetchTopic(topic="orders", topic_id=bytes(16), partitions=[wanted])]
    )
    try:
        async with await Wire.connect(broker.port) as wire:
            response = await wire.ask(fetch, 12, FetchResponse)
            error = response.responses[0].partitions[0].error_code
            assert error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert found == [("/127.0.0.1", "orders", "User:ANONYMOUS")]
    finally:
        await broker.stop()


def allow_all(image: Image) -> tuple[list[Event], None]:
    """ACLs that allow every principal all operations on all topics and groups."""
    allow = AclPermissionType.ALLOW
    return [
        AclCreated(AclBinding(kind, "*", AclPatternType.LITERAL, "User:*", "*", AclOperation.ALL, allow))
        for kind in (acls.TOPIC, acls.GROUP)
    ], None


def deny_all(image: Image) -> tuple[list[Event], None]:
    """ACLs that deny every principal all operations on topics and groups whose names begin with x."""
    deny = AclPermissionType.DENY
    return [
        AclCreated(AclBinding(kind, "x", AclPatternType.PREFIXED, "User:*", "*", AclOperation.ALL, deny))
        for kind in (acls.TOPIC, acls.GROUP)
    ], None


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.PRODUCE, 9),
        (ApiKey.PRODUCE, 13),
        (ApiKey.FETCH, 11),
        (ApiKey.FETCH, 17),
        (ApiKey.HEARTBEAT, 4),
        (ApiKey.OFFSET_COMMIT, 8),
    ],
    ids=lambda each: each.name if isinstance(each, ApiKey) else str(each),
)
async def test_an_acl_counts_for_the_next_request_of_a_connection(
    key: ApiKey, version: int, broker: BrokerServer
) -> None:
    """What was decided is kept for the requests that are sent most often; a change forgets it."""
    cluster = broker.services.cluster
    await cluster.change(topic_created)
    await cluster.change(allow_all)
    request: Any = filled(api(key).request, version, 0)
    if key is ApiKey.PRODUCE:
        request.acks = 1
        request.topic_data[0].topic_id = bytes([1] * 16)
    elif key is ApiKey.FETCH:
        request.topics[0].topic_id = bytes([1] * 16)
    async with await Wire.connect(broker.port) as wire:

        async def refused() -> bool:
            async with asyncio.timeout(20):
                return bool(REFUSALS & set(codes(await wire.ask(request, version, api(key).response))))

        assert [await refused() for _ in range(3)] == [False] * 3
        await cluster.change(deny_all)
        assert await refused()
        assert await refused()


async def test_connections_of_a_principal_share_decisions_that_end_with_the_last_of_them(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = broker.services.authorizer
    assert authorizer is not None
    looked_up: list[str] = []
    access = authorizer.access

    def counted(principal: Principal, host: str) -> Access:
        looked_up.append(host)
        return access(principal, host)

    monkeypatch.setattr(authorizer, "access", counted)
    await broker.services.cluster.change(allow_all)
    request = filled(api(ApiKey.HEARTBEAT).request, 4, 0)
    gc.disable()  # what is left of a connection is freed without the collector
    try:
        async with await Wire.connect(broker.port) as one, await Wire.connect(broker.port) as other:
            for wire in (one, other, one, other):
                for version in (3, 4):
                    await wire.ask(request, version, HeartbeatResponse)
            # Once for each connection, whatever it asks.
            assert len(looked_up) == 2
            assert len(authorizer._accesses) == 1
        await until(lambda: not broker.server.connections)
        assert len(authorizer._accesses) == 0
    finally:
        gc.enable()


async def test_wrong_super_users_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"super\.users: must be principals as User:NAME"):
        await BrokerServer.start(settings_of(tmp_path, **{"super.users": "ada"}), port=0)
