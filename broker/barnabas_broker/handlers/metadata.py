"""Metadata, DescribeCluster and FindCoordinator: brokers, topics, leaders and coordinators."""

from collections.abc import Awaitable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from barnabas_broker.cluster.image import BrokerInfo, Image, TopicInfo
from barnabas_broker.config.keys import AUTO_CREATE_TOPICS_ENABLE
from barnabas_broker.groups.sightings import MemberConnection
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.groups import caller_of
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.handlers.topic_names import missing_code
from barnabas_broker.handlers.topics import create_automatically
from barnabas_broker.security import acls, operations
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, by_key, distinct, each
from barnabas_protocol import codec
from barnabas_protocol.codec import RequestHeader
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import (
    EVENTS_TOPIC,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SHARE_GROUPS_TOPIC,
    TRANSACTION_EVENTS_TOPIC,
    TRANSACTIONS_TOPIC,
    partition_for,
)
from barnabas_protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from barnabas_protocol.wire import Buffer, Encoded

_NO_ID = bytes(16)
#: The first version that requests topics by id.
_BY_ID: Final = 12
#: The first version whose clients know LISTENER_NOT_FOUND.
_LISTENERS: Final = 6
#: The errors of names that no topic has.
_NO_TOPIC: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
#: Names that are looked up in one step.
_NAMES_PER_STEP: Final = 100
#: Partitions that are shown in one step. Lists of more are kept, encoded.
_PARTITIONS_PER_STEP: Final = 100

_Reachable = dict[int, tuple[BrokerInfo, str, int]]


def decode_metadata(cls: type[Request], header: RequestHeader, frame: Buffer) -> Request:
    """Read a Metadata request; trailing bytes are allowed, see the known deviation in the message's module.

    Raises:
        DecodeError: it is malformed.
    """
    return codec.decode(cls, header.api_version, codec.body(cls, header, frame), trailing=True)


@stepwise
def handle_metadata(
    context: RequestContext, request: MetadataRequest
) -> Steps[MetadataResponse | Awaitable[MetadataResponse]]:
    """Answer Metadata; missing topics are created first if the client and the configuration allow it."""
    asked = request.topics or ()
    if context.version < _BY_ID and any(t.name is None or t.topic_id != _NO_ID for t in asked):
        return (yield from _refused(asked))
    if request.allow_auto_topic_creation or context.version < 4:
        missing = yield from _missing(context, asked)
        if missing:
            creatable, refused = yield from _creatable(context, missing)
            if creatable:
                return _create_and_answer(context, request, creatable, refused)
            return (yield from _answer(context, request, refused))
    return (yield from _answer(context, request, {}))


def _missing(context: RequestContext, asked: Iterable[MetadataRequestTopic]) -> Steps[list[str]]:
    """The topics that are requested by names that no topic has, each once."""
    topics = context.services.cluster.image.topics
    missing: dict[str, None] = {}
    for number, topic in enumerate(asked, 1):
        if topic.name is not None and topic.topic_id == _NO_ID and topic.name not in topics:
            missing[topic.name] = None
        if not number % _NAMES_PER_STEP:
            yield
    return list(missing)


