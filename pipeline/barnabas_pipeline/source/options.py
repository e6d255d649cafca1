"""The options of the source: names, defaults and checks of Spark's Kafka connector. Pure.

Source: ``KafkaSourceProvider.scala`` and the page "Structured Streaming + Kafka Integration Guide" of Spark's
documentation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.options import OptionMap
from barnabas_pipeline.source.offsets import EARLIEST, LATEST, parse_partitions, parse_positions

_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True, slots=True)
class ConsumerStrategy:
    """The topics and partitions to read: one of the three attributes is set."""

    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None
    assign: tuple[TopicPartition, ...] | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the topics; None if a pattern determines them."""
        if self.assign is not None:
            return tuple(sorted({tp.topic for tp in self.assign}))
        return self.subscribe

    def matches(self, topic: str) -> bool:
        """Return whether a topic is to be read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in (self.names or ())

    def __str__(self) -> str:
        """Format it as Spark's connector does."""
        if self.assign is not None:
            return f"Assign[{', '.join(map(str, self.assign))}]"
        return (
            f"SubscribePattern[{self.pattern}]" if self.subscribe is None else f"Subscribe[{','.join(self.subscribe)}]"
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends.

    Attributes:
        option: the name of the option, for errors.
        default: EARLIEST or LATEST, for all partitions if nothing else is set.
        offsets: an offset for each partition; EARLIEST and LATEST are allowed.
        timestamp: ms since 1970, for all partitions.
        timestamps: ms since 1970 for each partition.
    """

    option: str
    default: int
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] | None = None

    @property
    def named(self) -> Mapping[TopicPartition, int] | None:
        """The offsets or timestamps by partition, if the option has any."""
        return self.offsets if self.timestamps is None else self.timestamps


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A source's options.

    Attributes:
        settings: how to connect to brokers.
        topics: what to read.
        start: where a batch starts, or a stream without a checkpoint.
        end: where a batch ends; unused by streams.
        latest_if_no_match: start at the latest offset if no record is at or after the starting time; if false, that is
            an error.
        fail_on_data_loss: fail if unread records were deleted; if false, warn and continue after them.
        max_offsets: the approximate maximum of offsets in a micro-batch; None for no limit.
        min_offsets: a micro-batch waits for this many offsets, but no longer than `max_delay`.
        max_delay: seconds.
        min_partitions: split large ranges into about this many tasks.
        max_records: the maximum of offsets that one task reads.
        headers: with the column `headers`.
        poll_timeout: how long a task waits for records that should exist, in seconds.
    """

    settings: Settings
    topics: ConsumerStrategy
    start: Bound
    end: Bound
    latest_if_no_match: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float
    min_partitions: int | None
    max_records: int | None
    headers: bool
    poll_timeout: float

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """Read and check options.

        Raises:
            ValueError: an option is missing, misspelt or invalid; the message names it.
        """
        given = OptionMap(options)
        settings = Settings.of(options)
        topics = _topics(given)
        if streaming:
            for name in _ENDING:
                if name in given:
                    raise ValueError(f"option '{name}' is not valid in streaming queries: leave it out")
        smallest = given.positive("minOffsetsPerTrigger")
        largest = given.positive("maxOffsetsPerTrigger")
        if smallest is not None and largest is not None and smallest > largest:
            raise ValueError(
                f"the value of minOffsetsPerTrigger ({smallest}) is higher than that of maxOffsetsPerTrigger "
                f"({largest}): give at most as much"
            )
        strategy = given.get("startingOffsetsByTimestampStrategy", "error").lower()
        if strategy not in ("error", "latest"):
            raise ValueError(f"option 'startingOffsetsByTimestampStrategy' is {strategy!r}: give 'error' or 'latest'")
        return cls(
            settings=settings,
            topics=topics,
            start=_start(given, streaming=streaming),
            end=_end(given),
            latest_if_no_match=strategy == "latest",
            fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
            max_offsets=largest,
            min_offsets=smallest,
            max_delay=given.read("maxTriggerDelay", _seconds, 900.0),
            min_partitions=given.positive("minPartitions"),
            max_records=given.positive("maxRecordsPerPartition"),
            headers=given.boolean("includeHeaders", default=False),
            poll_timeout=(given.positive("kafkaConsumer.pollTimeoutMs") or 120_000) / 1000,
        )


_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(name: str, value: str) -> float:
    """Convert a duration such as ``15m`` to seconds. A bare number is milliseconds, as in Spark."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", value.lower())
    if found is None or found[2] not in (*_UNITS, ""):
        raise ValueError(f"option '{name}' is {value!r}: give a duration such as '30s' or '15m'")
    return int(found[1]) * _UNITS[found[2] or "ms"]


def _topics(given: OptionMap) -> ConsumerStrategy:
    named = [name for name in _STRATEGIES if name in given]
    if not named:
        raise ValueError(
            "one of the following options must be specified for the source: subscribe, subscribePattern, assign"
        )
    if len(named) > 1:
        raise ValueError(
            f"only one of the options subscribe, subscribePattern and assign can be specified: there are "
            f"{' and '.join(named)}"
        )
    option, value = named[0], given.get(named[0])
    if option == "subscribe":
        topics = tuple(sorted({name.strip() for name in value.split(",") if name.strip()}))
        if not topics:
            raise ValueError(f"no topics to subscribe to in option 'subscribe': it is {value!r}")
        return ConsumerStrategy(subscribe=topics)
    if option == "assign":
        partitions = tuple(parse_partitions(value, option))
        if not partitions:
            raise ValueError(f"no partitions to assign in option 'assign': it is {value!r}")
        return ConsumerStrategy(assign=partitions)
    if not value:
        raise ValueError("the pattern to subscribe in option 'subscribePattern' is empty: give a regular expression")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"option 'subscribePattern' is {value!r}: not a regular expression ({error})") from error
    return ConsumerStrategy(pattern=value)


def _start(given: OptionMap, *, streaming: bool) -> Bound:
    bound = _by_time(given, "startingTimestamp", "startingOffsetsByTimestamp", EARLIEST)
    if bound is not None:
        return bound
    name = "startingOffsets"
    text = given.get(name, "latest" if streaming else "earliest")
    if text.lower() == "earliest":
        return Bound(name, EARLIEST)
    if text.lower() == "latest":
        if not streaming:
            raise ValueError("starting offset can't be latest for batch queries: give 'earliest' or offsets")
        return Bound(name, LATEST)
    offsets = _offsets(text, name)
    if not streaming:
        _refuse(offsets, LATEST, name, "a batch cannot start at the latest offset (-1)")
    return Bound(name, EARLIEST, offsets=offsets)


def _end(given: OptionMap) -> Bound:
    bound = _by_time(given, "endingTimestamp", "endingOffsetsByTimestamp", LATEST)
    if bound is not None:
        return bound
    name = "endingOffsets"
    text = given.get(name, "latest")
    if text.lower() == "latest":
        return Bound(name, LATEST)
    if text.lower() == "earliest":
        raise ValueError("ending offset can't be earliest: give 'latest' or offsets")
    offsets = _offsets(text, name)
    _refuse(offsets, EARLIEST, name, "a batch cannot end at the earliest offset (-2)")
    return Bound(name, LATEST, offsets=offsets)


def _by_time(given: OptionMap, for_all: str, by_partition: str, default: int) -> Bound | None:
    if for_all in given:
        text = given.get(for_all)
        if not text.isdecimal():
            raise ValueError(f"option '{for_all}' is {text!r}: give milliseconds since 1970")
        return Bound(for_all, default, timestamp=int(text))
    if by_partition in given:
        times = parse_positions(given.get(by_partition), by_partition)
        for tp, time in times.items():
            if time < 0:
                raise ValueError(f"option '{by_partition}' has {time} for {tp}: give milliseconds since 1970")
        return Bound(by_partition, default, timestamps=times)
    return None


def _offsets(text: str, name: str) -> dict[TopicPartition, int]:
    if not text.startswith("{"):
        raise ValueError(
            f"option '{name}' is {text!r}: give 'earliest', 'latest' or JSON such as {{\"topic\": {{\"0\": 23}}}}"
        )
    offsets = parse_positions(text, name)
    for tp, offset in offsets.items():
        if offset < EARLIEST:
            raise ValueError(
                f"option '{name}' has offset {offset} for {tp}: give one from 0, -1 (latest) or -2 (earliest)"
            )
    return offsets


def _refuse(offsets: Mapping[TopicPartition, int], value: int, name: str, why: str) -> None:
    for tp, offset in offsets.items():
        if offset == value:
            raise ValueError(f"option '{name}' has {offset} for {tp}: {why}")
