"""The admin client's configurations: of topics, of brokers, of whatever else has one."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping

from barnabas_client.admin.base import AdminBase, Asked, R, raise_first, refused
from barnabas_client.admin.types import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigResult,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
)
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.schema import Request

Outcome = ConfigResult | KafkaError


class ConfigAdmin(AdminBase):
    """What the admin client does with configurations."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        keys: Iterable[str] | None = None,
        timeout_ms: int | None = None,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        raise_errors: bool = True,
    ) -> list[ConfigResult]:
        """The configuration of topics and brokers.

        Args:
            resources: whose.
            keys: only these; all if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            include_synonyms: with what each value falls back on.
            include_documentation: with what each key is for.
            raise_errors: raise the first refusal; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaError: it cannot be described otherwise.
        """
        wanted = None if keys is None else list(keys)

        async def ask(node: int | None, those: list[ConfigResource]) -> dict[ConfigResource, Outcome]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=one.type, resource_name=one.name, configuration_keys=wanted)
                    for one in those
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            response = await self._ask_node(node, request, DescribeConfigsResponse)
            found: dict[ConfigResource, Outcome] = {}
            for one in response.results:
                resource = ConfigResource(ResourceType(one.resource_type), one.resource_name)
                error = refused(one.error_code, f"describe the configuration of {resource}", one.error_message)
                entries = {row.name: _entry(row) for row in one.configs}
                found[resource] = error or ConfigResult(resource, None, entries)
            return found

        return await self._configs("describe the configuration of", resources, ask, timeout_ms, raise_errors)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        timeout_ms: int | None = None,
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> list[ConfigResult]:
        """Change single keys and leave the others as they are (KIP-339).

        Args:
            changes: for each resource what to change.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            validate_only: only check whether it could be done.
            raise_errors: raise the first refusal, after all others were done; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaError: a key or value was refused; of that resource nothing has changed.
        """
        ops = {resource: list(those) for resource, those in changes.items()}

        async def ask(node: int | None, those: list[ConfigResource]) -> dict[ConfigResource, Outcome]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=one.type,
                        resource_name=one.name,
                        configs=[
                            IncrementalAlterableConfig(name=op.name, config_operation=op.op, value=op.value)
                            for op in ops[one]
                        ],
                    )
                    for one in those
                ],
                validate_only=validate_only,
            )
            response = await self._ask_node(node, request, IncrementalAlterConfigsResponse)
            found: dict[ConfigResource, Outcome] = {}
            for one in response.responses:
                resource = ConfigResource(ResourceType(one.resource_type), one.resource_name)
                error = refused(one.error_code, f"change the configuration of {resource}", one.error_message)
                found[resource] = error or ConfigResult(resource)
            return found

        return await self._configs("change the configuration of", ops, ask, timeout_ms, raise_errors)

    async def _configs(
        self,
        what: str,
        resources: Iterable[ConfigResource],
        ask: Callable[[int | None, list[ConfigResource]], Awaitable[dict[ConfigResource, Outcome]]],
        timeout_ms: int | None,
        raise_errors: bool,
    ) -> list[ConfigResult]:
        """Ask each named broker about itself and any broker about the rest."""

        async def round_of(left: list[ConfigResource]) -> Asked[ConfigResource, ConfigResult]:
            asked: Asked[ConfigResource, ConfigResult] = Asked.nothing()
            by_node: defaultdict[int | None, list[ConfigResource]] = defaultdict(list)
            for resource in left:
                by_node[_node(resource)].append(resource)

            async def one(node: int | None, those: list[ConfigResource]) -> None:
                try:
                    answers = await ask(node, those)
                except KafkaError as error:
                    asked.done.update(dict.fromkeys(those, error))
                    return
                for resource in those:
                    answer = answers.get(resource)
                    if answer is None:
                        answer = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what} {resource}: no answer about it")
                    if isinstance(answer, KafkaError) and answer.code == ErrorCode.NOT_CONTROLLER:
                        asked.again[resource] = answer
                        await self._running().refresh()
                    else:
                        asked.done[resource] = answer

            await asyncio.gather(*(one(node, those) for node, those in by_node.items()))
            return asked

        found = await self._settle(what, resources, round_of, self._milliseconds(timeout_ms))
        results = [
            ConfigResult(resource, one) if isinstance(one, KafkaError) else one for resource, one in found.items()
        ]
        if raise_errors:
            raise_first(results)
        return results

    async def _ask_node(self, node: int | None, request: Request, answer: type[R]) -> R:
        network = self._running()
        chosen = network.cluster.controller_id if node is None else node
        if chosen in network.cluster.brokers and not network.ready(chosen):
            await network.refresh()  # if it has come back it is found by this
        if node is not None or chosen in network.cluster.brokers:
            return await network.ask(chosen, request, answer)
        return await network.ask_any(request, answer)


def _node(resource: ConfigResource) -> int | None:
    """The broker that alone can answer, None if any can."""
    named = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal()
    return int(resource.name) if named else None


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    source = ConfigSource(row.config_source if row.config_source > 0 else 0)
    if source is ConfigSource.UNKNOWN and row.is_default:  # version 0 tells no more
        source = ConfigSource.DEFAULT
    return ConfigEntry(
        name=row.name,
        value=row.value,
        source=source,
        read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        type=ConfigType(row.config_type),
        synonyms=tuple(ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in row.synonyms),
        documentation=row.documentation or "",
    )
