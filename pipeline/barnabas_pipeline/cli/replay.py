"""``barnabas-pipeline replay``."""

import time
from argparse import Namespace

from barnabas_client.cli.failures import DONE, CommandError
from barnabas_client.cli.output import Output
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.cli.arguments import source_options
from barnabas_pipeline.cli.progress import Progress
from barnabas_pipeline.cli.session import session
from barnabas_pipeline.replay import ReplayJob, rows, send
from barnabas_pipeline.text import duration
from barnabas_protocol.counts import counted


def replay(arguments: Namespace, output: Output) -> int:
    """Send a table to a topic."""
    remote = remote_for(Settings.of(source_options(arguments)))
    columns = arguments.order_by
    job = ReplayJob(
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
    if not remote.topics([job.topic]):
        raise CommandError(
            f"there is no topic {job.topic!r}. To do: create it first, with as many partitions as it needs"
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
            ordered = rows(spark, job)
            progress.say("counting")
            total = ordered.count()
            began = time.monotonic()
            sent = send(remote, job, ordered, shown)
    except BaseException:
        # Errors and signals alike.
        if total >= 0:
            output.note(f"replay: {sent:,} of {total:,} records are known to be in topic {job.topic}")
        raise
    seconds = time.monotonic() - began
    result = {
        "topic": job.topic,
        "records": sent,
        "seconds": round(seconds, 3),
        "rate": round(sent / max(seconds, 0.001), 1),
    }
    if output.json:
        output.data(result)
    else:
        output.line(
            f"{counted(sent, 'record')} sent to {job.topic} in {duration(seconds)}, {result['rate']:,.0f} records/s"
        )
    return DONE
