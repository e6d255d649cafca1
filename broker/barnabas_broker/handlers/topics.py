"""CreateTopics, DeleteTopics, CreatePartitions, and topics that are created automatically.

Deviation: clients can neither create, delete nor grow an internal topic, and ``__consumer_offsets`` stays compacted.
The retention of ``__share_group_state`` stays without limits.
Apache Kafka lets them: deleting it deletes every committed offset, growing it moves groups away from their offsets.

Deviation: a CreateTopics response shows configurations of up to :data:`_MOST_ROWS` rows; INVALID_REQUEST stands for
those of the topics that follow.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Final, TypeVar

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Event, Image, TopicCreated, TopicInfo
from barnabas_broker.cluster.metadata import ClusterMetadata, new_topic_id
from barnabas_broker.config import TOPIC_KEYS, Config, ConfigError, ConfigSource, TopicConfig, show
from barnabas_broker.config.keys import (
    AUTO_CREATE_TOPICS_ENABLE,
    CLEANUP_POLICY,
    CLUSTER_URL,
    DEFAULT_REPLICATION_FACTOR,
    DELETE_TOPIC_ENABLE,
    NUM_PARTITIONS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    RETENTION_BYTES,
    RETENTION_MS,
    SHARE_STATE_MIN_ISR,
    SHARE_STATE_NUM_PARTITIONS,
    SHARE_STATE_REPLICATION_FACTOR,
    SHARE_STATE_SEGMENT_BYTES,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_SEGMENT_BYTES,
)
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.logs import logger
from barnabas_broker.quotas.clients import MutationQuota
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, by_key, each, release
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import (
    EVENTS_TOPIC,
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    SHARE_GROUPS_TOPIC,
    TRANSACTION_EVENTS_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas_protocol.registry import ApiKey

log = logger("topics")

T = TypeVar("T")
K = TypeVar("K")

_NO_ID = bytes(16)
#: How a client names a topic that it deletes: by name, or by id.
_Named = tuple[str | None, bytes]
#: The versions from which on clients know THROTTLING_QUOTA_EXCEEDED (KIP-599); before that, they only wait.
_STRICT_CREATE: Final = 6
_STRICT_DELETE: Final = 5
_STRICT_GROW: Final = 3
#: Configurations of one resource in a request. There are a few hundred keys.
MOST_CONFIGS: Final = 10_000
TOO_MANY_CONFIGS: Final = f"A resource may have at most {MOST_CONFIGS:,} configurations in a request."


def _count_once(context: RequestContext, quota: MutationQuota) -> Callable[[int], None]:
    """Counts the partitions that a change creates or deletes, once, however often it is decided on."""
    counted = False

    def count(partitions: int) -> None:
        nonlocal counted
        if not counted:
            quota.record(partitions, context.services.now())
            counted = True

    return count


def check_topic_configs(config: Config, overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Read overrides.

    Raises:
        KafkaError: INVALID_CONFIG, naming key and value.
    """
    given = {}
    for name, value in overrides.items():
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        given[name] = value
    try:
        TopicConfig(config, given, TOPIC_KEYS)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return given


#: Names that clients cannot give to topics.
_RESERVED: Final = INTERNAL_TOPICS | {METADATA_TOPIC}
#: What the internal topics of this broker hold.
_HOLDS: Final = {
    OFFSETS_TOPIC: "it holds the committed offsets of all groups",
    EVENTS_TOPIC: "it holds what happened to all groups",
    TRANSACTIONS_TOPIC: "it holds the states of all transactions",
    TRANSACTION_EVENTS_TOPIC: "it holds what happened to slow and aborted transactions",
    SHARE_GROUPS_TOPIC: "it holds what share groups have acknowledged",
}

#: Those that old events are deleted from.
_EVENTS: Final = frozenset((EVENTS_TOPIC, TRANSACTION_EVENTS_TOPIC))


