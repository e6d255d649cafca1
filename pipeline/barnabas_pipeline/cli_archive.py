"""`barnabas-pipeline archive`."""

import threading
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from barnabas_client.cli.failures import DONE
from barnabas_client.cli.output import Output
from barnabas_pipeline import schema
from barnabas_pipeline.archive import Plan, TopicArchive, missing, summary
from barnabas_pipeline.archive import archive as run
from barnabas_pipeline.cli_progress import Progress, duration, many, size
from barnabas_pipeline.cli_spark import session
from barnabas_pipeline.remote import remote_for
from barnabas_pipeline.settings import Settings


def archive(arguments: Namespace, output: Output) -> int:
    """Archive topics; a summary at the end, also when interrupted."""
    options = source_options(arguments)
    remote = remote_for(Settings.of(options))
    topics = list(dict.fromkeys(arguments.topics))
    # Before Spark starts, which takes its time.
    found = remote.topics(topics)
    for topic in topics:
        if topic not in found:
            raise missing(topic)
    began = time.monotonic()
    seen: Mapping[str, TopicArchive] = {}

    def shown(archives: Mapping[str, TopicArchive]) -> None:
        nonlocal seen
        seen = archives
        done, lag = (sum(getattr(one.told, what) for one in archives.values()) for what in ("done", "lag"))
        progress.show(done, done + lag, lag=lag)

    def pause() -> bool:
        output.out.flush()
        threading.Event().wait(arguments.interval)
        return True

    plan = Plan(
        lake=arguments.lake,
        options=options,
        format=arguments.format,
        event_time=arguments.event_time,
        quarantine=arguments.quarantine,
        batch=arguments.batch_records,
        target=arguments.file_size,
        allow_loss=arguments.allow_loss,
        group=arguments.group,
    )
    try:
        with Progress(output, "archive", "offsets") as progress:
            progress.say("starting Spark")
            spark = session("barnabas-pipeline archive", dict(arguments.conf))
            given = replace(plan, given=_schema(arguments.schema))
            run(spark, remote, topics, given, pause=None if arguments.once else pause, shown=shown)
    except BaseException:
        # What is archived is archived, whatever ends the run.
        if seen:
            _tell(summary(seen, began, reasons=False), plan, output)
        raise
    _tell(summary(seen, began), plan, output)
    return DONE


def source_options(arguments: Namespace) -> dict[str, str]:
    """The options of the Spark source that the common arguments give."""
    return {"kafka.bootstrap.servers": arguments.bootstrap, **dict(arguments.options)}


def _schema(text: str | None) -> StructType | None:
    if text is None:
        return None
    path = Path(text)
    try:
        given = path.read_text() if path.is_file() else text
    except OSError:
        given = text
    return schema.parse_schema(given)


def _tell(told: dict[str, Any], plan: Plan, output: Output) -> None:
    if output.json:
        output.data(told)
        return
    for topic, one in told["topics"].items():
        output.line(f"{topic}: {many(one['records'], 'record')} archived, lag {one['lag']:,}")
        if one["lost_offsets"]:
            output.line(f"  {one['lost_offsets']:,} offsets were deleted before they could be archived")
        if one["quarantined"]:
            output.line(f"  {many(one['quarantined'], 'record')} in quarantine at {plan.bad}/topic={topic}:")
            for reason, count in one["reasons"].items():
                output.line(f"    {count:,} x {reason}")
        merged = f", {one['merged_files']:,} small ones merged" if one["merged_files"] else ""
        output.line(
            f"  {one['path']} holds {many(one['lake_records'], 'record')} of {many(one['lake_days'], 'day')} in "
            f"{many(one['lake_files'], 'file')}, {size(one['lake_bytes'])}{merged}"
        )
    output.line(f"{many(told['records'], 'record')} in {duration(told['seconds'])}, {told['rate']:,.0f} records/s")
