"""Programs with mistakes: type checkers must find each. An ignored line without an error is an error itself."""

from barnabas import Consumer, ConsumerRecord, Producer, sync


def order_of(data: bytes) -> int:
    return int(data)


def number_of_compacted(data: bytes) -> int | None:
    return int(data)


async def a_value_may_be_null() -> None:
    record = await Consumer("orders").getone()
    record.value.decode()  # type: ignore[union-attr]
    record.key.decode()  # type: ignore[union-attr]
    numbers = await Consumer("orders", value_deserializer=number_of_compacted).getone()
    print(numbers.value + 1)  # type: ignore[operator]


async def bytes_are_no_text() -> None:
    record = await Consumer("orders").getone()
    text: str | None = record.value  # type: ignore[assignment]
    print(text)


def declared_without_deserializer() -> None:
    both: Consumer[str, int] = Consumer("orders")  # type: ignore[assignment]
    key: Consumer[str, int] = Consumer("orders", value_deserializer=order_of)  # type: ignore[assignment]
    print(both, key)


def a_deserializer_takes_bytes() -> None:
    Consumer("orders", value_deserializer=str.upper)  # type: ignore[arg-type]


def settings() -> None:
    Consumer("orders", group="billing")  # type: ignore[call-overload]
    Consumer("orders", session_timeout_ms="10s")  # type: ignore[call-overload]
    Consumer("orders", auto_offset_reset="smallest")  # type: ignore[call-overload]
    Consumer("orders", isolation_level="committed")  # type: ignore[call-overload]
    Producer(compression_type="brotli")  # type: ignore[call-overload]
    Producer(acks=2)  # type: ignore[call-overload]


async def handlers_take_the_records_of_the_consumer(consumer: Consumer[str, int]) -> None:
    async def handle(record: ConsumerRecord) -> None:
        print(record)

    await consumer.run(handle)  # type: ignore[arg-type]
    await consumer.run(handle, order="offset")  # type: ignore[call-overload]

    async def many(records: list[ConsumerRecord[str, int]]) -> None:
        print(records)

    await consumer.run(many)  # type: ignore[arg-type]


async def dead_letters_need_serializers(consumer: Consumer[str, int]) -> None:
    async def handle(record: ConsumerRecord[str, int]) -> None:
        print(record)

    await consumer.run(handle, dead_letter_topic="failed", producer=Producer())  # type: ignore[arg-type]


async def producers_take_what_their_serializers_take() -> None:
    await Producer().send("orders", "text")  # type: ignore[arg-type]
    await Producer(value_serializer=str.encode).send("orders", b"bytes")  # type: ignore[arg-type]
    await Producer(value_serializer=str.encode).send("orders", "text", key="text")  # type: ignore[arg-type]
    await Producer().send_many("orders", ["text"])  # type: ignore[list-item]
    await Producer().send_many("orders", [b"bytes"], "text")  # type: ignore[arg-type]
    Producer(value_serializer=str.upper)  # type: ignore[arg-type]


def records_do_not_change(record: ConsumerRecord) -> None:
    record.value = b""  # type: ignore[misc]


def without_await() -> None:
    sync.Consumer("orders", group="billing")  # type: ignore[call-overload]
    sync.Consumer("orders").getmany(timeout="1s")  # type: ignore[call-arg]
    sync.Producer().send("orders", "text")  # type: ignore[arg-type]
    sync.Producer(value_serializer=str.encode).send_many("orders", [b"bytes"])  # type: ignore[list-item]
    sync.Admin(servers="localhost:9092")  # type: ignore[call-arg]
