"""`barnabas acls`: lists, adds and removes ACLs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, Final

from barnabas_client.admin.acls import AclBinding, AclBindingFilter, AclResult, shown
from barnabas_client.cli import clients
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.failures import DONE, FAILED, UsageError
from barnabas_client.cli.output import Output
from barnabas_protocol.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.counts import counted
from barnabas_protocol.suggestions import did_you_mean

_OPERATIONS: Final = {
    each.name.lower().replace("_", "-"): each for each in AclOperation if each is not AclOperation.ANY
}


async def list_acls(arguments: Namespace, output: Output) -> int:
    """Print ACLs."""
    async with clients.admin(arguments) as admin:
        found = [acl for wanted in _filters(arguments) for acl in await admin.describe_acls(wanted)]
    if output.json:
        output.data([_json(acl) for acl in dict.fromkeys(found)])
    else:
        for acl in dict.fromkeys(found):
            output.line(shown(acl))
    return DONE


async def add_acls(arguments: Namespace, output: Output) -> int:
    """Create ACLs: each operation on each resource."""
    resources = _resources(arguments)
    if not resources:
        raise UsageError("it is not said for what: give --topic, --group, --transactional-id or --on-cluster")
    if not arguments.operations:
        raise UsageError("it is not said which operations: give --operation")
    new = [
        AclBinding(
            arguments.principal,
            operation,
            kind,
            name,
            AclPatternType.PREFIXED if arguments.prefix and kind is not AclResourceType.CLUSTER else _LITERAL,
            arguments.host or "*",
            AclPermissionType.DENY if arguments.deny else AclPermissionType.ALLOW,
        )
        for kind, name in resources
        for operation in arguments.operations
    ]
    async with clients.admin(arguments) as admin:
        return _report(await admin.create_acls(new, raise_errors=False), output, "added")


async def remove_acls(arguments: Namespace, output: Output) -> int:
    """Delete ACLs."""
    filters = _filters(arguments)
    if AclBindingFilter() in filters:
        raise UsageError("this would remove all ACLs: say which, for instance with --principal or --topic")
    async with clients.admin(arguments) as admin:
        if arguments.dry_run:
            found = [acl for wanted in filters for acl in await admin.describe_acls(wanted)]
            results = [AclResult(acl) for acl in dict.fromkeys(found)]
        else:
            results = await admin.delete_acls(filters, raise_errors=False)
    return _report(results, output, "could be removed" if arguments.dry_run else "removed")


_LITERAL: Final = AclPatternType.LITERAL


def _resources(arguments: Namespace) -> list[tuple[AclResourceType, str]]:
    """The resources that the arguments name."""
    return [
        *((AclResourceType.TOPIC, name) for name in arguments.topics),
        *((AclResourceType.GROUP, name) for name in arguments.groups),
        *((AclResourceType.TRANSACTIONAL_ID, name) for name in arguments.transactional_ids),
        *([(AclResourceType.CLUSTER, CLUSTER_NAME)] if arguments.on_cluster else []),
    ]


def _filters(arguments: Namespace) -> list[AclBindingFilter]:
    """Filters for what the arguments name: all of it, if they name nothing."""
    permission = AclPermissionType.DENY if arguments.deny else AclPermissionType.ANY
    resources: list[tuple[AclResourceType, str | None]] = [*_resources(arguments)]
    return [
        AclBindingFilter(
            arguments.principal, operation, kind, name, _pattern(arguments, name), arguments.host, permission
        )
        for kind, name in resources or [(AclResourceType.ANY, None)]
        for operation in arguments.operations or [AclOperation.ANY]
    ]


def _pattern(arguments: Namespace, name: str | None) -> AclPatternType:
    if arguments.prefix:
        return AclPatternType.PREFIXED
    return AclPatternType.ANY if name is None else AclPatternType.MATCH if arguments.applying else _LITERAL


def _report(results: list[AclResult], output: Output, verb: str) -> int:
    """Print what became of each ACL."""
    failed = [one for one in results if one.error is not None]
    if output.json:
        output.data([_json(one.acl) | {"error": None if one.error is None else str(one.error)} for one in results])
    else:
        for one in results:
            if one.error is None:
                output.line(f"{verb}: {shown(one.acl)}")
            else:
                output.error(str(one.error))
        if not results:
            output.note(f"{counted(0, 'ACL')} {verb}")
    return FAILED if failed else DONE


def _json(acl: AclBinding) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": acl.permission_type.name,
        "operation": acl.operation.name,
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "host": acl.host,
    }


def _principal(text: str) -> str:
    if not all(text.partition(":")[::2]):
        raise ValueError(f"must be a principal such as User:ada, got {text!r}")
    return text


def _operation(text: str) -> AclOperation:
    name = text.lower().replace("_", "-")
    if name not in _OPERATIONS:
        raise ValueError(f"no such operation: {text!r}{did_you_mean(name, _OPERATIONS)}")
    return _OPERATIONS[name]


def _add_resources(parser: ArgumentParser) -> None:
    names: dict[str, tuple[str, Callable[[str], Any], str]] = {
        "--operation": ("operations", checked(_operation), "an operation, such as read, write, describe or all"),
        "--topic": ("topics", str, "a topic; * stands for all"),
        "--group": ("groups", str, "a consumer group; * stands for all"),
        "--transactional-id": ("transactional_ids", str, "a transactional id; * stands for all"),
    }
    for option, (dest, kind, help) in names.items():
        parser.add_argument(
            option, dest=dest, action="append", default=[], type=kind, metavar=option[2:].upper(), help=help
        )
    parser.add_argument("--on-cluster", action="store_true", help="the cluster itself")
    parser.add_argument("--prefix", action="store_true", help="all resources whose names begin with the names given")
    parser.add_argument("--host", metavar="ADDRESS", help="the address that clients connect from (default: all)")
    parser.add_argument("--deny", action="store_true", help="ACLs that deny")


def _add_filters(parser: ArgumentParser) -> None:
    parser.add_argument("--principal", type=checked(_principal), metavar="PRINCIPAL", help="only of this principal")
    _add_resources(parser)


def _list_arguments(parser: ArgumentParser) -> None:
    _add_filters(parser)
    parser.add_argument(
        "--applying", action="store_true", help="all ACLs that apply to the names given, with prefixes and *, too"
    )


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "principal", type=checked(_principal), metavar="PRINCIPAL", help="User:NAME; User:* stands for everyone"
    )
    _add_resources(parser)


def _remove_arguments(parser: ArgumentParser) -> None:
    _add_filters(parser)
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    parser.set_defaults(applying=False)


COMMANDS: Final = (
    Command(path=("acls", "list"), help="list ACLs", add_arguments=_list_arguments, run=list_acls),
    Command(path=("acls", "add"), help="allow or deny operations", add_arguments=_add_arguments, run=add_acls),
    Command(path=("acls", "remove"), help="remove ACLs", add_arguments=_remove_arguments, run=remove_acls),
)
