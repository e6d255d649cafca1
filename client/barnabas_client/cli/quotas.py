"""`barnabas quotas list`, `set` and `remove`: how much users, clients and addresses may use."""

import math
from argparse import ArgumentParser, Namespace
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.quotas import ClientQuotaAlteration, ClientQuotas, shown_entity
from barnabas_client.cli import clients
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.failures import DONE, CommandError, UsageError
from barnabas_client.cli.output import Column, Output
from barnabas_protocol.suggestions import did_you_mean

_COLUMNS: Final = (
    Column("USER", 20),
    Column("CLIENT-ID", 20),
    Column("IP", 15),
    Column("QUOTA", 24),
    Column("VALUE", 0),
)
_KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
#: The options of entities, by type.
_OPTIONS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
#: How the default of a type is printed, as kafka-configs does.
_DEFAULT: Final = "<default>"


async def list_quotas(arguments: Namespace, output: Output) -> int:
    """Print quotas."""
    async with clients.admin(arguments) as admin:
        found = await admin.describe_client_quotas(_entity(arguments))
    if output.json:
        output.data([{"entity": one.entity, "quotas": one.values} for one in found])
    else:
        output.table(
            _COLUMNS, [(*_names(one), key, _number(value)) for one in found for key, value in one.values.items()]
        )
    return DONE


async def set_quotas(arguments: Namespace, output: Output) -> int:
    """Set quotas of an entity."""
    entity = _required(arguments)
    async with clients.admin(arguments) as admin:
        await _alter(admin, entity, dict(arguments.values), validate_only=arguments.dry_run)
    return _done(output, "valid for" if arguments.dry_run else "set for", entity)


async def remove_quotas(arguments: Namespace, output: Output) -> int:
    """Remove quotas of an entity: those that are named, or all."""
    entity = _required(arguments)
    async with clients.admin(arguments) as admin:
        found = await admin.describe_client_quotas(entity, strict=True)
        has = found[0].values if found else {}
        missing = [key for key in arguments.keys if key not in has] if arguments.keys else []
        if missing or not has:
            what = ", ".join(missing) or "quota"
            raise CommandError(f"there is no {what} for {shown_entity(entity)}. To do: barnabas quotas list shows them")
        await _alter(admin, entity, dict.fromkeys(arguments.keys or has), validate_only=False)
    return _done(output, "removed for", entity)


async def _alter(
    admin: Admin, entity: dict[str, str | None], values: dict[str, float | None], *, validate_only: bool
) -> None:
    await admin.alter_client_quotas([ClientQuotaAlteration(entity, values)], validate_only=validate_only)


def _entity(arguments: Namespace) -> dict[str, str | None]:
    """The entity of the options; empty without them."""
    given: dict[str, str | None] = {}
    for kind, name in _OPTIONS.items():
        if (value := getattr(arguments, name)) is not None:
            given[kind] = value
        if getattr(arguments, f"default_{name}"):
            if kind in given:
                raise UsageError(f"--{kind} and --default-{kind} are given: give one of them")
            given[kind] = None
    return given


def _required(arguments: Namespace) -> dict[str, str | None]:
    entity = _entity(arguments)
    if not entity:
        raise UsageError("it is not said for what: give --user, --client-id or --ip, or --default-user and so on")
    return entity


def _names(one: ClientQuotas) -> list[str]:
    return [(one.entity[kind] or _DEFAULT) if kind in one.entity else "-" for kind in _OPTIONS]


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)


def _done(output: Output, done: str, entity: dict[str, str | None]) -> int:
    if output.json:
        output.row({"entity": entity, "done": done.split()[0]})
    else:
        output.line(f"quotas {done} {shown_entity(entity)}")
    return DONE


def _key(text: str) -> str:
    if text not in _KEYS:
        raise ValueError(f"{text!r} is not a quota{did_you_mean(text, _KEYS) or ': give one of ' + ', '.join(_KEYS)}")
    return text


def _pair(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r}: write it as KEY=NUMBER, such as producer_byte_rate=1048576")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise ValueError(f"{text!r}: the value must be a number above 0; barnabas quotas remove removes a quota")
    return _key(key), number


def _add_entity(parser: ArgumentParser) -> None:
    for kind, what in (("user", "principal's name"), ("client-id", "client id"), ("ip", "IP address")):
        parser.add_argument(f"--{kind}", metavar="NAME" if kind != "ip" else "ADDRESS", help=f"a {what}")
        parser.add_argument(f"--default-{kind}", action="store_true", help=f"every {what} without a quota of its own")


def _set_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "values", nargs="+", type=checked(_pair), metavar="KEY=NUMBER", help=f"KEY is one of {', '.join(_KEYS)}"
    )
    _add_entity(parser)
    parser.add_argument("--dry-run", action="store_true", help="only have the broker check the values")


def _remove_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("keys", nargs="*", type=checked(_key), metavar="KEY", help="only these (default: all)")
    _add_entity(parser)


COMMANDS: Final = (
    Command(
        path=("quotas", "list"),
        help="print quotas, of these users, clients and addresses or of all",
        add_arguments=_add_entity,
        run=list_quotas,
    ),
    Command(path=("quotas", "set"), help="set quotas", add_arguments=_set_arguments, run=set_quotas),
    Command(path=("quotas", "remove"), help="remove quotas", add_arguments=_remove_arguments, run=remove_quotas),
)
