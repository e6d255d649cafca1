"""`barnabas client-metrics`: subscriptions to the metrics of clients (KIP-714), as kafka-client-metrics has them."""

from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import AlterConfigOp, ConfigOp, ConfigResource, ConfigResult, ResourceType
from barnabas_client.cli import clients, values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.configs import change_configs, own_keys, print_changes
from barnabas_client.cli.failures import DONE, FAILED, UsageError
from barnabas_client.cli.output import Column, Output
from barnabas_protocol.suggestions import did_you_mean

_METRICS, _INTERVAL, _MATCH = "metrics", "interval.ms", "match"
_COLUMNS: Final = (Column("NAME", 20), Column("INTERVAL", 9), Column("METRICS", 30), Column("MATCH", 0))
#: What brokers know of a client, for --match.
_PROPERTIES: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_ALL: Final = "*"


async def list_subscriptions(arguments: Namespace, output: Output) -> int:
    """Print the names of subscriptions."""
    async with clients.admin(arguments) as admin:
        names = await _names(admin)
    if output.json:
        output.data(names)
    else:
        for name in names:
            output.line(name)
    return DONE


async def describe_subscriptions(arguments: Namespace, output: Output) -> int:
    """Print what subscriptions ask for, and of which clients."""
    async with clients.admin(arguments) as admin:
        known = await _names(admin)
        wanted = list(dict.fromkeys(arguments.names)) or known
        there = [ConfigResource.client_metrics(name) for name in wanted if name in known]
        found = await admin.describe_configs(there, raise_errors=False) if there else []
    described = [one for one in found if one.error is None]
    if output.json:
        output.data([_as_data(one) for one in described])
    elif described:
        output.table(_COLUMNS, [_row(one) for one in described])
    failures = [*_missing(wanted, known), *(for_command_line(one.error) for one in found if one.error is not None)]
    for failure in failures:
        output.error(failure)
    return FAILED if failures else DONE


async def set_subscription(arguments: Namespace, output: Output) -> int:
    """Set what a subscription asks for; one that does not exist is made."""
    given = {
        _METRICS: arguments.metrics and ",".join(arguments.metrics),
        _INTERVAL: arguments.interval and str(arguments.interval),
        _MATCH: arguments.match and ",".join(arguments.match),
    }
    changes = [
        *(AlterConfigOp(key, value) for key, value in given.items() if value),
        *(AlterConfigOp(key, None, ConfigOp.DELETE) for key in arguments.unset),
    ]
    if not changes:
        raise UsageError("there is nothing to set: give --metrics, --interval, --match or --unset")
    twice = [key for key in arguments.unset if given[key]]
    if twice:
        raise UsageError(f"{twice[0]} is set and unset: give one of them")
    resource, dry_run = ConfigResource.client_metrics(arguments.name), arguments.dry_run
    async with clients.admin(arguments) as admin:
        done, unchanged = await change_configs(admin, resource, changes, dry_run=dry_run)
        asks = given[_METRICS] or dry_run or _read(*await admin.describe_configs([resource]))[_METRICS]
    print_changes(output, "subscription", arguments.name, done, unchanged, dry_run=dry_run)
    if not asks:
        output.note(f"{arguments.name} names no metrics, so that clients push nothing for it. To do: give --metrics")
    return DONE


async def delete_subscriptions(arguments: Namespace, output: Output) -> int:
    """Delete subscriptions."""
    async with clients.admin(arguments) as admin:
        known = await _names(admin)
        wanted = list(dict.fromkeys(arguments.names))
        there = [ConfigResource.client_metrics(name) for name in wanted if name in known]
        # A subscription is its configuration: without keys it is gone.
        changes = {
            one.resource: [AlterConfigOp(key, None, ConfigOp.DELETE) for key in own_keys(one)]
            for one in (await admin.describe_configs(there) if there else [])
        }
        results = await admin.incremental_alter_configs(changes, raise_errors=False) if changes else []
    gone = [one.resource.name for one in results if one.error is None]
    if output.json:
        output.data([{"subscription": name, "deleted": name in gone} for name in wanted])
    else:
        for name in gone:
            output.line(f"{name}: deleted")
    failures = [*_missing(wanted, known), *(for_command_line(one.error) for one in results if one.error is not None)]
    for failure in failures:
        output.error(failure)
    return FAILED if failures else DONE


