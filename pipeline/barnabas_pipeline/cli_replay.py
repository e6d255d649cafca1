"""`barnabas-pipeline replay`."""

import time
from argparse import Namespace

from barnabas_client.cli.failures import DONE, CommandError
from barnabas_client.cli.output import Output
from barnabas_pipeline.cli_archive import source_options
from barnabas_pipeline.cli_progress import Progress, duration, many
from barnabas_pipeline.cli_spark import session
from barnabas_pipeline.remote import remote_for
from barnabas_pipeline.replay import Replay, rows, send
from barnabas_pipeline.settings import Settings


def replay(arguments: Namespace, output: Output) -> int:
    """Send a table to a topic."""
    remote = remote_for(Settings.of(source_options(arguments)))
    columns = arguments.order_by
    what = Replay(
        table=arguments.table,
        topic=arguments.topic,
        key=arguments.key,
        value=arguments.value,
        order_by=tuple(name.strip() for name in columns.split(",")) if columns else None,
        where=arguments.where,
        rate=arguments.rate,
        speed=arguments.speed,
        keep_timestamps=arguments.keep_timestamps,
    )
    if not remote.topics([what.topic]):
        raise CommandError(
            f"there is no topic {what.topic!r}. To do: create it first, with the partitions it is to have"
        )
    sent, total, began = 0, -1, time.monotonic()

    def shown(done: int) -> None:
        nonlocal sent
        sent = done
        progress.show(done, total)

    try:
        with Progress(output, "replay", "records") as progress:
            progress.say("starting Spark")
            spark = session("barnabas-pipeline replay", dict(arguments.conf))
            ordered = rows(spark, what)
            progress.say("counting")
            total = ordered.count()
            began = time.monotonic()
            sent = send(remote, what, ordered, shown)
    except BaseException:
        # Whatever breaks it off, SIGTERM too.
        if total >= 0:
            output.note(f"replay: {sent:,} of {total:,} records are known to be in topic {what.topic}")
        raise
    seconds = time.monotonic() - began
    told = {
        "topic": what.topic,
        "records": sent,
        "seconds": round(seconds, 3),
        "rate": round(sent / max(seconds, 0.001), 1),
    }
    if output.json:
        output.data(told)
    else:
        output.line(
            f"{many(sent, 'record')} sent to {what.topic} in {duration(seconds)}, {told['rate']:,.0f} records/s"
        )
    return DONE