def _check_not_internal(name: str, verb: str, instead: str) -> None:
    """Check that a topic is not internal.

    Args:
        name: its name.
        verb: what a client wants to do to it, as a participle.
        instead: what to do instead.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, as for Produce and DeleteRecords.
    """
    if name in INTERNAL_TOPICS:
        holds = _HOLDS.get(name, "only the broker writes to it")
        message = f"Topic {name} is internal and cannot be {verb}: {holds}. {instead}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def check_keeps_state(config: Config, name: str, overrides: Mapping[str, str]) -> None:
    """Check that a new configuration of a topic keeps what the broker reads from it again at each start.

    Raises:
        KafkaError: INVALID_CONFIG: committed offsets would be deleted with old segments.
    """
    read = TopicConfig(config, overrides, TOPIC_KEYS)
    policy = read[CLEANUP_POLICY]
    if name == SHARE_GROUPS_TOPIC:
        if policy != ("delete",) or read[RETENTION_MS] != -1 or read[RETENTION_BYTES] != -1:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"cleanup.policy of {name} must stay delete, retention.ms and retention.bytes -1: the broker itself "
                "deletes what it does not need any more, and anything else would delete state of share groups.",
            )
    elif name in INTERNAL_TOPICS and name not in _EVENTS and policy != ("compact",):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"cleanup.policy of {name} must stay compact: with {show(policy)}, the broker would delete old segments "
            "and the state that only they hold.",
        )


#: Makes the event that creates a topic, or raises KafkaError.
_Create = Callable[[Image, controller.TopicNames], TopicCreated]
#: The most topics, and the most partitions unless it is one topic, that are created or deleted by one change of the
#: metadata: a change holds the event loop.
_TOPICS_AT_ONCE: Final = 100
_PARTITIONS_AT_ONCE: Final = 1000


async def _create_all(
    context: RequestContext, wanted: Mapping[str, _Create], *, validate_only: bool = False
) -> dict[str, TopicInfo | KafkaError]:
    """Create topics with one change of the metadata; each succeeds or fails on its own.

    Args:
        context: of the request.
        wanted: by name, in order. They may be called several times.
        validate_only: only say what would happen.

    Returns:
        The topic or the error by name.
    """
    services = context.services
    outcomes: dict[str, TopicInfo | KafkaError] = {}

    def decide(image: Image) -> tuple[Sequence[Event], None]:
        names, events, first = controller.TopicNames(image), [], None
        for name, create in wanted.items():
            try:
                event = create(image, names)
            except KafkaError as error:
                first = first or error
                outcomes[name] = error.kept()
            else:
                events.append(event)
                outcomes[name] = TopicInfo(event.name, event.topic_id, event.partitions, event.configs)
        if first is not None and not events:
            raise KafkaError(first.code, first.message)  # on an image that is out of date it is decided again
        return [] if validate_only else events, None

    try:
        await services.cluster.change(decide)
    except KafkaError as error:
        return {
            name: own if isinstance(own := outcomes.get(name, error), KafkaError) else error.kept() for name in wanted
        }
    if not validate_only:
        await services.replicas.changed()
    return outcomes


async def create_automatically(context: RequestContext, names: Sequence[str]) -> dict[str, KafkaError]:
    """Create topics that a client uses and that do not exist, if the configuration allows it.

    Returns:
        The error of each topic that could not be created, by name.
    """
    services = context.services
    wanted: dict[str, _Create] = {}
    for name in names:
        await asyncio.sleep(0)  # what fails at once must not keep others waiting
        if name not in _HOLDS and (name in _RESERVED or not services.config[AUTO_CREATE_TOPICS_ENABLE]):
            continue

        count = _count_once(context, context.mutation_quota(0))

        def create(
            image: Image, taken: controller.TopicNames, name: str = name, count: Callable[[int], None] = count
        ) -> TopicCreated:
            event = _automatic_topic(services.config, image, name, taken)
            if name not in _HOLDS:
                count(len(event.partitions))
            return event

        wanted[name] = create
    refused: dict[str, KafkaError] = {}
    for some in _in_turns(wanted, lambda name: services.config[NUM_PARTITIONS]):
        for name, outcome in (await _create_all(context, some)).items():
            if isinstance(outcome, TopicInfo):
                _log_created(context, outcome, automatic=True)
                services.groups.new_topics.created_for(outcome.name, context.client)
            # Another request was first, or it is unknown until the client asks again.
            elif outcome.code not in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
                refused[name] = outcome
        await asyncio.sleep(0)
    return refused


async def create_internal(config: Config, cluster: ClusterMetadata, replicas: ReplicaManager, name: str) -> None:
    """Create an internal topic that the broker itself uses, unless it exists.

    Args:
        config: the broker's configuration.
        cluster: the cluster's metadata.
        replicas: the partitions of this broker.
        name: of the topic.

    Raises:
        KafkaError: it cannot be created now.
    """

    def decide(image: Image) -> tuple[Sequence[Event], TopicCreated | None]:
        if name in image.topics:
            return [], None
        event = _automatic_topic(config, image, name, controller.TopicNames(image))
        return [event], event

    created = await cluster.change(decide)
    if created is not None:
        log.info("internal topic created", topic=name, partitions=len(created.partitions), configs=created.configs)
    await replicas.changed()


