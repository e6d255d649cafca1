"""Common parts of the commands that change configurations."""

from collections.abc import Sequence

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import AlterConfigOp, ConfigOp, ConfigResource, ConfigSource, ResourceType
from barnabas_client.cli.failures import CommandError
from barnabas_client.cli.output import Output
from barnabas_protocol.suggestions import did_you_mean

#: The source of a value that a resource has of its own.
_OWN = {ResourceType.TOPIC: ConfigSource.TOPIC, ResourceType.GROUP: ConfigSource.GROUP}


async def not_set(admin: Admin, resource: ConfigResource, keys: Sequence[str]) -> list[str]:
    """The keys to unset of which the topic or group has no value of its own.

    Raises:
        CommandError: a key does not exist. Brokers do not refuse to unset it.
        KafkaError: the topic or group cannot be described.
    """
    if not keys:
        return []
    (found,) = await admin.describe_configs([resource])
    for key in keys:
        if key not in found.entries:
            kind = resource.type.name.lower()
            raise CommandError(f"{kind}s have no configuration key {key!r}{did_you_mean(key, found.entries)}")
    return [key for key in keys if found.entries[key].source is not _OWN[resource.type]]


def shown_change(change: AlterConfigOp) -> str:
    """Format a change of one key."""
    if change.op is ConfigOp.DELETE:
        return f"{change.name} unset"
    sign = {ConfigOp.SET: "=", ConfigOp.APPEND: "+=", ConfigOp.SUBTRACT: "-="}[change.op]
    return f"{change.name}{sign}{change.value}"


def print_changes(
    output: Output, kind: str, name: str, done: Sequence[str], unchanged: Sequence[str], *, dry_run: bool
) -> None:
    """Print what was changed of a topic or a group, or could be changed.

    Args:
        output: prints.
        kind: "topic" or "group", the name's key in JSON.
        name: of the topic or the group.
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
