"""Produce, and the producer ids of InitProducerId."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import fetch, make_topic
from tests.interop.behaviour.language import START, Batch, Difference, Family, Scenario, Step, ask, flat

P: Final = ApiKey.PRODUCE


def _send(batch: Batch | bytes | None, version: int = 9, *, acks: int = -1, partition: int = 0, **content: Any) -> Step:
    topic = content.pop("topic", None)
    options = {key: content.pop(key) for key in ("unanswered", "quiet") if key in content}
    named = {"name": topic or "$topic"} if version < 13 else {"topic_id": topic or "$topic_id"}
    data = [{**named, "partition_data": [{"index": partition, "records": batch}]}]
    return ask(P, version, acks=acks, timeout_ms=10_000, topic_data=data, **options, **content)


def _produce(title: str, *steps: Step, **configs: Any) -> Scenario:
    return Scenario(f"Produce: {title}", flat(make_topic(**configs), *steps))


_NEW_ID: Final = ask(
    ApiKey.INIT_PRODUCER_ID,
    4,
    transactional_id=None,
    transaction_timeout_ms=-1,
    save={"pid": "producer_id"},
    quiet=True,
)


def _idempotent(title: str, *batches: Batch) -> Scenario:
    """Batches of one producer, one after the other."""
    return Scenario(f"Produce: {title}", flat(make_topic(), _NEW_ID, *(_send(batch) for batch in batches), fetch()))


def _numbered(sequence: int, *values: str, epoch: int = 0) -> Batch:
    return Batch(values or ("a", "b"), producer_id="$pid", epoch=epoch, sequence=sequence)


def _init(version: int, title: str, **content: Any) -> Scenario:
    content = {"transactional_id": None, "transaction_timeout_ms": 60_000, **content}
    return Scenario(f"InitProducerId v{version}: {title}", (ask(ApiKey.INIT_PRODUCER_ID, version, **content),))


CRC, MAGIC, COUNT, LENGTH, ATTRIBUTES = 17, 16, 57, 8, 21

SCENARIOS: Final = (
    *(
        Scenario(f"Produce v{version}", flat(make_topic(), _send(Batch(("a", "b")), version), fetch()))
        for version in range(3, 14)
    ),
    *(
        Scenario(f"Produce v{version}, which Kafka 4 no longer has", flat(make_topic(), _send(Batch(), version)))
        for version in (0, 1, 2)
    ),
    *(_produce(f"acks={acks}", _send(Batch(), acks=acks), fetch()) for acks in (1, -1)),
    _produce(
        "acks=0",
        _send(Batch(), acks=0, unanswered=True),
        _send(Batch(("after",)), acks=1),
        fetch(),
    ),
    *(_produce(f"acks={acks}, which is invalid", _send(Batch(), acks=acks)) for acks in (2, -2)),
    _produce("acks=0 to an unknown partition", _send(Batch(), acks=0, partition=7)),
    *(_produce(f"v{version}: an unknown topic", _send(Batch(), version, topic="$topic-b")) for version in (3, 9, 12)),
    _produce("v13: an unknown topic id", _send(Batch(), 13, topic=b"0123456789abcdef")),
    _produce("v13: the zero topic id", _send(Batch(), 13, topic=bytes(16))),
    _produce("an unknown partition", _send(Batch(), partition=7)),
    _produce("a negative partition", _send(Batch(), partition=-1)),
    _produce("an illegal topic", _send(Batch(), topic="a/b")),
    _produce("an empty topic", _send(Batch(), 9, topic="")),
    Scenario("Produce: the offsets topic", (_send(Batch(), topic="__consumer_offsets"),)),
    _produce("empty records", _send(b"")),
    _produce("two batches for one partition", _send(Batch(times=2))),
    _produce("no topics", ask(P, 9, acks=-1, timeout_ms=1000, topic_data=[])),
    _produce("a wrong CRC", _send(Batch(spoil=(CRC, b"\0\0\0\0")))),
    *(_produce(f"magic {magic}", _send(Batch(spoil=(MAGIC, bytes([magic]))))) for magic in (0, 1, 3)),
    _produce("a wrong count", _send(Batch(spoil=(COUNT, b"\0\0\0\7")))),
    _produce("a length beyond the batch", _send(Batch(spoil=(LENGTH, b"\0\0\x7f\0")))),
    _produce("a negative length", _send(Batch(spoil=(LENGTH, b"\xff\xff\xff\xff")))),
    _produce("half a batch", _send(b"\0" * 30)),
    _produce("a control batch", _send(Batch(control=True))),
    *(
        _produce(f"compressed with {codec}", _send(Batch(("a" * 50, "b"), compression=codec)), fetch())
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    _produce("zstd in v3", _send(Batch(compression="zstd"), 3)),
    _produce("too large for max.message.bytes", _send(Batch(("x" * 500,))), max__message__bytes="200"),
    _produce("acks=all below min.insync.replicas", _send(Batch()), min__insync__replicas="2"),
    _produce("acks=1 below min.insync.replicas", _send(Batch(), acks=1), min__insync__replicas="2"),
    _produce("log append time", _send(Batch()), fetch(), message__timestamp__type="LogAppendTime"),
    _produce("a time in the far future", _send(Batch(start=START * 2))),
    _produce("a time in the far past", _send(Batch()), message__timestamp__before__max__ms="1000"),
    _produce("no time at all", _send(Batch(start=-1)), fetch()),
    _produce("no key on a compacted topic", _send(Batch()), cleanup__policy="compact"),
    *(
        _produce(
            f"some keys are missing on a compacted topic, {codec}",
            _send(Batch((("k", "v"), (None, "v"), ("k", "w"), (None, None)), compression=codec)),
            fetch(),
            cleanup__policy="compact",
        )
        for codec in ("none", "gzip", "zstd")
    ),
    _produce("keys on a compacted topic", _send(Batch((("k", "v"), ("k", None)))), fetch(), cleanup__policy="compact"),
    _idempotent("a producer's batches in order", _numbered(0), _numbered(2), _numbered(4)),
    _idempotent("a batch again", _numbered(0), _numbered(2), _numbered(0), _numbered(2)),
    _idempotent("a gap in the sequence", _numbered(0), _numbered(3)),
    _idempotent("a first batch in mid sequence", _numbered(5)),
    _idempotent("six batches, then the first again", *(_numbered(n, "x") for n in range(6)), _numbered(0, "x")),
    _idempotent("a newer epoch from 0", _numbered(0), _numbered(0, epoch=1)),
    _idempotent("a newer epoch in mid sequence", _numbered(0), _numbered(2, epoch=1)),
    _idempotent("an older epoch", _numbered(0, epoch=1), _numbered(2, epoch=0)),
    _idempotent("part of a batch again", _numbered(0, "a", "b", "c"), _numbered(1, "b")),
    Scenario(
        "Produce: the first batch is refused for now, the second one is not",
        flat(
            *(_NEW_ID, _send(_numbered(0)), make_topic()),
            *(_send(_numbered(each)) for each in (2, 0, 2)),
            fetch(),
        ),
    ),
    Scenario(
        "Produce: an unknown producer id",
        flat(make_topic(), _send(Batch(producer_id=987_654_321, epoch=0, sequence=0))),
    ),
    _produce(
        "a transactional batch without a transaction",
        _send(Batch(producer_id=77, epoch=0, sequence=0, transactional=True)),
    ),
    Scenario(
        "Produce: two partitions, one of them unknown",
        flat(
            make_topic(),
            ask(
                P,
                9,
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    {
                        "name": "$topic",
                        "partition_data": [{"index": 0, "records": Batch()}, {"index": 5, "records": Batch()}],
                    }
                ],
            ),
        ),
    ),
    *(_init(version, "idempotence") for version in range(6)),
    _init(4, "an empty transactional id", transactional_id=""),
    _init(0, "an empty transactional id", transactional_id=""),
    _init(4, "a timeout of 0", transaction_timeout_ms=0),
    _init(4, "an id and an epoch", producer_id=55, producer_epoch=3),
    _init(4, "an id without an epoch", producer_id=55, producer_epoch=-1),
    _init(4, "an epoch without an id", producer_id=-1, producer_epoch=3),
)

DIFFERENCES: Final = (
    Difference(
        "Produce 0-2 is answered with UNSUPPORTED_VERSION",
        "Kafka advertises these versions as well, and closes the connection.",
        (("Produce v[012], which Kafka 4 no longer has", "*"),),
    ),
    Difference(
        "A batch does not take the place of one before it that was refused for now: OUT_OF_ORDER_SEQUENCE_NUMBER",
        "Kafka takes it, because it knows nothing of the producer yet, and then refuses the first batch for good. "
        "librdkafka sends the second one before it has the answer to the first one, and reports the records of both as "
        "acknowledged. With this error it sends both again.",
        (("Produce: the first batch is refused for now, the second one is not", "*"),),
    ),
)

FAMILY: Final = Family("Produce", SCENARIOS, DIFFERENCES)
