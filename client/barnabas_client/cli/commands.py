"""The `barnabas` program: every command of this package, and the options that they have in common."""

import argparse
from typing import Final

from barnabas_client.cli import (
    acls,
    bench,
    client_metrics,
    completion,
    consume,
    doctor,
    dump,
    explain,
    export,
    groups,
    init,
    ping,
    produce,
    quotas,
    reset,
    shares,
    topics,
    transactions,
    users,
    values,
    version,
    watch,
)
from barnabas_client.cli.cluster import elections, moves, status
from barnabas_client.cli.command import checked
from barnabas_client.cli.command_line import CommandLine
from barnabas_client.cli.plugins import plugin_commands

_SECTIONS: Final = {
    "topics": "list, create, describe, change, export and delete topics",
    "groups": "describe consumer groups, explain their rebalances, and reset their offsets",
    "shares": "describe share groups, and reset where they begin",
    "transactions": "list, describe, explain and abort transactions, and find those that hang",
    "users": "list, add and remove users who log in with SCRAM, and change their passwords",
    "cluster": "describe brokers, find partitions with problems, and move replicas and leaders",
    "acls": "list, add and remove ACLs: what principals may do",
    "quotas": "list, set and remove quotas: how much users, clients and addresses may use",
    "client-metrics": "list, describe, set and delete subscriptions: which clients push which metrics to the brokers",
    "dump": "print the contents of internal topics and log files",
    "log": "check a broker's log directory",
}


def _add_options(to: argparse._ActionsContainer) -> None:
    to.add_argument(
        "--timeout",
        type=checked(values.seconds),
        metavar="TIME",
        default=15.0,
        help="how long a response may take, such as 5s (default: 15s)",
    )


COMMAND_LINE: Final = CommandLine(
    name="barnabas",
    description="Manage topics, records and groups of Barnabas and Apache Kafka.",
    commands=(
        *topics.COMMANDS,
        export.COMMAND,
        produce.COMMAND,
        consume.COMMAND,
        groups.LIST,
        groups.DESCRIBE,
        groups.ALTER,
        explain.COMMAND,
        doctor.COMMAND,
        watch.COMMAND,
        reset.COMMAND,
        groups.DELETE,
        groups.REMOVE,
        *shares.COMMANDS,
        *transactions.COMMANDS,
        *users.COMMANDS,
        status.STATUS,
        status.DESCRIBE_BROKER,
        moves.REASSIGN,
        moves.REBALANCE,
        moves.DECOMMISSION,
        elections.COMMAND,
        *acls.COMMANDS,
        *quotas.COMMANDS,
        *client_metrics.COMMANDS,
        dump.COMMAND,
        init.COMMAND,
        bench.COMMAND,
        ping.COMMAND,
        completion.COMMAND,
        version.COMMAND,
    ),
    sections=_SECTIONS,
    add_options=_add_options,
    plugins=plugin_commands,
)
