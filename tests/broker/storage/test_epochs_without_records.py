"""A leader without appends has begun an epoch at the log's end; the next batch may be of an older epoch."""

from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import Log
from barnabas_protocol.records.batches import restamp
from tests.broker.storage.support import TOPIC_ID, TP, batch, open_directory, topic_config


def of_an_older_epoch(log: Log, leader_epoch: int) -> bytes:
    """A batch of the earlier leader that this log has not fetched."""
    data = batch(b"late")
    restamp(data, 0, log.log_end_offset, leader_epoch)
    return bytes(data)


def test_a_follower_drops_it_when_it_receives_an_older_epoch() -> None:
    log = open_directory(MemoryFiles()).create(TP, TOPIC_ID, topic_config(), 0)
    log.append_as_leader(batch(b"a", b"b"), leader_epoch=1, now_ms=0)
    log.leader_epochs.assign(2, 2)
    log.append_as_follower(of_an_older_epoch(log, 1))
    assert log.leader_epochs.entries() == [(1, 0)]
    assert log.epoch_end_offset(1) == (1, 3)
    log.append_as_follower(of_an_older_epoch(log, 3))
    assert log.leader_epochs.entries() == [(1, 0), (3, 3)]


def test_a_checkpoint_with_it_is_not_trusted_after_a_kill() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config(), 0)
    log.append_as_leader(batch(b"a", b"b"), leader_epoch=1, now_ms=0)
    log.leader_epochs.assign(2, 2)
    log.flusher.advance()
    directory.checkpoint()
    log.append_as_follower(of_an_older_epoch(log, 1))
    after = open_directory(files.kill()).logs[TP]
    assert (after.log_end_offset, after.leader_epochs.entries()) == (3, [(1, 0)])
