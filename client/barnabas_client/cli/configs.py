"""Common parts of the commands that change configurations."""

from collections.abc import Sequence
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import (
    AlterConfigOp,
    ConfigOp,
    ConfigResource,
    ConfigResult,
    ConfigSource,
    ResourceType,
)
from barnabas_client.cli.failures import CommandError
from barnabas_client.cli.output import Output
from barnabas_protocol.suggestions import did_you_mean

#: What resources of a type are called, and the source of a value that one has of its own.
_OWN: Final = {
    ResourceType.TOPIC: ("topics", ConfigSource.TOPIC),
    ResourceType.GROUP: ("groups", ConfigSource.GROUP),
    ResourceType.CLIENT_METRICS: ("subscriptions", ConfigSource.CLIENT_METRICS),
}


async def change_configs(
    admin: Admin, resource: ConfigResource, changes: Sequence[AlterConfigOp], *, dry_run: bool
) -> tuple[list[str], list[str]]:
    """Change the configuration of a topic, a group or a subscription to metrics.

    Args:
        admin: of the brokers.
        resource: what to configure.
        changes: of its keys.
        dry_run: only check whether it could be done.

    Returns:
        The changes that were made, as text, and the keys that were to be unset and are not set.

    Raises:
        CommandError: a key to unset does not exist. Brokers do not refuse that.
        KafkaError: the configuration cannot be described, or the changes are refused.
    """
    unset = [change.name for change in changes if change.op is ConfigOp.DELETE]
    unchanged = await _not_set(admin, resource, unset)
    left = [change for change in changes if change.op is not ConfigOp.DELETE or change.name not in unchanged]
    if left:
        await admin.incremental_alter_configs({resource: left}, validate_only=dry_run)
    return [_shown(change) for change in left], unchanged


def own_keys(found: ConfigResult) -> list[str]:
    """The keys of which a resource has values of its own."""
    _, own = _OWN[found.resource.type]
    return [name for name, entry in found.entries.items() if entry.source is own]


async def _not_set(admin: Admin, resource: ConfigResource, keys: Sequence[str]) -> list[str]:
    if not keys:
        return []
    (found,) = await admin.describe_configs([resource])
    for key in keys:
        if key not in found.entries:
            kind, _ = _OWN[resource.type]
            raise CommandError(f"{kind} have no configuration key {key!r}{did_you_mean(key, found.entries)}")
    own = own_keys(found)
    return [key for key in keys if key not in own]


def _shown(change: AlterConfigOp) -> str:
    if change.op is ConfigOp.DELETE:
        return f"{change.name} unset"
    sign = {ConfigOp.SET: "=", ConfigOp.APPEND: "+=", ConfigOp.SUBTRACT: "-="}[change.op]
    return f"{change.name}{sign}{change.value}"


def print_changes(
    output: Output, kind: str, name: str, done: Sequence[str], unchanged: Sequence[str], *, dry_run: bool
) -> None:
    """Print the changes of a configuration, made or possible.

    Args:
        output: prints.
        kind: "topic", "group" or "subscription", the name's key in JSON.
        name: of the topic, group or subscription.
        done: the changes.
        unchanged: keys that were to be reset and are not set.
        dry_run: whether nothing was changed.
    """
    if output.json:
        output.data({kind: name, "changes": done, "executed": not dry_run})
        return
    if done:
        output.line(f"{name}: {'could be changed' if dry_run else 'changed'}: {', '.join(done)}")
    if unchanged:
        output.line(f"{name}: unchanged, not set: {', '.join(unchanged)}")