def _in_turns(wanted: Mapping[K, T], partitions: Callable[[K], int]) -> Iterator[dict[K, T]]:
    """Divide topics into those that one change creates or deletes.

    Args:
        wanted: the topics.
        partitions: the number of partitions of a topic.
    """
    turn: dict[K, T] = {}
    total = 0
    for name, one in wanted.items():
        more = partitions(name)
        if turn and (len(turn) == _TOPICS_AT_ONCE or total + more > _PARTITIONS_AT_ONCE):
            yield turn
            turn, total = {}, 0
        turn[name] = one
        total += more
    if turn:
        yield turn


def _log_created(context: RequestContext, topic: TopicInfo, *, automatic: bool) -> None:
    """Audit a new topic. It is automatic if the client only used its name."""
    context.changed(
        Change.TOPIC_CREATED,
        topic=topic.name,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=dict(topic.configs),
        automatic=automatic,
    )


#: The partitions of ``__transaction_events``: few events are written, and all partitions are read.
_TRANSACTION_EVENTS_PARTITIONS: Final = 8
#: Retention of events: 7 days, in ms.
_EVENTS_RETENTION_MS: Final = 7 * 24 * 3_600_000


def _automatic_topic(config: Config, image: Image, name: str, taken: controller.TopicNames) -> TopicCreated:
    partitions, key = config[NUM_PARTITIONS], DEFAULT_REPLICATION_FACTOR
    configs = {}
    if name == TRANSACTIONS_TOPIC:
        partitions, key = config[TRANSACTION_STATE_LOG_NUM_PARTITIONS], TRANSACTION_STATE_LOG_REPLICATION_FACTOR
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config[TRANSACTION_STATE_LOG_MIN_ISR]),
            "segment.bytes": str(config[TRANSACTION_STATE_LOG_SEGMENT_BYTES]),
            "unclean.leader.election.enable": "false",
        }
    elif name == TRANSACTION_EVENTS_TOPIC:
        partitions, key = _TRANSACTION_EVENTS_PARTITIONS, TRANSACTION_STATE_LOG_REPLICATION_FACTOR
        configs = {"compression.type": "producer", "retention.ms": str(_EVENTS_RETENTION_MS)}
    elif name == SHARE_GROUPS_TOPIC:
        partitions, key = config[SHARE_STATE_NUM_PARTITIONS], SHARE_STATE_REPLICATION_FACTOR
        configs = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config[SHARE_STATE_MIN_ISR]),
            "retention.bytes": "-1",  # Kafka leaves it to the broker, which may have a limit
            "retention.ms": "-1",
            "segment.bytes": str(config[SHARE_STATE_SEGMENT_BYTES]),
            "unclean.leader.election.enable": "false",
        }
    elif name in _HOLDS:
        # The events of a group are in the partition of the same number.
        offsets = image.topics.get(OFFSETS_TOPIC)
        partitions = config[OFFSETS_TOPIC_NUM_PARTITIONS] if offsets is None else len(offsets.partitions)
        key = OFFSETS_TOPIC_REPLICATION_FACTOR
        configs = {"compression.type": "producer", "segment.bytes": str(config[OFFSETS_TOPIC_SEGMENT_BYTES])}
        if name == OFFSETS_TOPIC:
            configs["cleanup.policy"] = "compact"
        else:
            configs["retention.ms"] = str(_EVENTS_RETENTION_MS)
    factor, source = config.explain(key)
    if source is ConfigSource.DEFAULT_CONFIG or not config[CLUSTER_URL]:
        # A factor that was configured is kept: creation then waits for enough brokers, as in Kafka.
        factor = min(factor, max(len(image.brokers), 1))
    return controller.create_topic(
        image,
        name,
        topic_id=new_topic_id(),
        partitions=partitions,
        replication_factor=factor,
        configs=configs,
        names=taken,
    )


