"""Validation of batches, with Kafka's errors."""

import gc
import struct
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from barnabas_broker.storage import LogDirectory
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.time_budget import Allowance
from barnabas_broker.storage.validate import (
    MOST_DECOMPRESSED,
    MOST_ERRORS,
    MOST_SINGLE,
    InvalidRecords,
    check_internal,
    check_produced,
    check_replicated,
    stamp,
)
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import (
    BatchHeader,
    Codec,
    check_batch,
    compress,
    decode_records,
    read_header,
    restamp_log_append_time,
)
from tests.broker.storage.support import TOPIC_ID, TP, batch, broker_config, topic_config
from tests.lots import in_lots
from tests.protocol.records.raw import UNREADABLE, raw_batch, raw_record

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


def check(records: bytes | bytearray, inspections: Allowance | None = None, /, **overrides: str) -> BatchHeader:
    # The clock stands still, so no work takes time.
    return check_produced(memoryview(records), settings(**overrides), NOW, inspections or Allowance(lambda: 0.0))


def refusal_of(records: bytes | bytearray, inspections: Allowance | None = None, /, **overrides: str) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        check(records, inspections, **overrides)
    return caught.value


def code_of(records: bytes | bytearray, **overrides: str) -> ErrorCode:
    return refusal_of(records, **overrides).code


def test_a_valid_batch_is_accepted() -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        records = batch(b"one", b"two", timestamp=NOW, compression=codec, producer=(1, 0, 0))
        assert check(records) == read_header(records)


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
    check(good(), max_message_bytes=str(size))
    assert code_of(good(), max_message_bytes=str(size - 1)) == ErrorCode.MESSAGE_TOO_LARGE


def test_timestamps_out_of_bounds() -> None:
    hour = 3_600_000
    assert code_of(batch(b"x", timestamp=NOW + hour + 1)) == ErrorCode.INVALID_TIMESTAMP
    check(batch(b"x", timestamp=NOW + hour))
    check(batch(b"x", timestamp=0))
    bounds = {"message_timestamp_before_max_ms": "1000"}
    assert code_of(batch(b"x", timestamp=NOW - 1001), **bounds) == ErrorCode.INVALID_TIMESTAMP
    check(batch(b"x", timestamp=-1), **bounds)  # none at all
    check(batch(b"x", timestamp=0), message_timestamp_type="LogAppendTime", **bounds)


def test_compacted_topics_need_keys() -> None:
    assert code_of(good(), cleanup_policy="compact") == ErrorCode.INVALID_RECORD
    assert code_of(batch(b"a", b"b", keys=[b"k", None]), cleanup_policy="compact,delete") == ErrorCode.INVALID_RECORD
    keyed = batch(b"a", b"b", keys=[b"k", b""], compression="lz4")
    check(keyed, cleanup_policy="compact")


