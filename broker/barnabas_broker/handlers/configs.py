"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources, for topics, brokers, groups and the
metrics of clients."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import dropwhile
from typing import Any, Final, TypeVar

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import (
    BrokerConfigured,
    ClientMetricsConfigured,
    Event,
    GroupConfigured,
    Image,
    TopicConfigured,
)
from barnabas_broker.config import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    Config,
    ConfigError,
    ConfigSource,
    ConfigType,
    GroupConfig,
    Key,
    TopicConfig,
    show,
)
from barnabas_broker.config.checks import dynamic_key_of_listener, dynamic_unserved, known_key
from barnabas_broker.config.keys import (
    CERTIFICATE_KEYS,
    CONNECTION_KEYS,
    CONNECTION_LISTENER_KEYS,
    DYNAMIC_KEYS,
    DYNAMIC_LISTENER_KEYS,
    LISTENERS,
)
from barnabas_broker.config.unsupported import DYNAMIC_UNSERVED, UNSERVED, DynamicKey, without_effect
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext, Services
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.handlers.topics import (
    MOST_CONFIGS,
    TOO_MANY_CONFIGS,
    check_keeps_state,
    check_topic_configs,
)
from barnabas_broker.logs import logger
from barnabas_broker.security import acls
from barnabas_broker.security.acls import Requirement, requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, by_key, release
from barnabas_broker.telemetry.subscriptions import MOST_SUBSCRIPTIONS, MetricsSubscription
from barnabas_protocol.acls import AclOperation
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse
from barnabas_protocol.messages.alter_configs import AlterConfigsResourceResponse as AlterResult
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.suggestions import did_you_mean

log = logger("configs")

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
#: The keys by the type of a resource.
_KEYS: Final = {_TOPIC: TOPIC_KEYS, _GROUP: GROUP_KEYS, _CLIENT_METRICS: CLIENT_METRICS_KEYS}
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3

#: Keys that have no default in Kafka: a key with a coarser unit, or no limit, applies instead.
_UNSET: Final = frozenset({"log.retention.minutes", "log.retention.ms", "log.roll.ms", "log.flush.interval.ms"})

Edit = Callable[[Mapping[str, str]], Mapping[str, str]]
_Resource = TypeVar("_Resource", AlterConfigsResource, IncrementalAlterConfigsResource)
_Named = AlterConfigsResource | IncrementalAlterConfigsResource | DescribeConfigsResource
_Result = TypeVar("_Result", AlterResult, IncrementalAlterConfigsResourceResponse)
_TWICE: Final[tuple[ErrorCode, str | None]] = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."