def _creatable(context: RequestContext, missing: Sequence[str]) -> Steps[tuple[list[str], dict[str, ErrorCode]]]:
    """Those missing topics that may be created for the client, and the errors of others that it may describe."""
    hidden = yield from split(context, missing, acls.DESCRIBE, audit=False)
    described = [name for name in missing if name not in hidden]
    refused: dict[str, ErrorCode] = {}
    if context.services.config[AUTO_CREATE_TOPICS_ENABLE]:
        not_allowed = yield from split(context, described, acls.CREATE, unless=acls.CREATE)
        refused = dict.fromkeys(not_allowed, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    creatable = []
    for name in described:
        yield
        if name not in refused:
            code = missing_code(name)
            if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                refused[name] = code
            else:
                creatable.append(name)
    return creatable, refused


async def _create_and_answer(
    context: RequestContext, request: MetadataRequest, missing: Sequence[str], refused: Mapping[str, ErrorCode]
) -> MetadataResponse:
    failed = await create_automatically(context, missing)
    codes = {**refused, **{name: error.code for name, error in failed.items()}}
    return await context.sliced(_answer(context, request, codes))


def _answer(
    context: RequestContext, request: MetadataRequest, refused: Mapping[str, ErrorCode]
) -> Steps[MetadataResponse]:
    """The response from the image; `refused` are the topics that could not be created."""
    image, asked = context.services.cluster.image, request.topics
    reachable, access = _reachable(context, image), context.access
    topics: list[MetadataResponseTopic] = []
    are_all = asked is None or (not asked and context.version == 0)
    if are_all:
        # Topics that the client may not describe are left out.
        hidden = yield from split(context, image.topics, acls.DESCRIBE, audit=False)
        for topic in image.topics.values():
            if topic.name not in hidden:
                topics.append((yield from _topic(context, image, reachable, topic, request)))
            yield
    else:
        once, _ = yield from by_key(asked or (), lambda one: (one.name, one.topic_id))
        hidden = yield from split(context, (_name(image, one) for one in once.values()), acls.DESCRIBE)
        for one in once.values():
            if topics:
                yield
            name = _name(image, one)
            known = image.topics.get(name) if name is not None else None
            if name in hidden:
                # The same whether it exists or not, except by id, which tells nothing.
                topics.append(_unknown(one.name, one.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif known is not None:
                topics.append((yield from _topic(context, image, reachable, known, request)))
            elif one.topic_id != _NO_ID:
                topics.append(_unknown(None, one.topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                code = refused.get(one.name or "")
                topics.append(_unknown(one.name, _NO_ID, missing_code(one.name or "") if code is None else code))
    if access is not None and request.include_topic_authorized_operations:
        for shown in topics:
            if shown.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                continue
            shown.topic_authorized_operations = operations.authorized(access, acls.TOPIC, shown.name or "")
            yield
    seen = context.peer.seen
    if isinstance(seen, MemberConnection) and seen.sought is not None and (are_all or asked):
        named = () if are_all else topics
        seen.asked_for_topics(
            (one.name or "" for one in named if one.error_code in _NO_TOPIC),
            (one.name or "" for one in named if one.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            are_all=are_all,
        )
    asked_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=b.node_id, host=host, port=port, rack=b.rack)
            for b, host, port in reachable.values()
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            operations.authorized_on_cluster(access) if asked_operations else operations.NOT_ASKED
        ),
    )


def _reachable(context: RequestContext, image: Image) -> _Reachable:
    """The brokers that have a listener of the name that this client uses, with its address (KIP-103)."""
    name = context.listener
    return {node: (b, *b.endpoints[name]) for node, b in image.brokers.items() if name in b.endpoints}


def _name(image: Image, asked: MetadataRequestTopic) -> str | None:
    """The name of a requested topic; None if it is requested by an id that no topic has."""
    return image.names.get(asked.topic_id) if asked.topic_id != _NO_ID else asked.name


def _refused(asked: Sequence[MetadataRequestTopic]) -> Steps[MetadataResponse]:
    """Refuse ids in versions 10 and 11, which have the field but do not support it yet (KIP-516)."""
    topics = yield from each(asked, lambda topic: _unknown(topic.name or "", topic.topic_id, ErrorCode.INVALID_REQUEST))
    return MetadataResponse(brokers=[], topics=topics)


def _unknown(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _topic(
    context: RequestContext, image: Image, reachable: _Reachable, topic: TopicInfo, request: MetadataRequest
) -> Steps[MetadataResponseTopic]:
    short = len(topic.partitions) <= _PARTITIONS_PER_STEP
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=(
            _partitions(context, image, reachable, topic, 0)
            if short
            else (yield from _long_list(context, image, reachable, topic))
        ),
        topic_authorized_operations=(
            operations.TOPIC if request.include_topic_authorized_operations else operations.NOT_ASKED
        ),
    )


def _long_list(
    context: RequestContext, image: Image, reachable: _Reachable, topic: TopicInfo
) -> Steps[list[MetadataResponsePartition]]:
    """The partitions of a large topic, some per step; encoded for further requests if all of them have a leader."""
    lists, listener, version = context.services.partition_lists, context.listener, context.version
    kept = lists.find(image, topic, listener, version)
    if kept is not None:
        return kept
    partitions: list[MetadataResponsePartition] = []
    content, failed = bytearray(), False
    for first in range(0, len(topic.partitions), _PARTITIONS_PER_STEP):
        some = _partitions(context, image, reachable, topic, first)
        partitions += some
        failed = failed or any(each.error_code for each in some)
        if not failed:
            content += codec.encode_elements(some, MetadataResponse, version)
        yield
    if failed:
        return partitions  # metrics count their errors
    encoded: Encoded[MetadataResponsePartition] = Encoded(len(partitions), bytes(content))
    lists.keep(image, topic, listener, version, encoded)
    return encoded


def _partitions(
    context: RequestContext, image: Image, reachable: _Reachable, topic: TopicInfo, first: int
) -> list[MetadataResponsePartition]:
    """Partitions of a topic, as many as a step has, from `first` on."""

    def state(leader: int) -> ErrorCode:
        if leader in reachable:
            return ErrorCode.NONE
        if leader in image.brokers and context.version >= _LISTENERS:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE

    return [
        MetadataResponsePartition(
            error_code=state(p.leader),
            partition_index=index,
            leader_id=p.leader,
            leader_epoch=p.leader_epoch,
            replica_nodes=list(p.replicas),
            isr_nodes=list(p.isr),
            offline_replicas=[r for r in p.replicas if r not in reachable],
        )
        for index, p in enumerate(topic.partitions[first : first + _PARTITIONS_PER_STEP], first)
    ]


def handle_describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Answer DescribeCluster. There are no controller endpoints: a broker is the controller.

    Known deviation: while the broker cannot do something, a response without an error has an error message: a line for
    each condition, with its name and its text. Clients do not look at it then. Apache Kafka's brokers leave it empty.
    """
    image = context.services.cluster.image
    asked = request.include_cluster_authorized_operations
    if request.endpoint_type != 1:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if request.endpoint_type == 2 else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=code,
            error_message="The request was sent to an endpoint of type BROKER.",
            cluster_id="",
            brokers=[],
        )
    conditions = context.services.conditions.now()
    shown = bool(conditions) and context.allows_on_cluster(acls.DESCRIBE, audit=False)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message="\n".join(f"{each.name.value}: {each.text}" for each in conditions) if shown else None,
        endpoint_type=1,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=b.node_id, host=host, port=port, rack=b.rack)
            for b, host, port in _reachable(context, image).values()
        ],
        cluster_authorized_operations=(
            operations.authorized_on_cluster(context.access) if asked else operations.NOT_ASKED
        ),
    )


_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
#: Characters of a topic id in base64.
_ID_LENGTH: Final = 22
#: The topic that decides who coordinates a key: the leader of the key's partition.
_COORDINATED_BY: Final = {_GROUP: OFFSETS_TOPIC, _TRANSACTION: TRANSACTIONS_TOPIC, _SHARE: SHARE_GROUPS_TOPIC}
#: The resource that a client has to be allowed to describe, and the error if it is not.
_DESCRIBED: Final = {
    _GROUP: (acls.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    _TRANSACTION: (acls.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
#: The internal topics that are created on first use.
_NEEDED: Final = {
    _GROUP: (EVENTS_TOPIC, OFFSETS_TOPIC),
    _TRANSACTION: (TRANSACTION_EVENTS_TOPIC, TRANSACTIONS_TOPIC),
    _SHARE: (SHARE_GROUPS_TOPIC,),
}


async def handle_find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Answer FindCoordinator; the internal topics are created on first use, as in Kafka."""
    batched = context.version >= 4
    keys = request.coordinator_keys if batched else [request.key]
    refused, code = await context.sliced(_refusals(context, request.key_type, keys))
    if any(key not in refused for key in keys):
        await _prepare(context, _NEEDED.get(request.key_type, ()))
    steps = each(keys, partial(_coordinator, context, request.key_type, refused, code))
    found = await context.sliced(steps)
    if request.key_type == _GROUP and len(keys) == 1 and keys[0] not in refused:
        # Only administrators' programs ask for several groups at once.
        told = found[0]
        advertised = f"{told.host}:{told.port}" if told.host else ""
        caller = caller_of(context)
        if context.peer.left and caller.connection is not None:
            caller.connection.lost("client", "")
        context.services.groups.sought(keys[0], caller, context.listener, advertised)
    if batched:
        return FindCoordinatorResponse(coordinators=found)
    one: Sequence[Coordinator] = found
    return FindCoordinatorResponse(
        error_code=one[0].error_code,
        error_message=one[0].error_message or ErrorCode(one[0].error_code).name,  # Kafka says NONE, too
        node_id=one[0].node_id,
        host=one[0].host,
        port=one[0].port,
    )


async def _prepare(context: RequestContext, topics: Sequence[str]) -> None:
    """Create the internal topics that are missing, and wait until this broker can coordinate its partitions of them.

    Another client may just have made them exist; the request after this one would be answered NOT_COORDINATOR.
    """
    services = context.services
    missing = [name for name in topics if name not in services.cluster.image.topics]
    if not missing and not any(services.replicas.creating(name) for name in topics):
        return
    await create_automatically(context, missing)
    await services.replicas.changed()
    for partitions in (services.group_partitions, services.transaction_partitions, services.share_partitions):
        partitions.reconcile()  # or the client's next request may come before this broker has noticed


def _refusals(context: RequestContext, key_type: int, keys: Sequence[str]) -> Steps[tuple[Container[str], ErrorCode]]:
    """The keys of which the client may not know the coordinator, and why."""
    if key_type in _DESCRIBED:
        resource, code = _DESCRIBED[key_type]
        return (yield from split(context, keys, acls.DESCRIBE, resource)), code
    if key_type == _SHARE and not context.allows_on_cluster(acls.CLUSTER_ACTION):
        return (yield from distinct(keys)), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return (), ErrorCode.NONE


def _coordinator(
    context: RequestContext, key_type: int, refused: Container[str], code: ErrorCode, key: str
) -> Coordinator:
    if key in refused:
        return _no_coordinator(key, code, "")
    if key_type == _SHARE and not _is_share_key(key):
        text = "The key of a share partition must be groupId:topicId:partition."
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, text)
    if key_type not in _COORDINATED_BY:
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"Coordinators of key type {key_type} are not served.")
    services = context.services
    image = services.cluster.image
    topic = image.topics.get(_COORDINATED_BY[key_type])
    if topic is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    leader = topic.partitions[partition_for(key, len(topic.partitions))].leader
    there = _reachable(context, image).get(leader)
    if there is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    _, host, port = there
    return Coordinator(key=key, node_id=leader, host=host, port=port, error_code=ErrorCode.NONE, error_message="")


def _is_share_key(key: str) -> bool:
    """Whether a key names a share partition: a group, a topic id in 22 characters of base64, and a number."""
    group, topic_id, partition = key.rsplit(":", 2) if key.count(":") >= 2 else ("", "", "")
    return bool(group) and len(topic_id) == _ID_LENGTH and partition.isdecimal() and partition.isascii()


def _no_coordinator(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


ROUTES: Final = (
    Route(
        ApiKey.METADATA,
        handle_metadata,
        (
            requires((acls.DESCRIBE, acls.TOPIC)),
            requires((acls.CREATE, acls.CLUSTER), (acls.CREATE, acls.TOPIC), when="a missing topic is created"),
            requires((acls.DESCRIBE, acls.CLUSTER), when="the cluster's authorized operations are asked for"),
        ),
        decode=decode_metadata,
        changes=(Change.TOPIC_CREATED,),
    ),
    Route(
        ApiKey.FIND_COORDINATOR,
        handle_find_coordinator,
        (
            requires((acls.DESCRIBE, acls.GROUP), when="key type 0, a group"),
            requires((acls.DESCRIBE, acls.TRANSACTIONAL_ID), when="key type 1, a transaction"),
            requires((acls.CLUSTER_ACTION, acls.CLUSTER), when="key type 2, a share partition"),
        ),
        changes=(Change.TOPIC_CREATED,),
    ),
    Route(
        ApiKey.DESCRIBE_CLUSTER,
        handle_describe_cluster,
        (requires((acls.DESCRIBE, acls.CLUSTER), when="the cluster's authorized operations are asked for"),),
    ),
)