async def handle_create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Answer CreateTopics, each topic on its own."""
    services = context.services
    quota = context.mutation_quota(_STRICT_CREATE)
    asked, repeated = await context.sliced(by_key(request.topics, lambda topic: topic.name))
    once = (None if name in repeated else name for name in asked)
    refused = await context.sliced(split(context, once, acls.CREATE, unless=acls.CREATE))
    shown = _ShownConfigs(services.config)
    results: dict[str, CreatableTopicResult] = {}
    wanted: dict[str, _Create] = {}

    def partitions(name: str) -> int:
        topic = asked[name]
        given = len(topic.assignments) or topic.num_partitions
        return services.config[NUM_PARTITIONS] if given == -1 else given

    async def create() -> None:
        for some in _in_turns(wanted, partitions):
            for name, outcome in (await _create_all(context, some, validate_only=request.validate_only)).items():
                if isinstance(outcome, KafkaError):
                    results[name] = _not_created(name, outcome)
                    continue
                if not request.validate_only:
                    _log_created(context, outcome, automatic=False)
                    services.groups.new_topics.changed_by(name, context.client)
                results[name] = _created(context, outcome, shown)
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        wanted.clear()

    for topic in asked.values():
        try:
            if topic.name in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            if topic.name in refused:
                raise _not_authorized()
            wanted[topic.name] = _creation(context, topic, quota)
        except KafkaError as error:
            results[topic.name] = _not_created(topic.name, error)
        if len(wanted) == _TOPICS_AT_ONCE:
            await create()
        await asyncio.sleep(0)  # what fails at once must not keep others waiting
    await create()
    return CreateTopicsResponse(
        throttle_time_ms=quota.throttle_ms(services.now()),
        topics=await context.sliced(each(asked, results.pop)),
    )


def _not_authorized() -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


def _not_created(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        error_code=error.code,
        error_message=error.message or None,
        topic_config_error_code=ErrorCode.NONE,
    )


def _creation(context: RequestContext, topic: CreatableTopic, quota: MutationQuota) -> _Create:
    """Check what a client wants of a topic, as far as that can be done without the cluster image.

    Raises:
        KafkaError: INVALID_REQUEST, INVALID_CONFIG.
    """
    services = context.services
    assignments = {a.partition_index: a.broker_ids for a in topic.assignments}
    if assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions or replicationFactor was not set to -1.",
        )
    if len(topic.configs) > MOST_CONFIGS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, TOO_MANY_CONFIGS)
    overrides = check_topic_configs(services.config, {c.name: c.value for c in topic.configs})
    partitions, factor = topic.num_partitions, topic.replication_factor
    count = _count_once(context, quota)

    def create(image: Image, taken: controller.TopicNames) -> TopicCreated:
        if topic.name in _RESERVED and topic.name not in image.topics:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")
        event = controller.create_topic(
            image,
            topic.name,
            topic_id=new_topic_id(),
            partitions=services.config[NUM_PARTITIONS] if partitions == -1 else partitions,
            replication_factor=services.config[DEFAULT_REPLICATION_FACTOR] if factor == -1 else factor,
            configs=overrides,
            assignments=assignments,
            names=taken,
        )
        count(len(event.partitions))
        return event

    return create


def _created(context: RequestContext, info: TopicInfo, shown: "_ShownConfigs") -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=info.name,
        topic_id=info.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=ErrorCode.NONE,
    )
    if not context.allows(acls.DESCRIBE_CONFIGS, acls.TOPIC, info.name, audit=False):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif (configs := shown.of(info)) is None:
        result.topic_config_error_code = ErrorCode.INVALID_REQUEST
    else:
        result.num_partitions = len(info.partitions)
        result.replication_factor = len(info.partitions[0].replicas)
        result.configs = configs
    return result


#: Rows of configurations in one response. A topic after that is created, and an error stands for its configuration.
_MOST_ROWS: Final = 200_000


class _ShownConfigs:
    """The configurations of new topics in one response: topics with equal ones share their rows, and all are bounded.

    Args:
        config: the broker's configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rows: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}
        self._left = _MOST_ROWS

    def of(self, topic: TopicInfo) -> list[CreatableTopicConfigs] | None:
        """The configuration of a topic; None if the response has too many rows already."""
        if self._left <= 0:
            return None
        key = tuple(sorted(topic.configs.items()))
        if key not in self._rows:
            config = TopicConfig(self._config, topic.configs, TOPIC_KEYS)
            self._rows[key] = [_config_row(config, name) for name in sorted(TOPIC_KEYS)]
        self._left -= len(self._rows[key])
        return self._rows[key]


