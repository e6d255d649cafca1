"""`barnabas init --dump`: prints what a cluster has as the file that `broker --init` reads."""

import json
import re
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from barnabas_client.admin.acls import AclBinding, shown
from barnabas_client.admin.admin import Admin
from barnabas_client.admin.quotas import ClientQuotas
from barnabas_client.admin.types import ConfigResource, ConfigSource
from barnabas_client.cli import clients
from barnabas_client.cli.command import Command
from barnabas_client.cli.failures import DONE
from barnabas_client.cli.output import Output
from barnabas_protocol.acls import AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Names that YAML reads as text without quotes.
_PLAIN: Final = re.compile(r"[A-Za-z][\w.-]*(?<![.-])")
#: Words that YAML reads as something else.
_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
_USER: Final = "User:"
#: The name that stands for all that have no quota of their own.
_DEFAULT: Final = "<default>"


async def dump(arguments: Namespace, output: Output) -> int:
    """Print everything that the file may have, except records and passwords, which brokers do not tell."""
    async with clients.admin(arguments) as admin:
        for section in (_topics, _users, _acls, _quotas, _groups):
            async for line in section(admin):
                output.line(line)
    return DONE


async def _topics(admin: Admin) -> AsyncIterator[str]:
    topics = await admin.describe_topics(internal=False)
    if not topics:
        return
    resources = [ConfigResource.topic(topic.name) for topic in topics]
    configs = {one.resource.name: one.entries for one in await admin.describe_configs(resources)}
    yield "topics:"
    for topic in sorted(topics, key=lambda each: each.name):
        yield f"  {_scalar(topic.name)}:"
        yield f"    partitions: {len(topic.partitions)}"
        own = {
            name: entry.value
            for name, entry in configs[topic.name].items()
            if entry.source is ConfigSource.TOPIC and entry.value is not None
        }
        if own:
            yield "    config:"
            for name, value in sorted(own.items()):
                yield f"      {name}: {_scalar(value)}"


async def _users(admin: Admin) -> AsyncIterator[str]:
    users = sorted({each.user for each in await admin.describe_user_scram_credentials()})
    if users:
        yield "users:"
        for user in users:
            yield f"  {_scalar(user)}: {{password_file: {_scalar(f'{user}.password')}}}"


async def _acls(admin: Admin) -> AsyncIterator[str]:
    try:
        found = await admin.describe_acls()
    except KafkaError as error:
        if error.code == ErrorCode.SECURITY_DISABLED:
            return
        raise
    by_user: defaultdict[str, list[str]] = defaultdict(list)
    others = []
    for acl in found:
        text = _acl_text(acl)
        if text is None:
            others.append(acl)
        else:
            by_user[acl.principal.removeprefix(_USER)].append(text)
    if by_user:
        yield "acls:"
        for user, texts in sorted(by_user.items()):
            yield f"  {_scalar(user)}:"
            for text in sorted(texts):
                yield f"    - {_scalar(text)}"
    for acl in others:
        yield f"# not in this file, because of its address or its name: {shown(acl)}"


def _acl_text(acl: AclBinding) -> str | None:
    """An ACL as the file has it; None if it cannot have it."""
    prefixed = acl.pattern_type is AclPatternType.PREFIXED
    name = acl.resource_name
    ambiguous = (name.endswith("*") and name != "*") or (prefixed and name == "") or " " in name
    if not acl.principal.startswith(_USER) or acl.host != "*" or ambiguous:
        return None
    words = [_word(acl.operation.name), _word(acl.resource_type.name)]
    if acl.permission_type is AclPermissionType.DENY:
        words.insert(0, "deny")
    if acl.resource_type is not AclResourceType.CLUSTER:
        words.append(f"{name}*" if prefixed else name)
    return " ".join(words)


def _word(name: str) -> str:
    return name.lower().replace("_", "-")


async def _quotas(admin: Admin) -> AsyncIterator[str]:
    found = await admin.describe_client_quotas()
    if found:
        yield "quotas:"
        for one in sorted(found, key=lambda each: str(each.entity)):
            yield f"  - {{{', '.join(_quota_items(one))}}}"


def _quota_items(one: ClientQuotas) -> Iterator[str]:
    for kind, name in one.entity.items():
        yield f"{kind.replace('-', '_')}: {_scalar(_DEFAULT if name is None else name)}"
    for key, value in one.values.items():
        yield f"{key}: {int(value) if value == int(value) else value}"


async def _groups(admin: Admin) -> AsyncIterator[str]:
    first = True
    for group in sorted(each.group_id for each in await admin.list_consumer_groups()):
        offsets = await admin.list_consumer_group_offsets(group)
        by_topic: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for where, committed in offsets.items():
            if committed.offset is not None:
                by_topic[where.topic][where.partition] = committed.offset
        if not by_topic:
            continue
        if first:
            yield "groups:"
            first = False
        yield f"  {_scalar(group)}:"
        for topic, each in sorted(by_topic.items()):
            yield f"    {_scalar(topic)}: {{{', '.join(_pairs(each.items()))}}}"


def _pairs(pairs: Iterable[tuple[int, int]]) -> Iterator[str]:
    for partition, offset in sorted(pairs):
        yield f"{partition}: {offset}"


def _scalar(text: str) -> str:
    """A text in YAML: as it is if that is unmistakable, otherwise in quotes, as in JSON."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dump",
        action="store_true",
        required=True,
        help="print topics, users, ACLs, quotas and groups' offsets as a file for broker --init",
    )


COMMAND: Final = Command(
    path=("init",),
    help="print what a cluster has as a file for broker --init",
    add_arguments=_arguments,
    run=dump,
)