@stepwise
def handle_describe_configs(context: RequestContext, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    """Answer DescribeConfigs, each resource on its own. One that is asked for twice is described once."""
    resources, _ = yield from by_key(request.resources, _key)
    refusals = yield from _refusals(context, acls.DESCRIBE_CONFIGS, resources.values())
    results = []
    for resource in resources.values():
        results.append((yield from _describe(context, request, refusals, resource)))
        yield
    return DescribeConfigsResponse(results=results)


def handle_list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Answer ListConfigResources: brokers, topics, groups and subscriptions to the metrics of clients."""
    if not context.allows_on_cluster(acls.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, config_resources=[]
        )
    image = context.services.cluster.image
    names: dict[int, list[str]] = {
        _GROUP: list(image.group_configs),
        _CLIENT_METRICS: list(image.client_metrics),
        _BROKER_LOGGER: [],
        _BROKER: [str(node) for node in image.brokers],
        _TOPIC: list(image.topics),
    }
    wanted = (request.resource_types or list(names)) if context.version > 0 else [_CLIENT_METRICS]
    known = names.keys() >= set(wanted)
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in names
            if known and kind in wanted
            for name in names[kind]
        ],
    )


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, refusals: "_Refusals", resource: DescribeConfigsResource
) -> Steps[DescribeConfigsResult]:
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    services = context.services
    wanted = resource.configuration_keys
    try:
        _check_allowed(refusals, resource.resource_type, resource.resource_name)
        if resource.resource_type == _TOPIC:
            controller.check_topic_name(resource.resource_name)
            topic = services.cluster.image.topics.get(resource.resource_name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            config = TopicConfig(services.config, topic.configs, TOPIC_KEYS)
            rows = _rows(TOPIC_KEYS.values(), services.config, config.explain, request, context.version)
        elif resource.resource_type == _BROKER:
            _check_broker(services, resource.resource_name)
            rows = _rows(BROKER_KEYS.values(), services.config, services.config.explain, request, context.version)
            rows = _as_brokers(services.config, resource.resource_name, rows)
            rows += _rows_set_at_run_time(services.config, resource.resource_name, request)
        elif resource.resource_type == _GROUP:
            group = _group_config(services, resource.resource_name)
            rows = _rows(GROUP_KEYS.values(), services.config, group.explain, request, context.version)
        elif resource.resource_type == _CLIENT_METRICS:
            _check_subscription_name(resource.resource_name)
            given = services.cluster.image.client_metrics.get(resource.resource_name, {})
            rows = _rows(
                CLIENT_METRICS_KEYS.values(), services.config, partial(_explain, given), request, context.version
            )
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.resource_type}")
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or None
        return result
    if wanted:  # in the order of the request, which some tools rely on
        by_name = {row.name: row for row in rows}
        rows = []
        for name in wanted:
            row = by_name.pop(name, None)
            if row is not None:
                rows.append(row)
            yield
    result.configs = rows
    return result


#: The resource and the error of a type of configuration that is not of the cluster.
_RESOURCES: Final = {
    _TOPIC: (acls.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    _GROUP: (acls.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
}


#: The types of configuration that are of the cluster.
_OF_CLUSTER: Final = (_BROKER, _BROKER_LOGGER, _CLIENT_METRICS)
#: The names of resources that a client may not use, by their type.
_Refusals = Mapping[int, Collection[str]]


def _key(resource: _Named) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _refusals(
    context: RequestContext, operation: AclOperation, resources: Iterable[_Named]
) -> Steps[dict[int, Collection[str]]]:
    """The resources of a request on whose configuration the client may not carry out an operation."""
    names: dict[int, list[str]] = {}
    for one in resources:
        names.setdefault(one.resource_type, []).append(one.resource_name)
        yield
    refusals: dict[int, Collection[str]] = {}
    for resource_type, of_type in names.items():
        if resource_type in _RESOURCES:
            resource, _, _ = _RESOURCES[resource_type]
            refusals[resource_type] = yield from split(context, of_type, operation, resource)
        elif resource_type in _OF_CLUSTER and not context.allows_on_cluster(operation):
            refusals[resource_type] = set(of_type)
    return refusals


def _check_allowed(refusals: _Refusals, resource_type: int, name: str) -> None:
    """Check that the client may use the configuration of a topic, a group or the cluster.

    Raises:
        KafkaError: it may not.
    """
    if name in refusals.get(resource_type, ()):
        if resource_type not in _RESOURCES:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        _, code, message = _RESOURCES[resource_type]
        raise KafkaError(code, message)


def _as_brokers(
    config: Config, name: str, rows: list[DescribeConfigsResourceResult]
) -> list[DescribeConfigsResourceResult]:
    """For broker "" only what was set for all brokers; for this broker without values that Kafka leaves unset."""
    if not name:
        rows = [row for row in rows if row.name in config.dynamic_default]
    for row in rows:
        if not name:
            row.value = config.dynamic_default[row.name]
            row.config_source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            row.synonyms = [each for each in row.synonyms if each.source == row.config_source]
        elif row.name in _UNSET and row.config_source == ConfigSource.DEFAULT_CONFIG:
            row.value = None
    return rows


def _rows_set_at_run_time(
    config: Config, broker: str, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    """The configuration set at run time for single listeners, and keys without effect: of all brokers (""), or of this
    one."""
    set_for = [(config.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG)] if broker else []
    set_for.append((config.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG))
    rows = []
    for name in dict.fromkeys(name for values, _ in set_for for name in values):
        unserved = _dynamic_unserved(config, name)
        key = _dynamic_key_of_listener(config, name) if unserved is None else unserved.key
        if key is None:
            continue
        names = tuple(dict.fromkeys((name, key.name)))
        layers = [(each, values[each], source) for each in names for values, source in set_for if each in values]
        text, first = layers[0][1], layers[0][2]
        if broker:
            layers += [
                (each, config.given[each], ConfigSource.STATIC_BROKER_CONFIG) for each in names if each in config.given
            ]
            layers.append((key.name, show(key.default) or "", ConfigSource.DEFAULT_CONFIG))
        synonyms = [
            DescribeConfigsSynonym(name=each, value=None if key.secret else value, source=source)
            for each, value, source in layers
        ]
        rows.append(
            DescribeConfigsResourceResult(
                name=name,
                value=None if key.secret else text,
                read_only=False,
                is_default=False,
                config_source=first,
                is_sensitive=key.secret,
                synonyms=synonyms if request.include_synonyms else [],
                config_type=key.type,
                documentation=key.doc if request.include_documentation else None,
            )
        )
    return rows


def _check_broker(services: Services, name: str) -> None:
    if name not in ("", str(services.node_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}",
        )


def _rows(
    keys: Iterable[Key[Any]],
    config: Config,
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
                value=None if key.secret else show(value),
                read_only=key.name in BROKER_KEYS and key.broker is None and key.name not in DYNAMIC_KEYS,
                is_default=version == 0 and source is ConfigSource.DEFAULT_CONFIG,
                config_source=source,
                is_sensitive=key.secret,
                synonyms=_synonyms(config, key, value, source) if request.include_synonyms else [],
                config_type=key.type,
                documentation=key.doc if request.include_documentation else None,
            )
        )
    return rows


def _synonyms(config: Config, key: Key[Any], value: Any, source: ConfigSource) -> list[DescribeConfigsSynonym]:
    """Where the value comes from, and the values behind it, most specific first."""
    broker = key if key.broker is None else key.broker
    if broker.name not in BROKER_KEYS:  # brokers have no default for it
        mine = [] if source is ConfigSource.DEFAULT_CONFIG else [(key.name, show(value), source)]
        return [DescribeConfigsSynonym(name=name, value=text, source=layer) for name, text, layer in mine]
    given: list[tuple[str, str | None, ConfigSource]] = [
        (each.name, None if each.secret else text, layer) for each, text, layer in config.synonyms(broker)
    ]
    given += [
        (each.name, None if each.secret else show(each.default), ConfigSource.DEFAULT_CONFIG)
        for each in (broker, *(fallback for fallback, _ in broker.fallbacks))
        if each.name not in _UNSET
    ]
    # As in Kafka: fallbacks before the key itself are left out if the key is not set.
    synonyms = list(dropwhile(lambda each: each[0] != broker.name, given))
    if source in (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_GROUP_CONFIG):
        synonyms.insert(0, (key.name, show(value), source))
    return [DescribeConfigsSynonym(name=name, value=text, source=layer) for name, text, layer in synonyms]


async def handle_incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Answer IncrementalAlterConfigs, each resource on its own."""
    make = IncrementalAlterConfigsResourceResponse
    responses = await _alter_each(context, request.resources, _incremental, request.validate_only, make)
    return IncrementalAlterConfigsResponse(responses=responses)


async def handle_alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Answer AlterConfigs: the request replaces the whole configuration of a resource."""
    responses = await _alter_each(context, request.resources, _replace, request.validate_only, AlterResult)
    return AlterConfigsResponse(responses=responses)


async def _alter_each(
    context: RequestContext,
    resources: Sequence[_Resource],
    change: Callable[[_Resource], Edit],
    validate_only: bool,
    make: type[_Result],
) -> list[_Result]:
    """Change each resource on its own; one that is named more than once is refused."""
    results: list[_Result] = []
    found, repeated = await context.sliced(by_key(resources, _key))
    once = (each for key, each in found.items() if key not in repeated)
    refusals = await context.sliced(_refusals(context, acls.ALTER_CONFIGS, once))
    for resource in resources:
        await asyncio.sleep(0)  # what fails at once must not keep others waiting
        resource_type, name = resource.resource_type, resource.resource_name
        if (resource_type, name) in repeated:
            code, message = _TWICE
        elif len(resource.configs) > MOST_CONFIGS:
            code, message = ErrorCode.INVALID_REQUEST, TOO_MANY_CONFIGS
        else:
            code, message = await _alter(context, refusals, resource_type, name, change(resource), validate_only)
        results.append(make(error_code=code, error_message=message, resource_type=resource_type, resource_name=name))
    await context.sliced(release(found))
    return results


def _replace(resource: AlterConfigsResource) -> Edit:
    wanted = resource.configs

    def change(old: Mapping[str, str]) -> Mapping[str, str]:
        given = {}
        for one in wanted:
            if one.value is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {one.name}")
            given[one.name] = one.value
        return given

    return change


def _incremental(resource: IncrementalAlterConfigsResource) -> Edit:
    wanted = resource.configs
    keys = _KEYS.get(resource.resource_type, BROKER_KEYS)

    def change(old: Mapping[str, str]) -> Mapping[str, str]:
        new = dict(old)
        for name, times in Counter(one.name for one in wanted).items():
            if times > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {name}")
        for one in wanted:
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


def _edit_list(key: Key[Any] | None, old: str | None, one: IncrementalAlterableConfig) -> str:
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
    context: RequestContext, refusals: _Refusals, resource_type: int, name: str, change: Edit, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    services = context.services
    try:
        _check_allowed(refusals, resource_type, name)
    except KafkaError as error:
        return error.code, error.message or None

    def decide(image: Image) -> tuple[Sequence[Event], tuple[Mapping[str, str], Mapping[str, str]]]:
        event: TopicConfigured | BrokerConfigured | GroupConfigured | ClientMetricsConfigured
        old: Mapping[str, str]
        if resource_type == _TOPIC:
            # Kafka checks the values before it looks for the topic.
            old = image.topics[name].configs if name in image.topics else {}
            new = check_topic_configs(services.config, change(old))
            check_keeps_state(services.config, name, new)
            _check_topic_name(name)
            event = controller.configure_topic(image, name, change)
        elif resource_type == _BROKER:
            _check_broker(services, name)
            old = image.broker_configs.get(name, {})
            event = BrokerConfigured(name, change(old))
            _check_broker_configs(services, name, event.configs)
        elif resource_type == _GROUP:
            _check_group_name(name)
            old = image.group_configs.get(name, {})
            event = GroupConfigured(name, change(old))
            _check_group_configs(services.config, event.configs)
        elif resource_type == _CLIENT_METRICS:
            _check_subscription_name(name)
            old = image.client_metrics.get(name, {})
            event = ClientMetricsConfigured(name, change(old))
            MetricsSubscription.of(event.configs)
            if not old and len(image.client_metrics) >= MOST_SUBSCRIPTIONS:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"There are {MOST_SUBSCRIPTIONS} subscriptions already.")
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource_type}")
        return [] if validate_only else [event], (old, event.configs)

    try:
        before, after = await services.cluster.change(decide)
    except KafkaError as error:
        return error.code, error.message or None
    if not validate_only:
        _audit(resource_type, name, before, after, context)
        if resource_type == _BROKER:
            _warn_without_effect(services.config, before, after)
    return ErrorCode.NONE, None


def _audit(
    resource_type: int, name: str, before: Mapping[str, str], after: Mapping[str, str], context: RequestContext
) -> None:
    """Audit which keys of a resource have a new value, and which have their default again."""
    changed = {key: _shown(key, value) for key, value in after.items() if before.get(key) != value}
    removed = [key for key in before if key not in after]
    if resource_type == _TOPIC:
        context.changed(Change.TOPIC_CONFIGURED, topic=name, set=changed, removed=removed)
    elif resource_type == _GROUP:
        context.changed(Change.GROUP_CONFIGURED, group=name, set=changed, removed=removed)
    elif resource_type == _CLIENT_METRICS:
        context.changed(Change.CLIENT_METRICS_CONFIGURED, name=name, set=changed, removed=removed)
    else:
        context.changed(Change.BROKER_CONFIGURED, node_id=name or "all", set=changed, removed=removed)


def _shown(name: str, value: str) -> str:
    """A value for the log."""
    key = known_key(name)
    return "[hidden]" if key is not None and key.secret else value


def _check_topic_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    controller.check_topic_name(name)


def _check_group_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def _check_subscription_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")


def _explain(given: Mapping[str, str], key: Key[Any]) -> tuple[Any, ConfigSource]:
    """The value of a key of a subscription, and where it comes from."""
    if key.name in given:
        return key.read(given[key.name]), ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    return key.default, ConfigSource.DEFAULT_CONFIG


def _group_config(services: Services, name: str) -> GroupConfig:
    """The configuration of a group, which need not exist.

    Raises:
        KafkaError: INVALID_REQUEST, the name is empty.
    """
    _check_group_name(name)
    return GroupConfig(services.config, services.cluster.image.group_configs.get(name, {}))


def _check_group_configs(config: Config, values: Mapping[str, str]) -> None:
    try:
        GroupConfig(config, values).check()
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _instead(name: str) -> str:
    """The remedy or the reason in the error for a broker key that is not dynamic."""
    if name in BROKER_KEYS:
        return "set it and restart"
    if name in UNSERVED and UNSERVED[name].refused:
        return UNSERVED[name].why
    why = without_effect(name)
    if why is not None:
        return f"it has no effect, {why}"
    return f"no such configuration key{did_you_mean(name, [*BROKER_KEYS, *DYNAMIC_UNSERVED])}"


def _check_broker_configs(services: Services, broker: str, values: Mapping[str, str]) -> None:
    """Check the configuration that was set at run time for a broker, or for all ("").

    Raises:
        KafkaError: INVALID_REQUEST, a key cannot be changed, or a value cannot be used.
    """
    config = services.config
    try:
        for name, text in values.items():
            _check_broker_key(config, broker, name, text)
        # Also if there are none any more: what was given before the start counts again.
        keys = {known_key(name) for name in (*values, *(config.dynamic if broker else config.dynamic_default))}
        names = {key.name for key in keys if key is not None}
        if services.certificates is not None and names & CERTIFICATE_KEYS and broker:
            services.certificates.check(values)
        if services.limits is not None and names & CONNECTION_KEYS:
            changed = (values, config.dynamic_default) if broker else (config.dynamic, values)
            services.limits.of(Config(config.keys, config.given, *changed))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _check_broker_key(config: Config, broker: str, name: str, text: str) -> None:
    """Check one key that shall be set at run time for a broker, or for all ("").

    Raises:
        ConfigError: it cannot be changed, or its value cannot be used.
    """
    if name in DYNAMIC_KEYS:
        value = config.keys[name].read(text)
        key = config.keys[name]
    else:
        unserved = _dynamic_unserved(config, name)
        found = _dynamic_key_of_listener(config, name) if unserved is None else unserved.key
        if found is None:
            raise ConfigError(_not_dynamic(name))
        key = found
        for_all = key.name in CONNECTION_LISTENER_KEYS if unserved is None else not unserved.per_broker
        if not broker and not for_all:
            raise ConfigError(
                f"Cannot update these configs at default cluster level, broker id must be specified: {name}"
            )
        try:
            value = key.read(text)
        except ConfigError as error:
            raise ConfigError(f"{name.removesuffix(key.name)}{error}") from None
    if key.name in CONNECTION_LISTENER_KEYS and value <= 0:
        # No client could connect to change it again.
        raise ConfigError(f"Invalid {name} {value}: must be at least 1 when it is set at run time")


def _dynamic_key_of_listener(config: Config, name: str) -> Key[Any] | None:
    return dynamic_key_of_listener(name, (each.name for each in config[LISTENERS]))


def _dynamic_unserved(config: Config, name: str) -> DynamicKey | None:
    return dynamic_unserved(name, (each.name for each in config[LISTENERS]))


def _warn_without_effect(config: Config, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Name the keys without effect that have a new value: one line for all with the same reason, as at the start."""
    ignored: dict[str, list[str]] = {}
    for name, value in after.items():
        unserved = _dynamic_unserved(config, name)
        if unserved is not None and before.get(name) != value:
            ignored.setdefault(UNSERVED[unserved.key.name].why, []).append(name)
    for why, names in ignored.items():
        log.warning(f"{', '.join(names)}: no effect, {why}")


def _not_dynamic(name: str) -> str:
    if name in DYNAMIC_LISTENER_KEYS:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{name}; write listener.name.NAME.{name}"
        )
    return f"Cannot update these configs dynamically: {name}; {_instead(name)}"


