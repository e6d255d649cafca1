"""``barnabas-pipeline archive``."""

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
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.cli.arguments import source_options
from barnabas_pipeline.cli.progress import Progress
from barnabas_pipeline.cli.session import session
from barnabas_pipeline.lake import schema
from barnabas_pipeline.lake.archive import ArchiveJob, TopicArchive, missing_topic, run_archive, summary
from barnabas_pipeline.text import duration, size
from barnabas_protocol.counts import counted


def archive(arguments: Namespace, output: Output) -> int:
    """Archive topics, and print a summary at the end, also after an interruption."""
    options = source_options(arguments)
    remote = remote_for(Settings.of(options))
    topics = list(dict.fromkeys(arguments.topics))
    # Checked before Spark starts, which takes seconds.
    found = remote.topics(topics)
    for topic in topics:
        if topic not in found:
            raise missing_topic(topic)
    began = time.monotonic()
    seen: Mapping[str, TopicArchive] = {}

    def shown(archives: Mapping[str, TopicArchive]) -> None:
        nonlocal seen
        seen = archives
        done, lag = (sum(getattr(one.progress, what) for one in archives.values()) for what in ("done", "lag"))
        progress.show(done, done + lag, lag=lag)

    def pause() -> bool:
        output.out.flush()
        threading.Event().wait(arguments.interval)
        return True

    job = ArchiveJob(
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
            job = replace(job, given=_schema(arguments.schema))
            run_archive(spark, remote, topics, job, pause=None if arguments.once else pause, shown=shown)
    except BaseException:
        # What was archived stays archived, whatever ended the run.
        if seen:
            _print(summary(seen, began, reasons=False), job, output)
        raise
    _print(summary(seen, began), job, output)
    return DONE


def _schema(text: str | None) -> StructType | None:
    """Return the schema that ``--schema`` gives as a file or as text."""
    if text is None:
        return None
    path = Path(text)
    try:
        given = path.read_text() if path.is_file() else text
    except OSError:
        given = text
    return schema.parse_schema(given)


def _print(result: dict[str, Any], job: ArchiveJob, output: Output) -> None:
    if output.json:
        output.data(result)
        return
    for topic, one in result["topics"].items():
        output.line(f"{topic}: {counted(one['records'], 'record')} archived, lag {one['lag']:,}")
        if one["lost_offsets"]:
            output.line(f"  deleted before they could be archived: {counted(one['lost_offsets'], 'offset')}")
        if one["quarantined"]:
            output.line(f"  {counted(one['quarantined'], 'record')} in quarantine at {job.bad}/topic={topic}:")
            for reason, count in one["reasons"].items():
                output.line(f"    {count:,} x {reason}")
        merged = f", {one['merged_files']:,} small ones merged" if one["merged_files"] else ""
        output.line(
            f"  {one['path']} holds {counted(one['lake_records'], 'record')} of {counted(one['lake_days'], 'day')} in "
            f"{counted(one['lake_files'], 'file')}, {size(one['lake_bytes'])}{merged}"
        )
    output.line(
        f"{counted(result['records'], 'record')} in {duration(result['seconds'])}, {result['rate']:,.0f} records/s"
    )
