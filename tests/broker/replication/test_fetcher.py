"""What a follower does with answers that no leader should give."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas_broker.cluster.image import PartitionInfo
from barnabas_broker.config import BROKER_KEYS, TOPIC_KEYS, Config, TopicConfig
from barnabas_broker.replication.fetcher import Fetchers
from barnabas_broker.replication.following import Position
from barnabas_broker.replication.partition import Hosted
from barnabas_broker.storage import LogDirectory, TopicPartition
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.fetch import EpochEndOffset, PartitionData
from barnabas_protocol.records.builder import build_batch

LEADER = 2


@pytest.fixture
def hosted(tmp_path: Path) -> Hosted:
    """A follower with five records, three of them committed."""
    config = Config(BROKER_KEYS, {})
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
    log = directory.create(TopicPartition("t", 0), b"t" * 16, TopicConfig(config, {}, TOPIC_KEYS), 0)
    for _ in range(5):
        log.append_as_leader(build_batch([(None, b"value", (), 0)]), leader_epoch=0, now_ms=0)
    log.set_high_watermark(3)
    followed = Hosted(log, PartitionInfo(LEADER, 1, (1, LEADER), (1, LEADER)))
    followed.follow(followed.info)
    return followed


@pytest.fixture
async def fetchers(hosted: Hosted) -> AsyncIterator[Fetchers]:
    made = Fetchers(Config(BROKER_KEYS, {}), 1, lambda leader: None, lambda: 10, lambda: 0)
    made.follow(hosted, LEADER)
    yield made
    await made.close()


def take(fetchers: Fetchers, hosted: Hosted, answer: PartitionData) -> None:
    """Let the follower have an answer to where it is."""
    fetchers._fetchers[LEADER]._take_one(hosted, Position(1, hosted.log.log_end_offset, 0, 0), answer)


def told(high_watermark: int = 3, log_start: int = 0, records: bytes = b"", end: int | None = None) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        diverging_epoch=None if end is None else EpochEndOffset(epoch=0, end_offset=end),
        records=records,
    )


@pytest.mark.parametrize("mark", [2**63 - 1, 6])
async def test_a_high_watermark_beyond_the_end_is_the_end(fetchers: Fetchers, hosted: Hosted, mark: int) -> None:
    take(fetchers, hosted, told(high_watermark=mark))
    assert hosted.high_watermark == 5


@pytest.mark.parametrize("mark", [2, -1, -(2**63)])
async def test_a_high_watermark_does_not_go_back(fetchers: Fetchers, hosted: Hosted, mark: int) -> None:
    take(fetchers, hosted, told(high_watermark=mark))
    assert hosted.high_watermark == 3


async def test_a_log_start_beyond_the_end_is_the_end(fetchers: Fetchers, hosted: Hosted) -> None:
    take(fetchers, hosted, told(high_watermark=5, log_start=2**63 - 1))
    assert hosted.log.log_start_offset == 5


@pytest.mark.parametrize("end", [-2, -(2**63)])
async def test_an_epoch_cannot_end_before_the_first_offset(fetchers: Fetchers, hosted: Hosted, end: int) -> None:
    with pytest.raises(DecodeError, match="ends at -"):
        take(fetchers, hosted, told(end=end))
    assert hosted.log.log_end_offset == 5


@pytest.mark.parametrize("base", [0, 4, -1, -(2**63)])
async def test_records_that_are_there_already_are_refused(fetchers: Fetchers, hosted: Hosted, base: int) -> None:
    batch = build_batch([(None, b"other", (), 0)])
    batch[0:8] = base.to_bytes(8, "big", signed=True)
    with pytest.raises((KafkaError, DecodeError)):
        take(fetchers, hosted, told(records=bytes(batch)))
    assert hosted.log.log_end_offset == 5


@pytest.mark.parametrize("damage", [16, 30, 60])
async def test_damaged_records_are_refused(fetchers: Fetchers, hosted: Hosted, damage: int) -> None:
    batch = build_batch([(None, b"other", (), 0)])
    batch[0:8] = (5).to_bytes(8, "big")
    batch[damage] ^= 0xFF
    with pytest.raises((KafkaError, DecodeError)):
        take(fetchers, hosted, told(records=bytes(batch)))
    assert hosted.log.log_end_offset == 5
