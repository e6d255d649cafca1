"""Configurations over the wire: synonyms, texts of errors, restarts. The rest: `interop/behaviour`."""

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import ConfigSource
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.conftest import StartBroker
from tests.wire import Wire

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture(autouse=True)
async def topic(wire: Wire) -> None:
    asked = [MetadataRequestTopic(name="t", topic_id=bytes(16))]
    await wire.ask(MetadataRequest(topics=asked), 12, MetadataResponse)


async def describe(
    wire: Wire, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource])
    if version >= 1:
        request.include_synonyms = True
    if version >= 3:
        request.include_documentation = True
    return (await wire.ask(request, version, DescribeConfigsResponse)).results[0]


async def row(wire: Wire, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    (found,) = (await describe(wire, kind, name, [key])).configs
    return found


async def alter(wire: Wire, kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False) -> int:
    configs = [IncrementalAlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes]
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)
    return (await wire.ask(request, 1, IncrementalAlterConfigsResponse)).responses[0].error_code


async def test_synonyms_are_listed_the_most_specific_first(wire: Wire) -> None:
    for kind, name, key, value in (
        (BROKER, "", "log.segment.bytes", "3000"),
        (BROKER, "1", "log.segment.bytes", "2000"),
        (TOPIC, "t", "segment.bytes", "1000"),
    ):
        assert await alter(wire, kind, name, (key, SET, value)) == ErrorCode.NONE
    of_broker = [
        ("log.segment.bytes", "2000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.segment.bytes", "3000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    result = [
        [(s.name, s.value, s.source) for s in (await row(wire, kind, name, key)).synonyms]
        for kind, name, key in (
            (TOPIC, "t", "segment.bytes"),
            (BROKER, "1", "log.segment.bytes"),
            (BROKER, "", "log.segment.bytes"),
        )
    ]
    assert result == [
        [("segment.bytes", "1000", ConfigSource.DYNAMIC_TOPIC_CONFIG), *of_broker],
        of_broker,
        of_broker[1:2],
    ]


async def test_fallbacks_are_listed_after_their_key(wire: Wire) -> None:
    assert await alter(wire, BROKER, "1", ("log.retention.ms", SET, "2000")) == ErrorCode.NONE
    result = await row(wire, TOPIC, "t", "retention.ms")
    assert [(s.name, s.value) for s in result.synonyms] == [
        ("log.retention.ms", "2000"),
        ("log.retention.hours", "168"),
    ]


async def test_keys_are_listed_in_the_order_of_the_request(wire: Wire) -> None:
    asked = ["segment.bytes", "cleanup.policy", "no.such.key", "segment.bytes", "retention.ms"]
    result = await describe(wire, TOPIC, "t", asked)
    assert [c.name for c in result.configs] == ["segment.bytes", "cleanup.policy", "retention.ms"]


async def test_an_unknown_operation_is_refused(wire: Wire) -> None:
    assert await alter(wire, TOPIC, "t", ("retention.ms", 9, "1")) == ErrorCode.INVALID_REQUEST


async def test_a_key_without_effect_is_kept_and_named_in_the_log(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    assert await alter(wire, BROKER, "", ("num.io.threads", SET, "9")) == ErrorCode.NONE
    assert await alter(wire, BROKER, "1", ("num.io.threads", SET, "10")) == ErrorCode.NONE
    assert await alter(wire, BROKER, "1", ("num.io.threads", SET, "10")) == ErrorCode.NONE
    lines = [line for line in caplog.text.splitlines() if "num.io.threads: no effect, " in line]
    assert len(lines) == 2  # not for the value that it has already
    one = await row(wire, BROKER, "1", "num.io.threads")
    assert (one.value, one.config_source) == ("10", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [(s.value, s.source) for s in one.synonyms] == [
        ("10", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("8", ConfigSource.DEFAULT_CONFIG),
    ]
    assert "No effect: " in (one.documentation or "")
    assert (await row(wire, BROKER, "", "num.io.threads")).value == "9"
    assert await alter(wire, BROKER, "1", ("num.io.threads", DELETE, None)) == ErrorCode.NONE
    assert (await row(wire, BROKER, "1", "num.io.threads")).value == "9"


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (TOPIC, "no.such.key", "Unknown topic config name: no.such.key"),
        (TOPIC, "retention.m", "Unknown topic config name: retention.m, did you mean retention.ms?"),
        (GROUP, "no.such.key", "Unknown group config name: no.such.key"),
        (
            BROKER,
            "ssl.cipher.suites",
            "Cannot update these configs dynamically: ssl.cipher.suites; OpenSSL's own choice",
        ),
        (
            BROKER,
            "kafka.metrics.reporters",
            "Cannot update these configs dynamically: kafka.metrics.reporters; it has no",
        ),
        (BROKER, "num.io.thread", "num.io.thread; no such configuration key, did you mean num.io.threads?"),
    ],
)
async def test_the_error_names_the_key(wire: Wire, kind: int, key: str, text: str) -> None:
    configs = [IncrementalAlterableConfig(name=key, config_operation=SET, value="1")]
    name = {TOPIC: "t", GROUP: "g", BROKER: "1"}[kind]
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = await wire.ask(request, 1, IncrementalAlterConfigsResponse)
    assert text in (response.responses[0].error_message or "")


async def test_min_insync_replicas_is_a_value_for_all_brokers(
    start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = str(tmp_path_factory.mktemp("other"))
    broker = await start_broker(min_insync_replicas="2", log_dir=data)
    everywhere = ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    async with await Wire.connect(broker.port) as wire:
        for name in ("1", ""):
            found = await row(wire, BROKER, name, "min.insync.replicas")
            assert (found.value, found.config_source) == everywhere
        assert await alter(wire, BROKER, "", ("min.insync.replicas", SET, "3")) == ErrorCode.NONE
        assert (await row(wire, BROKER, "1", "min.insync.replicas")).value == "3"
        assert await alter(wire, BROKER, "", ("min.insync.replicas", DELETE, None)) == ErrorCode.NONE
        found = await row(wire, BROKER, "1", "min.insync.replicas")
        assert (found.value, found.config_source) == everywhere


async def test_changes_survive_a_restart(start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = str(tmp_path_factory.mktemp("other"))
    first = await start_broker(log_dir=data)
    async with await Wire.connect(first.port) as wire:
        await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="u")]), 12, MetadataResponse)
        await alter(wire, TOPIC, "u", ("retention.ms", SET, "5"))
        await alter(wire, BROKER, "", ("log.segment.bytes", SET, "2000"))
    await first.stop()
    second = await start_broker(log_dir=data)
    async with await Wire.connect(second.port) as wire:
        assert (await row(wire, TOPIC, "u", "retention.ms")).value == "5"
        assert (await row(wire, TOPIC, "u", "segment.bytes")).value == "2000"


async def test_a_groups_configuration_outlives_a_restart(
    start_broker: StartBroker, broker: BrokerServer, wire: Wire
) -> None:
    key = "consumer.session.timeout.ms"
    assert await alter(wire, GROUP, "g", (key, SET, "50000")) == ErrorCode.NONE
    assert await alter(wire, GROUP, "other", (key, SET, "51000")) == ErrorCode.NONE
    assert await alter(wire, GROUP, "other", (key, DELETE, None)) == ErrorCode.NONE
    await broker.stop()
    wire = await Wire.connect((await start_broker()).port)
    found = await row(wire, GROUP, "g", key)
    assert (found.value, found.config_source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert [(each.name, each.value) for each in found.synonyms] == [(key, "50000"), (f"group.{key}", "45000")]
    listed = await wire.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1, ListConfigResourcesResponse)
    assert [each.resource_name for each in listed.config_resources] == ["g"]
    await wire.close()