def _config_row(config: TopicConfig, name: str) -> CreatableTopicConfigs:
    value, source = config.explain(TOPIC_KEYS[name])
    return CreatableTopicConfigs(
        name=name,
        value=show(value),
        read_only=False,
        config_source=ConfigSource.DYNAMIC_TOPIC_CONFIG if name in config.overrides else source,
        is_sensitive=False,
    )


async def handle_delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Answer DeleteTopics, each topic on its own."""
    given: Iterable[DeleteTopicState] = request.topics
    if context.version < 6:
        given = (DeleteTopicState(name=name, topic_id=_NO_ID) for name in request.topic_names)
    responses: dict[_Named, DeletableTopicResult] = {}
    wanted: dict[_Named, DeleteTopicState] = {}
    quota = context.mutation_quota(_STRICT_DELETE)
    asked, repeated = await context.sliced(by_key(given, lambda one: (one.name, one.topic_id)))
    hidden, kept = await context.sliced(_may_not_delete(context, asked, repeated))

    def partitions(named: _Named) -> int:
        name, topic_id = named
        image = context.services.cluster.image
        topic = image.topics.get(image.names.get(topic_id, "") if name is None else name)
        return 0 if topic is None else len(topic.partitions)

    async def delete() -> None:
        for some in _in_turns(wanted, partitions):
            responses.update(await _delete_all(context, some, quota))
            await asyncio.sleep(0)
        wanted.clear()

    for named, topic in asked.items():
        if named in repeated:
            error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id in request.")
            responses[named] = _not_deleted(topic, error)
        elif (name := _name(context, topic)) in hidden or name in kept:
            error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
            # The result has the topic's name only if the client has given it, or may describe the topic.
            shown = name if name not in hidden or topic.name is not None else None
            responses[named] = _not_deleted(DeleteTopicState(name=shown, topic_id=topic.topic_id), error)
        else:
            wanted[named] = topic
        if len(wanted) == _TOPICS_AT_ONCE:
            await delete()
        await asyncio.sleep(0)
    await delete()
    done = await context.sliced(each(asked, responses.pop))
    await context.sliced(release(asked))
    return DeleteTopicsResponse(throttle_time_ms=quota.throttle_ms(context.services.now()), responses=done)


def _not_deleted(asked: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=error.code, error_message=error.message or None
    )


def _name(context: RequestContext, asked: DeleteTopicState) -> str | None:
    """The name of a topic in a request; None if no topic has its id."""
    return context.services.cluster.image.names.get(asked.topic_id) if asked.topic_id != _NO_ID else asked.name


def _may_not_delete(
    context: RequestContext, asked: Mapping[_Named, DeleteTopicState], repeated: Set[_Named]
) -> Steps[tuple[Set[str], Set[str]]]:
    """The names of the topics that the client may neither describe nor delete, and of those that it may only describe.

    A topic that the client may describe and that does not exist is unknown, whatever it may delete.
    """

    def names(*, by_id: bool) -> Iterator[str | None]:
        for named, topic in asked.items():
            yield _name(context, topic) if (topic.name is None) is by_id and named not in repeated else None

    hidden = yield from split(context, names(by_id=False), acls.DESCRIBE, unless=acls.DELETE)
    # One that is named by its id alone is not named in the audit log, either.
    hidden |= yield from split(context, names(by_id=True), acls.DESCRIBE, unless=acls.DELETE, audit=False)
    topics = context.services.cluster.image.topics
    described = (
        name if name in topics and name not in hidden else None for name in chain(names(by_id=False), names(by_id=True))
    )
    return hidden, (yield from split(context, described, acls.DELETE, unless=acls.DELETE))


#: The first version whose clients know TOPIC_DELETION_DISABLED (KIP-322).
_TELLS_DISABLED: Final = 3


async def _delete_all(
    context: RequestContext, wanted: Mapping[_Named, DeleteTopicState], quota: MutationQuota
) -> dict[_Named, DeletableTopicResult]:
    """Delete topics with one change of the metadata; each succeeds or fails on its own."""
    counts = {named: _count_once(context, quota) for named in wanted}
    outcomes: dict[_Named, TopicInfo | KafkaError] = {}
    for asked in wanted.values():
        name = _name(context, asked)
        if name is not None and name in context.services.cluster.image.topics:
            # Groups hear of it while the metadata changes.
            context.services.groups.new_topics.changed_by(name, context.client)

    def decide(image: Image) -> tuple[Sequence[Event], None]:
        events: dict[str, Event] = {}
        first = None
        for named in wanted:
            try:
                topic = _to_delete(context, image, *named, events.keys())
                counts[named](len(topic.partitions))
            except KafkaError as error:
                first = first or error
                outcomes[named] = error.kept()
            else:
                events[topic.name] = controller.delete_topic(image, topic.name)
                outcomes[named] = topic
        if first is not None and not events:
            raise KafkaError(first.code, first.message)
        return [*events.values()], None

    try:
        await context.services.cluster.change(decide)
    except KafkaError as error:
        for named in wanted:
            if not isinstance(outcomes.get(named), KafkaError):
                outcomes[named] = error.kept()
    else:
        await context.services.replicas.changed()
    results = {}
    for named, asked in wanted.items():
        outcome = outcomes[named]
        if isinstance(outcome, KafkaError):
            results[named] = _not_deleted(asked, outcome)
            continue
        context.changed(Change.TOPIC_DELETED, topic=outcome.name)
        results[named] = DeletableTopicResult(
            name=outcome.name, topic_id=outcome.topic_id, error_code=ErrorCode.NONE, error_message=None
        )
    return results


def _to_delete(
    context: RequestContext, image: Image, name: str | None, topic_id: bytes, deleted: Collection[str]
) -> TopicInfo:
    """The topic that a client wants to delete, by name or by id; `deleted` are those that the same change deletes.

    Raises:
        KafkaError: the code and message for DeleteTopics.
    """
    if name is not None and topic_id != _NO_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == _NO_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if not context.services.config[DELETE_TOPIC_ENABLE]:
        disabled = context.version >= _TELLS_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "Topic deletion is disabled (delete.topic.enable=false).")
    found = image.names.get(topic_id) if topic_id != _NO_ID else name
    if found is None or (name is None and found in deleted):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    topic = image.topics.get(found)
    if topic is None or found in deleted:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    _check_not_internal(found, "deleted", "Delete groups, or their offsets, instead.")
    return topic


async def handle_create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Answer CreatePartitions, each topic on its own."""
    results: list[CreatePartitionsTopicResult] = []
    quota = context.mutation_quota(_STRICT_GROW)
    topics, repeated = await context.sliced(by_key(request.topics, lambda topic: topic.name))
    refused = await context.sliced(split(context, (None if name in repeated else name for name in topics), acls.ALTER))
    for topic in topics.values():
        code, message = ErrorCode.NONE, None
        try:
            if topic.name in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            if topic.name in refused:
                raise _not_authorized()
            await _add_partitions(context, topic, request.validate_only, quota)
        except KafkaError as error:
            code, message = error.code, error.message or None
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message))
        await asyncio.sleep(0)
    return CreatePartitionsResponse(throttle_time_ms=quota.throttle_ms(context.services.now()), results=results)