# What is inside


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
@in_lots(("data", "count"), UNREADABLE.values())
def test_records_that_cannot_be_read_are_refused(data: bytes, count: int, codec: Codec) -> None:
    refused = refusal_of(raw_batch(bytes(compress(codec, data)), count, codec=codec, timestamp=NOW))
    assert refused.code == ErrorCode.INVALID_RECORD
    assert refused.message


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec], ids=lambda codec: codec.name)
def test_broken_compression_is_refused(codec: Codec) -> None:
    whole = bytes(compress(codec, raw_record(0) + raw_record(1)))
    for data in (b"\x99" * 50, whole[:-3], whole[:5], b""):
        assert code_of(raw_batch(data, 2, codec=codec, timestamp=NOW)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_exactly_the_records_without_a_key_are_named(codec: Codec) -> None:
    records = batch(b"a", b"b", b"c", b"d", timestamp=NOW, keys=[b"k", None, b"", None], compression=codec.name.lower())
    refused = refusal_of(records, cleanup_policy="compact")
    assert isinstance(refused, InvalidRecords)
    assert refused.code == ErrorCode.INVALID_RECORD
    assert [error.place for error in refused.errors] == [1, 3]
    assert "2 record errors" in refused.message


def test_exactly_the_records_out_of_the_bounds_of_time_are_named() -> None:
    bounds = {"message_timestamp_before_max_ms": "60000", "message_timestamp_after_max_ms": "60000"}
    data = raw_record(0) + raw_record(1, time=10**7) + raw_record(2, time=-(10**7)) + raw_record(3)
    refused = refusal_of(raw_batch(data, 4, timestamp=NOW), **bounds)
    assert isinstance(refused, InvalidRecords)
    assert refused.code == ErrorCode.INVALID_TIMESTAMP
    assert [error.place for error in refused.errors] == [1, 2]


def test_of_many_invalid_records_only_the_first_are_named() -> None:
    data = b"".join(raw_record(n, key=None) for n in range(MOST_ERRORS + 500))
    refused = refusal_of(raw_batch(data, MOST_ERRORS + 500, timestamp=NOW), cleanup_policy="compact")
    assert isinstance(refused, InvalidRecords)
    assert [error.place for error in refused.errors] == list(range(MOST_ERRORS))


def test_the_largest_timestamp_is_that_of_the_records() -> None:
    data = raw_record(0) + raw_record(1, time=5) + raw_record(2, time=3)
    for claimed in (NOW, NOW + 10**12, -1):
        assert check(raw_batch(data, 3, timestamp=NOW, max_timestamp=claimed)).max_timestamp == NOW + 5
    claimed_early = raw_batch(raw_record(0, time=10**7), 1, timestamp=NOW - 10**7, max_timestamp=0)
    assert check(claimed_early, message_timestamp_before_max_ms="1000").max_timestamp == NOW


def test_timestamps_over_64_bits() -> None:
    bounds = {"message_timestamp_after_max_ms": str(2**63 - 1)}
    assert code_of(raw_batch(raw_record(0, time=10), 1, timestamp=2**63 - 5), **bounds) == ErrorCode.INVALID_RECORD


def test_a_batch_that_takes_long_is_not_looked_into() -> None:
    bomb = bytes(compress(Codec.ZSTD, bytes(MOST_DECOMPRESSED + 1)))
    check(raw_batch(bomb, 2, codec=Codec.ZSTD, timestamp=NOW))
    varied = b"".join(raw_record(n, value=bytes(n % 7)) for n in range(MOST_SINGLE + 1))
    check(raw_batch(varied + b"garbage", MOST_SINGLE + 1, timestamp=NOW))
    # A compacted topic needs to know the keys.
    broken = raw_batch(varied + b"garbage", MOST_SINGLE + 1, timestamp=NOW)
    assert code_of(broken, cleanup_policy="compact") == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_more_records_than_a_format_can_hold_are_refused_without_a_look_inside(codec: Codec) -> None:
    """Each such batch would begin a new segment, because offsets in a segment span 31 bits."""
    used_up = Allowance(lambda: 0.0, share=0.0)
    batch_ = raw_batch(bytes(compress(codec, raw_record(0))), 2**31 - 1, codec=codec, timestamp=NOW)
    assert refusal_of(batch_, used_up).code == ErrorCode.INVALID_RECORD


class Clock:
    """A clock that goes on by `step` seconds whenever it is read."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_inspections_take_only_their_share_of_the_time() -> None:
    clock = Clock()
    inspections = Allowance(clock, share=0.1, saved=1.0)
    broken, keyless = raw_batch(b"\x99" * 50, 2, timestamp=NOW), batch(b"x", timestamp=NOW)
    late = raw_batch(raw_record(0), 1, timestamp=NOW, max_timestamp=NOW + 10**10)
    assert refusal_of(broken, inspections).code == ErrorCode.INVALID_RECORD
    clock.step = 0.3  # an inspection takes longer than what is saved
    check(good(), inspections)
    clock.step = 0.0
    check(broken, inspections)
    # The header still counts, and a compacted topic has to be looked into.
    assert refusal_of(late, inspections).code == ErrorCode.INVALID_TIMESTAMP
    assert refusal_of(keyless, inspections, cleanup_policy="compact").code == ErrorCode.INVALID_RECORD
    clock.now += 10
    assert refusal_of(broken, inspections).code == ErrorCode.INVALID_RECORD


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
    header, records = stamp(memoryview(original), 42, 7, NOW + 1, append_time=False)
    stamped = bytes(header) + bytes(records)
    assert bytes(original) == before
    parsed = read_header(stamped)
    check_batch(parsed, stamped)
    assert (parsed.base_offset, parsed.leader_epoch) == (42, 7)
    assert [record.offset for record in decode_records(stamped)] == [42, 43]


def test_log_append_time_agrees_with_the_slow_twin() -> None:
    header, records = stamp(memoryview(good()), 0, -1, 123_456, append_time=True)
    twin = good()
    restamp_log_append_time(twin, 0, 123_456)
    assert bytes(header) + bytes(records) == bytes(twin)
    assert {record.timestamp for record in decode_records(twin)} == {123_456}


async def test_a_refused_batch_is_freed_at_once(tmp_path: Path) -> None:
    """Not when the collector runs: a thread has looked into it, and its error must not keep the batch alive."""

    class Frame(bytearray):
        """The frame of a request, which a reference can watch."""

    directory = LogDirectory.open(tmp_path, broker_config(), node_id=1, now_ms=0)
    log = directory.create(TP, TOPIC_ID, topic_config({"cleanup.policy": "compact"}), 0)
    gc.disable()
    try:
        refused = Frame(batch(b"no key"))
        gone = weakref.ref(refused)
        with pytest.raises(KafkaError):
            await log.check_keys(refused)
        del refused
        directory.close(0)  # the thread has returned
        assert gone() is None
    finally:
        gc.enable()
