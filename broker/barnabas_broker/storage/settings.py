"""A topic's configuration as the log reads it: parsed once, because each append needs ten keys."""

from dataclasses import dataclass
from typing import Self

from barnabas_broker.config import TopicConfig, keys


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The keys of :class:`TopicConfig` that appends and the log use, in Kafka's units: bytes and milliseconds."""

    max_message_bytes: int
    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    index_max_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compact: bool
    delete: bool
    retention_ms: int
    retention_bytes: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    producer_expiration_ms: int
    delete_retention_ms: int
    min_cleanable_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    max_decompressed_bytes: int
    min_insync_replicas: int

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        """The present values of `config`."""
        policy = config[keys.CLEANUP_POLICY]
        return cls(
            max_message_bytes=config[keys.MAX_MESSAGE_BYTES],
            segment_bytes=config[keys.SEGMENT_BYTES],
            segment_ms=config[keys.SEGMENT_MS],
            index_interval_bytes=config[keys.INDEX_INTERVAL_BYTES],
            index_max_bytes=config[keys.SEGMENT_INDEX_BYTES],
            log_append_time=config[keys.TIMESTAMP_TYPE] == "LogAppendTime",
            timestamp_before_max_ms=config[keys.TIMESTAMP_BEFORE_MAX_MS],
            timestamp_after_max_ms=config[keys.TIMESTAMP_AFTER_MAX_MS],
            compact="compact" in policy,
            delete="delete" in policy,
            retention_ms=config[keys.RETENTION_MS],
            retention_bytes=config[keys.RETENTION_BYTES],
            file_delete_delay_ms=config[keys.FILE_DELETE_DELAY_MS],
            flush_messages=config[keys.FLUSH_MESSAGES],
            flush_ms=config[keys.FLUSH_MS],
            producer_expiration_ms=config.broker[keys.PRODUCER_ID_EXPIRATION_MS],
            delete_retention_ms=config[keys.DELETE_RETENTION_MS],
            min_cleanable_ratio=config[keys.MIN_CLEANABLE_DIRTY_RATIO],
            min_compaction_lag_ms=config[keys.MIN_COMPACTION_LAG_MS],
            max_compaction_lag_ms=config[keys.MAX_COMPACTION_LAG_MS],
            max_decompressed_bytes=config.broker[keys.MESSAGE_MAX_DECOMPRESSED_BYTES],
            min_insync_replicas=config[keys.TOPIC_MIN_INSYNC_REPLICAS],
        )
