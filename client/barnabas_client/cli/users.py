"""`barnabas users list`, `add`, `password` and `remove`: the users who log in with SCRAM.

A password is never an argument, which other users of the machine can see.
"""

import getpass
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.users import UserScramCredentialDeletion, UserScramCredentials, UserScramCredentialUpsertion
from barnabas_client.cli import clients
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.failures import DONE, FAILED, CommandError
from barnabas_client.cli.output import Column, Output
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.scram import LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism

_COLUMNS: Final = (Column("USER", 25), Column("MECHANISM", 13), Column("ITERATIONS", 0))
_ALL: Final = tuple(each.title for each in ScramMechanism)


async def list_users(arguments: Namespace, output: Output) -> int:
    """Print users and their mechanisms."""
    async with clients.admin(arguments) as admin:
        found = await admin.describe_user_scram_credentials(arguments.users or None, raise_errors=False)
    users = [one for one in found if one.error is None]
    if output.json:
        output.data(
            [
                {"user": one.user, "mechanisms": {each.title: rounds for each, rounds in one.iterations.items()}}
                for one in users
            ]
        )
    else:
        rows = [(one.user, each.title, rounds) for one in users for each, rounds in sorted(one.iterations.items())]
        output.table(_COLUMNS, rows)
    for one in found:
        if one.error is not None:
            output.error(for_command_line(one.error))
    return FAILED if len(users) < len(found) else DONE


async def add_user(arguments: Namespace, output: Output) -> int:
    """Add a user."""
    async with clients.admin(arguments) as admin:
        if (await _find(admin, arguments.user)).iterations:
            raise CommandError(
                f"the user {arguments.user!r} exists. To do: use barnabas users password to change the password"
            )
        await _set(admin, arguments, arguments.mechanisms or [*ScramMechanism])
    return _done(output, "added", arguments.user)


async def change_password(arguments: Namespace, output: Output) -> int:
    """Change the password of a user, for all mechanisms that the user has."""
    async with clients.admin(arguments) as admin:
        found = await _find(admin, arguments.user)
        if not found.iterations:
            raise CommandError(f"the user {arguments.user!r} does not exist. To do: barnabas users list shows them")
        await _set(admin, arguments, arguments.mechanisms or sorted(found.iterations))
    return _done(output, "changed", arguments.user)


async def remove_users(arguments: Namespace, output: Output) -> int:
    """Remove users, or one mechanism of them."""
    failed = False
    async with clients.admin(arguments) as admin:
        for user in dict.fromkeys(arguments.users):
            found = await _find(admin, user)
            mechanisms = [each for each in sorted(found.iterations) if each in (arguments.mechanisms or ScramMechanism)]
            if not mechanisms:
                output.error(f"the user {user!r} does not exist, or not for this mechanism")
                failed = True
                continue
            # One request for each: a broker refuses two changes of a user in one.
            for mechanism in mechanisms:
                await admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, mechanism)])
            _done(output, "removed", user)
    return FAILED if failed else DONE


async def _find(admin: Admin, user: str) -> UserScramCredentials:
    """Look up a user's credentials; without mechanisms if the user does not exist."""
    (found,) = await admin.describe_user_scram_credentials([user], raise_errors=False)
    if found.error is not None and found.error.code is not ErrorCode.RESOURCE_NOT_FOUND:
        raise found.error
    return found


async def _set(admin: Admin, arguments: Namespace, mechanisms: Sequence[ScramMechanism]) -> None:
    password = _password(arguments.user, arguments.password_file)
    for mechanism in mechanisms:
        change = UserScramCredentialUpsertion(arguments.user, mechanism, password, arguments.iterations)
        await admin.alter_user_scram_credentials([change])


def _password(user: str, file: str | None) -> str:
    """The password, from a file, from the terminal, or from standard input: its first line.

    Raises:
        CommandError: there is none.
    """
    if file is not None:
        try:
            text = Path(file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--password-file {file} cannot be read: {error}") from None
    elif sys.stdin.isatty():
        text = getpass.getpass(f"Password of the user {user}: ")
        if getpass.getpass("The same again: ") != text:
            raise CommandError("the two passwords are not the same")
    else:
        text = sys.stdin.readline()
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        raise CommandError("the password is empty: give it in --password-file FILE, or on standard input")
    return password


def _done(output: Output, done: str, user: str) -> int:
    if output.json:
        output.row({"user": user, "done": done})
    else:
        output.line(f"{done} user {user}")
    return DONE


def _mechanism(text: str) -> ScramMechanism:
    try:
        return ScramMechanism.of(text.upper())
    except ValueError:
        raise ValueError(f"{text!r} is not a mechanism: give one of {', '.join(_ALL)}") from None


def _iterations(text: str) -> int:
    if not text.isdecimal() or not LEAST_ITERATIONS <= int(text[:9]) <= MOST_ITERATIONS:
        raise ValueError(f"{text!r}: give a number from {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
    return int(text)


def _add_mechanisms(parser: ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--mechanism",
        dest="mechanisms",
        action="append",
        type=checked(_mechanism),
        metavar="MECHANISM",
        help=f"{' or '.join(_ALL)}; repeatable (default: {default})",
    )


def _add_password(parser: ArgumentParser) -> None:
    parser.add_argument("user", metavar="USER")
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="its first line is the password (default: ask for it, or read standard input)",
    )
    parser.add_argument(
        "--iterations",
        type=checked(_iterations),
        default=LEAST_ITERATIONS,
        metavar="N",
        help=f"rounds of the hash function, up to {MOST_ITERATIONS} (default: {LEAST_ITERATIONS})",
    )


def _list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("users", nargs="*", metavar="USER", help="only these")


def _add_arguments(parser: ArgumentParser) -> None:
    _add_password(parser)
    _add_mechanisms(parser, "both")


def _change_arguments(parser: ArgumentParser) -> None:
    _add_password(parser)
    _add_mechanisms(parser, "those that the user has")


def _remove_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("users", nargs="+", metavar="USER")
    _add_mechanisms(parser, "both")


COMMANDS: Final = (
    Command(
        path=("users", "list"),
        help="print users and their mechanisms",
        add_arguments=_list_arguments,
        run=list_users,
    ),
    Command(path=("users", "add"), help="add a user", add_arguments=_add_arguments, run=add_user),
    Command(
        path=("users", "password"),
        help="change the password of a user",
        add_arguments=_change_arguments,
        run=change_password,
    ),
    Command(path=("users", "remove"), help="remove users", add_arguments=_remove_arguments, run=remove_users),
)
