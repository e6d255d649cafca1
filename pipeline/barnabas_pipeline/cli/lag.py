"""``barnabas-pipeline lag``."""

import time
from argparse import Namespace
from collections.abc import Collection
from pathlib import Path
from typing import Any

from barnabas_client.cli.failures import DONE, FAILED
from barnabas_client.cli.output import Column, Output
from barnabas_client.history.view import look, waiting
from barnabas_explain.waits import Waiting
from barnabas_pipeline.brokers.remote import Remote, remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.cli.arguments import source_options
from barnabas_pipeline.cli.progress import Progress
from barnabas_pipeline.cli.session import session
from barnabas_pipeline.lag.analysis import LagWindow, analyze
from barnabas_pipeline.lag.report import summary, write
from barnabas_protocol.printable import printable


def lag(arguments: Namespace, output: Output) -> int:
    """Write the lag report; the status is 1 if records could not be read."""
    options = source_options(arguments)
    remote = remote_for(Settings.of(options))
    now = time.time_ns() // 1_000_000
    window = LagWindow(
        groups=arguments.groups,
        since=None if arguments.since is None else arguments.since.ms(now),
        until=None if arguments.until is None else arguments.until.ms(now),
        interval_ms=None if arguments.interval is None else max(round(arguments.interval * 1000), 1),
        stall_ms=None if arguments.stall is None else round(arguments.stall * 1000),
    )
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    with Progress(output, "lag", "points") as progress:
        progress.say("starting Spark")
        spark = session("barnabas-pipeline lag", dict(arguments.conf))
        tables = analyze(spark, remote, options, window, now, progress.say, progress.show)
        progress.say("drawing")
        write(tables, out, now)
    result = summary(tables, out)
    waits = remote.run(remote.retrying(lambda: open_transactions(remote, result["groups"])))
    for group, one in result["groups"].items():
        one["waits_for_transactions"] = [each.as_data() for each in waits.get(group, ())]
    if output.json:
        output.data(result)
    else:
        _print(result, output)
        for group, found in waits.items():
            for each in found:
                output.line(printable(f"{group}, {each.text}"))
    if tables.broken:
        output.error(f"{tables.broken:,} records of __consumer_offsets could not be read and are left out")
    return FAILED if tables.broken else DONE


async def open_transactions(remote: Remote, groups: Collection[str]) -> dict[str, list[Waiting]]:
    """The open transactions that ``read_committed`` consumers of these groups wait for now, by group.

    Raises:
        KafkaError: the brokers cannot be asked.
    """
    admin = await remote.admin()
    described = await admin.describe_consumer_groups(groups, raise_errors=False) if groups else []
    found: dict[str, list[Waiting]] = {}
    for group in described:
        if group.error is None:
            waits = await waiting(admin, (await look(admin, group)).rows)
            found |= {group.group_id: waits} if waits else {}
    return found


def _print(result: dict[str, Any], output: Output) -> None:
    columns = [Column("GROUP"), Column("LAG", 8), Column("BEHIND", 8), Column("STALLS", 8), Column("REBALANCES", 0)]
    rows = [
        (
            group,
            one["lag"],
            None if one["lag_seconds"] is None else f"{one['lag_seconds']:.1f}s",
            one["stalls"],
            one["rebalances"],
        )
        for group, one in result["groups"].items()
    ]
    output.table(columns, rows)
    output.line(
        f"The report is {result['report']}, its chart {result['chart']}; the Parquet files beside them hold the numbers"
    )
