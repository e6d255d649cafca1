"""Options of the source and the sink by name, in any case. Pure.

Names are those of Spark's Kafka connector. Source: ``KafkaSourceProvider.scala``.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from barnabas_pipeline.brokers.settings import PREFIX, boolean

T = TypeVar("T")

#: All names, to find misspellings. Options of Spark's connector that have no meaning here are accepted and ignored:
#: reading joins no group (`groupIdPrefix`), and there is no pool of consumers.
KNOWN: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupIdPrefix",
    "topic",
    "exactlyOnce",
    "transactionalIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "checkpointLocation",
)


class OptionMap:
    """Options by name in any case, as Spark passes them.

    Args:
        options: the options as given.

    Raises:
        ValueError: a name is nearly one of :data:`KNOWN`; it would be ignored silently.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        known = {name.lower(): name for name in KNOWN}
        for name in options:
            if not name.lower().startswith(PREFIX) and name.lower() not in known:
                near = difflib.get_close_matches(name.lower(), known, 1, cutoff=0.85)
                if near:
                    raise ValueError(f"option '{name}' is not known: did you mean '{known[near[0]]}'?")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str, default: str = "") -> str:
        """Return a value without surrounding spaces."""
        return self._values.get(name.lower(), default).strip()

    def read(self, name: str, convert: Callable[[str, str], T], default: T) -> T:
        """Return a value converted by ``convert(name, value)``, or `default` if the option is absent."""
        return convert(name, self.get(name)) if name in self else default

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return true or false.

        Raises:
            ValueError: the value is neither.
        """
        return self.read(name, boolean, default)

    def positive(self, name: str) -> int | None:
        """Return a whole number of at least 1, None if the option is absent.

        Raises:
            ValueError: the value is something else.
        """
        if name not in self:
            return None
        text = self.get(name)
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"option '{name}' is {text!r}: give a whole number, 1 or more")
        return int(text)
