"""`barnabas cluster elect-preferred`: makes the first replicas of partitions their leaders again."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import ElectionType
from barnabas_client.cli import clients
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.cluster.selection import add_topics, selected
from barnabas_client.cli.cluster.state import look
from barnabas_client.cli.command import Command
from barnabas_client.cli.failures import DONE, FAILED
from barnabas_client.cli.output import Column, Output
from barnabas_client.structs import TopicPartition
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.printable import printable

_COLUMNS: Final = (
    Column("TOPIC", 5),
    Column("PARTITION", 9, right=True),
    Column("LEADER", 6, right=True),
    Column("PREFERRED", 9, right=True),
)


async def elect_preferred(arguments: Namespace, output: Output) -> int:
    """Elect preferred leaders; dry run unless --execute is given."""
    errors: dict[TopicPartition, KafkaError] = {}
    async with clients.admin(arguments) as admin:
        state = await look(admin)
        chosen = selected(state, arguments.topics)
        others = {tp: state.partitions[tp].info for tp in chosen if state.partitions[tp].prefers_another_leader}
        if arguments.execute:
            errors = await elect(admin, others)
    if output.json:
        output.data(
            {
                "executed": arguments.execute,
                "partitions": [
                    {
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "leader": info.leader,
                        "preferred": info.replicas[0],
                        "error": for_command_line(errors[tp]) if tp in errors else None,
                    }
                    for tp, info in others.items()
                ],
            }
        )
    elif not others:
        output.line("all of these partitions are led by their preferred replicas")
    else:
        rows = [(printable(tp.topic), tp.partition, info.leader, info.replicas[0]) for tp, info in others.items()]
        output.table(_COLUMNS, rows)
    for error in errors.values():
        output.error(for_command_line(error))
    if others and not output.json:
        output.out.flush()
        if arguments.execute:
            output.note(f"{counted(len(others) - len(errors), 'leader')} elected")
        else:
            output.note("dry run: nothing was changed; add --execute")
    return FAILED if errors else DONE


async def elect(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError]:
    """Elect the preferred leaders of partitions; returns the errors, but for leaders that were right already.

    Raises:
        KafkaError: the controller refused the whole request.
    """
    chosen = list(partitions)
    if not chosen:
        return {}
    found = await admin.elect_leaders(ElectionType.PREFERRED, chosen, raise_errors=False)
    return {
        tp: one.error
        for tp, one in found.items()
        if one.error is not None and one.error.code != ErrorCode.ELECTION_NOT_NEEDED
    }


def _arguments(parser: ArgumentParser) -> None:
    add_topics(parser)
    parser.add_argument("--execute", action="store_true", help="elect them; without it, only print what would change")


COMMAND: Final = Command(
    path=("cluster", "elect-preferred"),
    help="make the preferred replicas leaders again",
    add_arguments=_arguments,
    run=elect_preferred,
)
