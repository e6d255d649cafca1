"""Validation of batches, with Kafka's errors."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.validate import check_internal, check_produced, check_replicated, stamp
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import check_batch, decode_records, read_header, restamp_log_append_time
from tests.broker.storage.support import batch, topic_config

NOW = 1_700_000_000_000


def settings(**overrides: str) -> LogSettings:
    return LogSettings.of(topic_config({name.replace("_", "."): value for name, value in overrides.items()}))


def good(**kwargs: object) -> bytearray:
    return batch(b"one", b"two", timestamp=NOW)


def resealed(records: bytearray) -> bytearray:
    """The batch with a valid CRC, so that only the damage is wrong."""
    struct.pack_into(">I", records, 17, crc32c(memoryview(records)[21:]))
    return records


def patched(at: int, layout: str, value: int) -> bytearray:
    records = good()
    struct.pack_into(layout, records, at, value)
    return resealed(records)


def code_of(records: bytes | bytearray, **overrides: str) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check_produced(memoryview(records), settings(**overrides), NOW)
    return caught.value.code


def test_a_valid_batch_is_accepted() -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        records = batch(b"one", b"two", timestamp=NOW, compression=codec, producer=(1, 0, 0))
        assert check_produced(memoryview(records), settings(), NOW) == read_header(records)


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (lambda: b"", ErrorCode.INVALID_RECORD),
        (lambda: good()[:-1], ErrorCode.INVALID_RECORD),
        (lambda: good()[:60], ErrorCode.INVALID_RECORD),
        (lambda: good() + b"\0", ErrorCode.INVALID_RECORD),
        (lambda: good() + good(), ErrorCode.INVALID_RECORD),
        (lambda: patched(8, ">i", 20), ErrorCode.CORRUPT_MESSAGE),
        (lambda: patched(8, ">i", -5), ErrorCode.CORRUPT_MESSAGE),
        (lambda: patched(16, ">b", 1), ErrorCode.INVALID_RECORD),
        (lambda: patched(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
        (lambda: patched(0, ">q", 5), ErrorCode.INVALID_RECORD),
        (lambda: patched(57, ">i", 0), ErrorCode.INVALID_RECORD),
        (lambda: patched(57, ">i", -1), ErrorCode.INVALID_RECORD),
        (lambda: patched(57, ">i", 3), ErrorCode.INVALID_RECORD),
        (lambda: patched(23, ">i", 0), ErrorCode.INVALID_RECORD),
        (lambda: patched(23, ">i", -1), ErrorCode.INVALID_RECORD),
        (lambda: patched(21, ">h", 0x05), ErrorCode.INVALID_RECORD),  # no such codec
        (lambda: patched(21, ">h", 0x20), ErrorCode.INVALID_RECORD),  # control
        (lambda: patched(21, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),  # LogAppendTime
        (lambda: patched(43, ">q", 7), ErrorCode.INVALID_RECORD),  # a producer id without a sequence
    ],
)  # fmt: skip
def test_an_invalid_batch_is_rejected_with_kafkas_error(
    broken: Callable[[], bytes | bytearray], code: ErrorCode
) -> None:
    assert code_of(broken()) == code


def test_every_bit_flip_is_detected() -> None:
    for at in range(12, len(good())):
        if 12 <= at < 16:
            continue  # the leader epoch, which the broker overwrites
        for bit in range(8):
            records = good()
            records[at] ^= 1 << bit
            assert code_of(records) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_more_records_than_fit_into_the_batch() -> None:
    records = good()
    struct.pack_into(">i", records, 23, 999)
    struct.pack_into(">i", records, 57, 1000)
    assert code_of(resealed(records)) == ErrorCode.INVALID_RECORD


def test_the_largest_batch() -> None:
    size = len(good())
    check_produced(memoryview(good()), settings(max_message_bytes=str(size)), NOW)
    assert code_of(good(), max_message_bytes=str(size - 1)) == ErrorCode.MESSAGE_TOO_LARGE


def test_timestamps_out_of_bounds() -> None:
    hour = 3_600_000
    assert code_of(batch(b"x", timestamp=NOW + hour + 1)) == ErrorCode.INVALID_TIMESTAMP
    check_produced(memoryview(batch(b"x", timestamp=NOW + hour)), settings(), NOW)
    check_produced(memoryview(batch(b"x", timestamp=0)), settings(), NOW)
    bounds = {"message_timestamp_before_max_ms": "1000"}
    assert code_of(batch(b"x", timestamp=NOW - 1001), **bounds) == ErrorCode.INVALID_TIMESTAMP
    check_produced(memoryview(batch(b"x", timestamp=-1)), settings(**bounds), NOW)  # none at all
    check_produced(
        memoryview(batch(b"x", timestamp=0)), settings(message_timestamp_type="LogAppendTime", **bounds), NOW
    )


def test_compacted_topics_need_keys() -> None:
    assert code_of(good(), cleanup_policy="compact") == ErrorCode.INVALID_RECORD
    assert code_of(batch(b"a", b"b", keys=[b"k", None]), cleanup_policy="compact,delete") == ErrorCode.INVALID_RECORD
    keyed = batch(b"a", b"b", keys=[b"k", b""], compression="lz4")
    check_produced(memoryview(keyed), settings(cleanup_policy="compact"), NOW)


def test_internal_appends_may_have_several_batches_and_markers() -> None:
    both = good() + patched(21, ">h", 0x20)
    assert [header.is_control for header in check_internal(memoryview(both))] == [False, True]
    for broken in (b"", bytes(both[:-1])):
        with pytest.raises(KafkaError):
            check_internal(memoryview(broken))


def test_a_follower_accepts_whole_batches_that_continue_its_log() -> None:
    both = batch(b"a", b"b", base_offset=10) + batch(b"c", base_offset=15)
    assert [h.base_offset for h in check_replicated(memoryview(both), 10)] == [10, 15]
    assert [h.base_offset for h in check_replicated(memoryview(both[:-3]), 10)] == [10]
    for end, records, code in (
        (11, both, ErrorCode.OFFSET_OUT_OF_RANGE),
        (10, bytes(both[:-1]) + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (10, bytes(both[:100]) + bytes(100), ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as caught:
            check_replicated(memoryview(records), end)
        assert caught.value.code == code


def test_a_stamped_batch_is_valid_and_the_original_unchanged() -> None:
    original = good()
    before = bytes(original)
    header, records = stamp(memoryview(original), 42, 7, -1)
    stamped = bytes(header) + bytes(records)
    assert bytes(original) == before
    parsed = read_header(stamped)
    check_batch(parsed, stamped)
    assert (parsed.base_offset, parsed.leader_epoch) == (42, 7)
    assert [record.offset for record in decode_records(stamped)] == [42, 43]


def test_log_append_time_agrees_with_the_slow_twin() -> None:
    header, records = stamp(memoryview(good()), 0, -1, 123_456)
    twin = good()
    restamp_log_append_time(twin, 0, 123_456)
    assert bytes(header) + bytes(records) == bytes(twin)
    assert {record.timestamp for record in decode_records(twin)} == {123_456}
