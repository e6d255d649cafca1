"""DescribeConfigs with sources and synonyms, IncrementalAlterConfigs and AlterConfigs."""

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import ConfigSource
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_configs import AlterableConfig as OldConfig
from barnabas_protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas_protocol.messages.alter_configs import AlterConfigsResource as OldResource
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


async def test_each_topic_config_has_its_source(wire: Wire) -> None:
    before = await row(wire, TOPIC, "t", "retention.ms")
    assert (before.value, before.config_source) == ("604800000", ConfigSource.DEFAULT_CONFIG)
    assert before.synonyms == []  # log.retention.ms has no default of its own
    assert before.documentation
    assert await alter(wire, TOPIC, "t", ("retention.ms", SET, "5")) == ErrorCode.NONE
    after = await row(wire, TOPIC, "t", "retention.ms")
    assert (after.value, after.config_source) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [s.name for s in after.synonyms] == ["retention.ms"]
    assert await alter(wire, TOPIC, "t", ("retention.ms", DELETE, None)) == ErrorCode.NONE
    assert (await row(wire, TOPIC, "t", "retention.ms")).value == "604800000"


async def test_the_default_of_a_topic_key_is_a_synonym_with_the_broker_key(wire: Wire) -> None:
    result = await row(wire, TOPIC, "t", "segment.bytes")
    assert [(s.name, s.source) for s in result.synonyms] == [("log.segment.bytes", ConfigSource.DEFAULT_CONFIG)]


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


@pytest.mark.parametrize("version", range(5))
async def test_all_keys_are_listed_in_every_version(wire: Wire, version: int) -> None:
    result = await describe(wire, TOPIC, "t", version=version)
    assert {"cleanup.policy", "retention.ms", "segment.bytes"} <= {c.name for c in result.configs}


async def test_values_are_appended_to_and_subtracted_from_lists(wire: Wire) -> None:
    assert await alter(wire, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert (await row(wire, TOPIC, "t", "cleanup.policy")).value == "delete,compact"
    assert await alter(wire, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.NONE
    assert (await row(wire, TOPIC, "t", "cleanup.policy")).value == "compact"
    assert await alter(wire, TOPIC, "t", ("retention.ms", APPEND, "5")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "none", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "7", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("node.id", SET, "7"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("x", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_bad_changes_are_rejected(
    wire: Wire, kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert await alter(wire, kind, name, change) == code


async def test_a_request_may_change_a_key_only_once(wire: Wire) -> None:
    twice = ("retention.ms", SET, "1"), ("retention.ms", SET, "2")
    assert await alter(wire, TOPIC, "t", *twice) == ErrorCode.INVALID_REQUEST


async def test_a_dry_run_changes_nothing(wire: Wire) -> None:
    assert await alter(wire, TOPIC, "t", ("retention.ms", SET, "5"), dry=True) == ErrorCode.NONE
    assert (await row(wire, TOPIC, "t", "retention.ms")).value == "604800000"


async def test_alter_configs_replaces_the_whole_configuration(wire: Wire) -> None:
    await alter(wire, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.bytes", SET, "1000"))
    resource = OldResource(resource_type=TOPIC, resource_name="t", configs=[OldConfig(name="retention.ms", value="6")])
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    assert (await wire.ask(request, 2, AlterConfigsResponse)).responses[0].error_code == ErrorCode.NONE
    assert (await row(wire, TOPIC, "t", "retention.ms")).value == "6"
    assert (await row(wire, TOPIC, "t", "segment.bytes")).config_source == ConfigSource.DEFAULT_CONFIG


async def test_a_brokers_configuration_is_described_and_changed(wire: Wire) -> None:
    result = await row(wire, BROKER, "1", "log.retention.ms")
    assert not result.read_only
    assert (await row(wire, BROKER, "1", "node.id")).read_only
    assert await alter(wire, BROKER, "1", ("log.retention.ms", SET, "77")) == ErrorCode.NONE
    assert (await row(wire, BROKER, "1", "log.retention.ms")).config_source == ConfigSource.DYNAMIC_BROKER_CONFIG
    assert (await row(wire, TOPIC, "t", "retention.ms")).value == "77"


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