async def _names(admin: Admin) -> list[str]:
    return sorted(one.name for one in await admin.list_config_resources([ResourceType.CLIENT_METRICS]))


def _missing(wanted: Iterable[str], known: Collection[str]) -> list[str]:
    """Errors for the subscriptions that do not exist."""
    return [
        f"there is no subscription {name!r}{did_you_mean(name, known)}. To do: barnabas client-metrics list shows them"
        for name in wanted
        if name not in known
    ]


def _read(found: ConfigResult) -> dict[str, Any]:
    """The values of a subscription by key: lists, and a number."""
    texts = {key: entry.value or "" for key, entry in found.entries.items()}
    return {
        _METRICS: [each for each in texts.get(_METRICS, "").split(",") if each],
        _INTERVAL: int(texts.get(_INTERVAL) or 0),
        _MATCH: [each for each in texts.get(_MATCH, "").split(",") if each],
    }


def _as_data(found: ConfigResult) -> dict[str, Any]:
    read = _read(found)
    return {
        "subscription": found.resource.name,
        "interval_ms": read[_INTERVAL],
        "metrics": read[_METRICS],
        "match": read[_MATCH],
    }


def _row(found: ConfigResult) -> Sequence[object]:
    read = _read(found)
    interval: int = read[_INTERVAL]
    shown = f"{interval} ms" if interval % 1000 else f"{interval // 1000} s"
    return found.resource.name, shown, ",".join(read[_METRICS]) or "none", ",".join(read[_MATCH]) or "all clients"


def _metrics(text: str) -> str:
    names = [each.strip() for each in text.split(",")]
    if not all(names):
        raise ValueError(f"{text!r} has an empty name: write {_ALL} for all metrics")
    return ",".join(names)


def _match(text: str) -> str:
    name, expression = values.pair(text)
    if name not in _PROPERTIES:
        hint = did_you_mean(name, _PROPERTIES) or f": give one of {', '.join(_PROPERTIES)}"
        raise ValueError(f"{name!r} is not known of a client{hint}")
    if "," in expression:
        raise ValueError(f"{text!r} has a comma, which separates expressions: write it without one")
    return f"{name}={expression}"


def _add_names(parser: ArgumentParser, nargs: str, help: str | None = None) -> None:
    parser.add_argument("names", nargs=nargs, metavar="NAME", help=help)


def _set_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the subscription; one that does not exist is made")
    parser.add_argument(
        "--metrics",
        action="append",
        type=checked(_metrics),
        metavar="PREFIX",
        help="push the metrics whose names begin so, such as org.apache.kafka.consumer.; * for all; repeatable",
    )
    parser.add_argument(
        "--interval",
        type=checked(values.duration),
        metavar="TIME",
        help="time between two pushes of a client, 100ms to 1h (default: 5m)",
    )
    parser.add_argument(
        "--match",
        action="append",
        type=checked(_match),
        metavar="PROPERTY=EXPRESSION",
        help="only clients of which the whole property matches a regular expression; all that are given must match; "
        f"repeatable: {', '.join(_PROPERTIES)} (default: all clients)",
    )
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        choices=(_METRICS, _INTERVAL, _MATCH),
        metavar="KEY",
        help=f"reset {_METRICS}, {_INTERVAL} or {_MATCH} to its default; repeatable",
    )
    parser.add_argument("--dry-run", action="store_true", help="only have the broker check the values")


COMMANDS: Final = (
    Command(
        path=("client-metrics", "list"),
        help="print the names of subscriptions",
        add_arguments=lambda parser: None,
        run=list_subscriptions,
    ),
    Command(
        path=("client-metrics", "describe"),
        help="print the interval, the metrics and the clients of subscriptions",
        add_arguments=lambda parser: _add_names(parser, "*", "default: all"),
        run=describe_subscriptions,
    ),
    Command(
        path=("client-metrics", "set"),
        help="set which metrics which clients push, and how often",
        add_arguments=_set_arguments,
        run=set_subscription,
    ),
    Command(
        path=("client-metrics", "delete"),
        help="delete subscriptions: clients push nothing for them any more",
        add_arguments=lambda parser: _add_names(parser, "+"),
        run=delete_subscriptions,
    ),
)
