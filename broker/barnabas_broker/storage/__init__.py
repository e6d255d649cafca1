"""Partition logs on the disk, in Apache Kafka's own format.

Imports only config, the port of the file system and the protocol package. Replication appends to logs and reads them;
the composition root opens the log directory; the command line reads log files without a broker (:mod:`~.inspect`).

* :class:`LogDirectory` owns the logs of a broker: opens, recovers, creates, deletes and maintains them.
* :class:`Log` is one partition's log: append, read, truncation, retention, compaction's swap, durability. Its parts are
  :class:`~.segments.Segments`, :class:`~.producer_state.Producers` (pure), :class:`~.epochs.LeaderEpochs` (pure) and a
  :class:`~.flush.Flusher`. Producers also know the open transactions, whose oldest one bounds the last stable offset;
  each segment has the index of the aborted ones (:mod:`~.transaction_index`).
* :mod:`~.recovery` loads a log at start; :mod:`~.cleaner` compacts logs; :mod:`~.compaction`, :mod:`~.retention` and
  :mod:`~.validate` hold their decisions.
* :class:`~barnabas_broker.files.Files` is the port of the file system; :class:`Background` is that of the threads.
"""

from barnabas_broker.storage.directory import ForeignDataError, LogDirectory, LogDirectoryError
from barnabas_broker.storage.disk import Background, Inline, Threads
from barnabas_broker.storage.log import AppendInfo, Log
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.segments import TimestampAt
from barnabas_broker.storage.transaction_index import AbortedTransaction
from barnabas_broker.storage.validate import InvalidRecords, MalformedBatch, takes_long

__all__ = [
    "AbortedTransaction",
    "AppendInfo",
    "Background",
    "Inline",
    "InvalidRecords",
    "Log",
    "LogDirectory",
    "ForeignDataError",
    "LogDirectoryError",
    "MalformedBatch",
    "Threads",
    "TimestampAt",
    "TopicPartition",
    "takes_long",
]