async def _add_partitions(
    context: RequestContext, topic: CreatePartitionsTopic, validate_only: bool, quota: MutationQuota
) -> None:
    count = _count_once(context, quota)
    assignments = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]

    def decide(image: Image) -> tuple[Sequence[Event], None]:
        if topic.name in image.topics:
            _check_not_internal(topic.name, "given more partitions", "A group belongs to a partition by its name.")
        event = controller.add_partitions(image, topic.name, topic.count, assignments)
        count(len(event.partitions))
        return [] if validate_only else [event], None

    await context.services.cluster.change(decide)
    if not validate_only:
        await context.services.replicas.changed()
        context.changed(Change.PARTITIONS_ADDED, topic=topic.name, partitions=topic.count)


ROUTES: Final = (
    Route(
        ApiKey.CREATE_TOPICS,
        handle_create_topics,
        (
            requires((acls.CREATE, acls.CLUSTER), (acls.CREATE, acls.TOPIC)),
            requires((acls.DESCRIBE_CONFIGS, acls.TOPIC), when="the response shows the topic's configuration"),
        ),
        changes=(Change.TOPIC_CREATED,),
    ),
    Route(
        ApiKey.DELETE_TOPICS,
        handle_delete_topics,
        (
            requires((acls.DELETE, acls.CLUSTER), (acls.DELETE, acls.TOPIC)),
            requires((acls.DELETE, acls.CLUSTER), (acls.DESCRIBE, acls.TOPIC), when="a topic is named by its id"),
        ),
        changes=(Change.TOPIC_DELETED,),
    ),
    Route(
        ApiKey.CREATE_PARTITIONS,
        handle_create_partitions,
        (requires((acls.ALTER, acls.TOPIC)),),
        changes=(Change.PARTITIONS_ADDED,),
    ),
)