def _authorizes(operation: AclOperation) -> tuple[Requirement, ...]:
    """The operation that the principal needs, by the type of the resource."""
    return (
        requires((operation, acls.TOPIC), when="the resource is a topic"),
        requires((operation, acls.GROUP), when="the resource is a group"),
        requires((operation, acls.CLUSTER), when="the resource is a broker, a broker's loggers or client metrics"),
    )


_CHANGES: Final = (
    Change.TOPIC_CONFIGURED,
    Change.GROUP_CONFIGURED,
    Change.CLIENT_METRICS_CONFIGURED,
    Change.BROKER_CONFIGURED,
)

ROUTES: Final = (
    Route(ApiKey.DESCRIBE_CONFIGS, handle_describe_configs, _authorizes(acls.DESCRIBE_CONFIGS)),
    Route(ApiKey.ALTER_CONFIGS, handle_alter_configs, _authorizes(acls.ALTER_CONFIGS), changes=_CHANGES),
    Route(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        handle_incremental_alter_configs,
        _authorizes(acls.ALTER_CONFIGS),
        changes=_CHANGES,
    ),
    Route(
        ApiKey.LIST_CONFIG_RESOURCES, handle_list_config_resources, (requires((acls.DESCRIBE_CONFIGS, acls.CLUSTER)),)
    ),
)
