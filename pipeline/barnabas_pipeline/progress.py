"""A streaming query's progress as committed offsets of a consumer group, for lag tools.

With the option ``kafka.group.id`` the source ``barnabas`` commits by itself, when Spark asks for the next micro-batch.
The listener of this module commits at the end of each micro-batch, and does so for Spark's own Kafka connector too,
whose progress has the same format. Both are for information only: a query continues from its checkpoint.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from barnabas_client.logs import logger
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.source.offsets import SourceOffset, parse_json
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_pipeline")

#: Timeout of a commit in seconds. Spark's other listeners wait meanwhile.
_COMMIT_SECONDS: Final = 5.0
#: The metadata of the committed offsets.
METADATA: Final = "spark"


class GroupProgress(StreamingQueryListener):
    """Commits the end offsets of each completed micro-batch, the last one included.

    Args:
        options: ``kafka.bootstrap.servers``, ``kafka.group.id`` and other ``kafka.*`` options to connect. Without a
            group id the group is the query's name, and queries without a name are ignored.
        queries: the names of the queries to commit for; all queries if None.

    Raises:
        ValueError: an option is missing or invalid.
    """

    def __init__(self, options: Mapping[str, str], queries: Collection[str] | None = None) -> None:
        self._settings = Settings.of(options)
        self._queries = None if queries is None else frozenset(queries)
        self._committed: dict[str, dict[TopicPartition, int]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: no micro-batch is complete yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the end of a completed micro-batch."""
        progress = event.progress
        self.completed(progress.name, [source.endOffset for source in progress.sources])

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last completed micro-batch is committed."""

    def completed(self, query: str | None, ends: Collection[str | None]) -> None:
        """Commit what a query has read.

        Args:
            query: the name of the query.
            ends: the end offset of each of its sources, as JSON; those that are not offsets of topics are ignored.
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
            # For information only: the next micro-batch commits newer offsets.
            _log.warning("the offsets were not committed to the group", group=group, error=str(error))
        else:
            self._committed[group] = positions


def _positions(end: str | None) -> Mapping[TopicPartition, int]:
    """Return the offsets in a source's progress; none if the source does not read topics."""
    try:
        data = parse_json(end or "null", "endOffset")
        return SourceOffset.of_json(data).positions if isinstance(data, dict) else {}
    except ValueError:
        return {}


def attach(spark: Any, options: Mapping[str, str], queries: Collection[str] | None = None) -> GroupProgress:
    """Start to commit the progress of a session's streaming queries to groups.

    ::

        attach(spark, {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "to-the-lake"})

    Args:
        spark: the session.
        options: as for :class:`GroupProgress`.
        queries: as for :class:`GroupProgress`.

    Returns:
        The listener; ``spark.streams.removeListener`` stops it.
    """
    listener = GroupProgress(options, queries)
    spark.streams.addListener(listener)
    return listener
