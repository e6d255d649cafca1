"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, for topics and brokers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import BrokerConfigured, Event, Image
from barnabas_broker.config import Config, ConfigError, ConfigSource, ConfigType, Key, TopicConfig, show
from barnabas_broker.config_keys import BROKER_KEYS, TOPIC_KEYS
from barnabas_broker.context import RequestContext, Services
from barnabas_broker.handlers.topics import check_topic_configs
from barnabas_protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas_protocol.apis.alter_configs import AlterConfigsResourceResponse as AlterResult
from barnabas_protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas_protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.errors import ErrorCode, KafkaError

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3

#: Broker keys that may be changed while the broker runs: those that are read each time they are needed.
DYNAMIC_KEYS: Final = frozenset(
    name for name in BROKER_KEYS if name.startswith(("log.", "message.max", "compression.type", "min.insync"))
) - {"log.dir"}

Change = Callable[[Mapping[str, str]], Mapping[str, str]]


def handle_describe_configs(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Answer DescribeConfigs, each resource for itself."""
    return DescribeConfigsResponse(results=[_describe(context, request, resource) for resource in request.resources])


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    services = context.services
    wanted = resource.configuration_keys
    try:
        if resource.resource_type == _TOPIC:
            controller.check_topic_name(resource.resource_name)
            topic = services.cluster.image.topics.get(resource.resource_name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            config = TopicConfig(services.config, topic.configs, TOPIC_KEYS)
            rows = _rows(TOPIC_KEYS.values(), config.explain, request, context.version)
        elif resource.resource_type == _BROKER:
            _check_broker(services, resource.resource_name)
            rows = _rows(BROKER_KEYS.values(), services.config.explain, request, context.version)
            if resource.resource_name == "":
                rows = [row for row in rows if row.config_source == ConfigSource.DYNAMIC_BROKER_CONFIG]
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.resource_type}")
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or None
        return result
    result.configs = [row for row in rows if not wanted or row.name in wanted]
    return result


def _check_broker(services: Services, name: str) -> None:
    if name not in ("", str(services.node_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}",
        )


def _rows(
    keys: Iterable[Key[Any]],
    explain: Callable[[Key[Any]], tuple[Any, ConfigSource]],
    request: DescribeConfigsRequest,
    version: int,
) -> list[DescribeConfigsResourceResult]:
    rows = []
    for key in keys:
        value, source = explain(key)
        rows.append(
            DescribeConfigsResourceResult(
                name=key.name,
                value=show(value),
                read_only=key.broker is None and key.name not in DYNAMIC_KEYS,
                is_default=version == 0 and source is ConfigSource.DEFAULT_CONFIG,
                config_source=source,
                is_sensitive=False,
                synonyms=_synonyms(key, value, source) if request.include_synonyms else [],
                config_type=key.type,
                documentation=key.doc if request.include_documentation else None,
            )
        )
    return rows


def _synonyms(key: Key[Any], value: Any, source: ConfigSource) -> list[DescribeConfigsSynonym]:
    """Where the value comes from and what would hold without that, most specific first."""
    broker = key if key.broker is None else key.broker
    found = []
    if source is not ConfigSource.DEFAULT_CONFIG:
        name = key.name if source is ConfigSource.DYNAMIC_TOPIC_CONFIG else broker.name
        found.append(DescribeConfigsSynonym(name=name, value=show(value), source=source))
    found.append(
        DescribeConfigsSynonym(name=broker.name, value=show(broker.default), source=ConfigSource.DEFAULT_CONFIG)
    )
    return found


async def handle_incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Answer IncrementalAlterConfigs, each resource for itself."""
    responses = []
    for resource in request.resources:
        code, message = await _alter(
            context.services,
            resource.resource_type,
            resource.resource_name,
            _incremental(resource.resource_type, resource.configs),
            request.validate_only,
        )
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


async def handle_alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Answer AlterConfigs: what is named becomes the whole configuration of the resource."""
    responses = []
    for resource in request.resources:
        given = {c.name: c.value for c in resource.configs if c.value is not None}
        code, message = await _alter(
            context.services,
            resource.resource_type,
            resource.resource_name,
            _replace(given),
            request.validate_only,
        )
        responses.append(
            AlterResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


def _replace(given: Mapping[str, str]) -> Change:
    return lambda old: given


def _incremental(resource_type: int, wanted: Sequence[AlterableConfig]) -> Change:
    keys = TOPIC_KEYS if resource_type == _TOPIC else BROKER_KEYS

    def change(old: Mapping[str, str]) -> Mapping[str, str]:
        new = dict(old)
        names = [one.name for one in wanted]
        for one in wanted:
            if names.count(one.name) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {one.name}")
            if one.config_operation == _DELETE:
                new.pop(one.name, None)
                continue
            if one.value is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {one.name}")
            if one.config_operation == _SET:
                new[one.name] = one.value
            elif one.config_operation in (_APPEND, _SUBTRACT):
                new[one.name] = _edit_list(keys.get(one.name), new.get(one.name), one)
            else:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {one.config_operation}")
        return new

    return change


def _edit_list(key: Key[Any] | None, old: str | None, one: AlterableConfig) -> str:
    if key is None or key.type is not ConfigType.LIST:
        word = "append" if one.config_operation == _APPEND else "subtract"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Can't {word} to key {one.name} because its type is not LIST.")
    have = [part for part in ((show(key.default) if old is None else old) or "").split(",") if part]
    edits = [part.strip() for part in (one.value or "").split(",") if part.strip()]
    if one.config_operation == _APPEND:
        have += [part for part in edits if part not in have]
    else:
        have = [part for part in have if part not in edits]
    return ",".join(have)


async def _alter(
    services: Services, resource_type: int, name: str, change: Change, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    def decide(image: Image) -> tuple[Sequence[Event], None]:
        event: Event
        if resource_type == _TOPIC:
            event = controller.configure_topic(image, name, change)
            check_topic_configs(services.config, dict(event.configs))
        elif resource_type == _BROKER:
            _check_broker(services, name)
            event = BrokerConfigured(name, change(image.broker_configs.get(name, {})))
            _check_broker_configs(services.config, event.configs)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource_type}")
        return [] if validate_only else [event], None

    try:
        await services.cluster.change(decide)
    except KafkaError as error:
        return error.code, error.message or None
    return ErrorCode.NONE, None


def _check_broker_configs(config: Config, values: Mapping[str, str]) -> None:
    for name, text in values.items():
        if name not in DYNAMIC_KEYS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {name}; set it and restart"
            )
        try:
            config.keys[name].read(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
