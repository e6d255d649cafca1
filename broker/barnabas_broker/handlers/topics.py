"""CreateTopics, DeleteTopics, CreatePartitions, and topics that are created automatically."""

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Event, Image, TopicInfo
from barnabas_broker.cluster.metadata import new_topic_id
from barnabas_broker.config import TOPIC_KEYS, Config, ConfigError, ConfigSource, TopicConfig, show
from barnabas_broker.config.keys import (
    AUTO_CREATE_TOPICS_ENABLE,
    CLUSTER_URL,
    DEFAULT_REPLICATION_FACTOR,
    DELETE_TOPIC_ENABLE,
    NUM_PARTITIONS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
)
from barnabas_broker.handlers.context import RequestContext, Services
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import EVENTS_TOPIC, INTERNAL_TOPICS, OFFSETS_TOPIC
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

_NO_ID = bytes(16)


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
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value or unknown topic config name: {error}") from error
    return given


async def create_automatically(services: Services, names: Sequence[str]) -> dict[str, KafkaError]:
    """Create topics that a client uses and that do not exist, if the configuration allows it.

    Returns:
        The error of each topic that could not be created, by name.
    """
    refused: dict[str, KafkaError] = {}
    for name in names:
        if name not in INTERNAL_TOPICS and not services.config[AUTO_CREATE_TOPICS_ENABLE]:
            continue

        def decide(image: Image, name: str = name) -> tuple[Sequence[Event], None]:
            if name in image.topics:  # another request was first
                return [], None
            return [_automatic_topic(services.config, image, name)], None

        try:
            await services.cluster.change(decide)
        except KafkaError as error:
            refused[name] = error
    return refused


#: Retention of ``__group_events``: 7 days, in ms.
_EVENTS_RETENTION_MS: Final = 7 * 24 * 3_600_000


def _automatic_topic(config: Config, image: Image, name: str) -> Event:
    partitions, key = config[NUM_PARTITIONS], DEFAULT_REPLICATION_FACTOR
    configs = {}
    if name in (OFFSETS_TOPIC, EVENTS_TOPIC):
        partitions, key = config[OFFSETS_TOPIC_NUM_PARTITIONS], OFFSETS_TOPIC_REPLICATION_FACTOR
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
        image, name, topic_id=new_topic_id(), partitions=partitions, replication_factor=factor, configs=configs
    )


async def handle_create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Answer CreateTopics, each topic on its own."""
    names = [topic.name for topic in request.topics]
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        if names.count(topic.name) > 1:
            if not any(result.name == topic.name for result in results):
                error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
                results.append(_not_created(topic.name, error))
            continue
        try:
            results.append(await _create(context, topic, request.validate_only))
        except KafkaError as error:
            results.append(_not_created(topic.name, error))
    return CreateTopicsResponse(topics=results)


def _not_created(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        error_code=error.code,
        error_message=error.message or None,
        topic_config_error_code=ErrorCode.NONE,
    )


async def _create(context: RequestContext, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    services = context.services
    assignments = {a.partition_index: a.broker_ids for a in topic.assignments}
    if assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions or replicationFactor was not set to -1.",
        )
    overrides = check_topic_configs(services.config, {c.name: c.value for c in topic.configs})
    partitions, factor = topic.num_partitions, topic.replication_factor

    def decide(image: Image) -> tuple[Sequence[Event], TopicInfo]:
        event = controller.create_topic(
            image,
            topic.name,
            topic_id=new_topic_id(),
            partitions=services.config[NUM_PARTITIONS] if partitions == -1 else partitions,
            replication_factor=services.config[DEFAULT_REPLICATION_FACTOR] if factor == -1 else factor,
            configs=overrides,
            assignments=assignments,
        )
        info = TopicInfo(event.name, event.topic_id, event.partitions, event.configs)
        return [] if validate_only else [event], info

    info = await services.cluster.change(decide)
    config = TopicConfig(services.config, info.configs, TOPIC_KEYS)
    return CreatableTopicResult(
        name=info.name,
        topic_id=info.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(info.partitions),
        replication_factor=len(info.partitions[0].replicas),
        configs=[_config_row(config, name) for name in sorted(TOPIC_KEYS)],
    )


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
    if context.version >= 6:
        asked = request.topics
    else:
        asked = [DeleteTopicState(name=name, topic_id=_NO_ID) for name in request.topic_names]
    wanted = [(topic.name, topic.topic_id) for topic in asked]
    responses = []
    for topic in {(one.name, one.topic_id): one for one in asked}.values():
        if wanted.count((topic.name, topic.topic_id)) > 1:
            error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id in request.")
            responses.append(_not_deleted(topic, error))
        else:
            responses.append(await _delete(context.services, topic, context.version))
    return DeleteTopicsResponse(responses=responses)


def _not_deleted(asked: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=error.code, error_message=error.message or None
    )


#: The first version whose clients know TOPIC_DELETION_DISABLED (KIP-322).
_TELLS_DISABLED: Final = 3


async def _delete(services: Services, asked: DeleteTopicState, version: int) -> DeletableTopicResult:
    def decide(image: Image) -> tuple[Sequence[Event], tuple[str, bytes]]:
        if asked.name is not None and asked.topic_id != _NO_ID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if asked.name is None and asked.topic_id == _NO_ID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if not services.config[DELETE_TOPIC_ENABLE]:
            code = ErrorCode.TOPIC_DELETION_DISABLED if version >= _TELLS_DISABLED else ErrorCode.INVALID_REQUEST
            raise KafkaError(code, "Topic deletion is disabled (delete.topic.enable=false).")
        name = image.names.get(asked.topic_id) if asked.topic_id != _NO_ID else asked.name
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        event = controller.delete_topic(image, name)
        return [event], (name, image.topics[name].topic_id)

    try:
        name, topic_id = await services.cluster.change(decide)
    except KafkaError as error:
        return _not_deleted(asked, error)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)


async def handle_create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Answer CreatePartitions, each topic on its own."""
    names = [topic.name for topic in request.topics]
    results: list[CreatePartitionsTopicResult] = []
    for topic in request.topics:
        if any(result.name == topic.name for result in results):
            continue
        code, message = ErrorCode.NONE, None
        try:
            if names.count(topic.name) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            await _add_partitions(context.services, topic, request.validate_only)
        except KafkaError as error:
            code, message = error.code, error.message or None
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message))
    return CreatePartitionsResponse(results=results)


async def _add_partitions(services: Services, topic: CreatePartitionsTopic, validate_only: bool) -> None:
    assignments = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]

    def decide(image: Image) -> tuple[Sequence[Event], None]:
        event = controller.add_partitions(image, topic.name, topic.count, assignments)
        return [] if validate_only else [event], None

    await services.cluster.change(decide)


ROUTES: Final = (
    Route(
        ApiKey.CREATE_TOPICS,
        handle_create_topics,
        (
            requires((acls.CREATE, acls.CLUSTER), (acls.CREATE, acls.TOPIC)),
            requires((acls.DESCRIBE_CONFIGS, acls.TOPIC), when="the response shows the topic's configuration"),
        ),
    ),
    Route(
        ApiKey.DELETE_TOPICS,
        handle_delete_topics,
        (
            requires((acls.DELETE, acls.CLUSTER), (acls.DELETE, acls.TOPIC)),
            requires((acls.DELETE, acls.CLUSTER), (acls.DESCRIBE, acls.TOPIC), when="a topic is named by its id"),
        ),
    ),
    Route(ApiKey.CREATE_PARTITIONS, handle_create_partitions, (requires((acls.ALTER, acls.TOPIC)),)),
)
