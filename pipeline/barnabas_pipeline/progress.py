"""A streaming query's progress, as offsets of a consumer group: what lag tools look at.

The source ``barnabas`` does this by itself when it has ``kafka.group.id``: when Spark asks it what comes next, what
came before is done. The listener here does it when a micro-batch ends, and does it for Spark's own Kafka connector too,
whose progress has the same form. Either way it is information: where a query goes on is in its checkpoint.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from barnabas_client.structs import TopicPartition
from barnabas_pipeline.offsets import Offset, parse_json
from barnabas_pipeline.remote import remote_for
from barnabas_pipeline.settings import Settings
from barnabas_protocol.errors import KafkaError

_log: Final = logging.getLogger("barnabas_pipeline")

#: How long a commit may take, in seconds. Spark's other listeners wait meanwhile.
_COMMIT_SECONDS: Final = 5.0
#: What is noted beside the offsets.
METADATA: Final = "spark"


class GroupProgress(StreamingQueryListener):
    """Commits the end offsets of each micro-batch, the last one included, when it is complete.

    Args:
        options: ``kafka.bootstrap.servers``, ``kafka.group.id`` and what else of ``kafka.*`` it takes to reach the
            brokers. Without a group id the group is the query's name, and queries without a name are left alone.
        queries: names of the queries that are meant; all of them if None.

    Raises:
        ValueError: an option is missing or cannot be.
    """

    def __init__(self, options: Mapping[str, str], queries: Collection[str] | None = None) -> None:
        self._settings = Settings.of(options)
        self._queries = None if queries is None else frozenset(queries)
        self._committed: dict[str, dict[TopicPartition, int]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is done yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A micro-batch is complete."""
        progress = event.progress
        self.completed(progress.name, [source.endOffset for source in progress.sources])

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What it completed was told."""

    def completed(self, query: str | None, ends: Collection[str | None]) -> None:
        """Commit what a query has read.

        Args:
            query: its name.
            ends: the end offset of each of its sources, as JSON; those that are no offsets of topics are left out.
        """
        group = self._settings.group_id or query
        if group is None or (self._queries is not None and query not in self._queries):
            return
        positions: dict[TopicPartition, int] = {}
        for end in ends:
            positions |= _positions(end)
        if not positions or self._committed.get(group) == positions:
            return
        try:
            remote_for(self._settings).commit(group, positions, METADATA, _COMMIT_SECONDS)
        except KafkaError as error:
            # Only information: the next micro-batch brings newer.
            _log.warning("the offsets of group '%s' were not committed: %s", group, error)
        else:
            self._committed[group] = positions


def _positions(end: str | None) -> Mapping[TopicPartition, int]:
    """The offsets in a source's progress; none if it is another kind of source."""
    try:
        told = parse_json(end or "null", "endOffset")
        return Offset.of_json(told).positions if isinstance(told, dict) else {}
    except ValueError:
        return {}


def attach(spark: Any, options: Mapping[str, str], queries: Collection[str] | None = None) -> GroupProgress:
    """Commit the progress of a session's streaming queries to groups, from now on.

    ::

        attach(spark, {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "to-the-lake"})

    Args:
        spark: the session.
        options: as for :class:`GroupProgress`.
        queries: as for :class:`GroupProgress`.

    Returns:
        The listener; ``spark.streams.removeListener`` takes it away again.
    """
    listener = GroupProgress(options, queries)
    spark.streams.addListener(listener)
    return listener
