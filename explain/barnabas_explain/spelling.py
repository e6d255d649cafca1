"""Settings of clients in the spelling of the library that the members of a group use. Pure.

Remedies name settings as the Java client does. Libraries in Python have arguments in their place, and each library has
its own assignors.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas_explain.catalog import GroupEvent, MemberJoined

_CONFLUENT: Final = "confluent-kafka-python"
_JAVA: Final = "apache-kafka-java"
_RDKAFKA: Final = "rdkafka"
#: Parts of the names of libraries, the first one that fits counts.
_LIBRARIES: Final = (_CONFLUENT, _RDKAFKA, _JAVA, "kafka-python", "aiokafka", "barnabas")
#: The assignors that a library has besides range, which assign all topics together.
_ASSIGNORS: Final[Mapping[str, str]] = {
    _JAVA: "org.apache.kafka.clients.consumer.RoundRobinAssignor, or CooperativeStickyAssignor",
    "kafka-python": "[RoundRobinPartitionAssignor], or [CooperativeStickyAssignor]",
    "aiokafka": "[RoundRobinPartitionAssignor], or [StickyPartitionAssignor]",
    "barnabas": "[RoundRobinAssignor()], or [CooperativeStickyAssignor()]",
}
#: An assignor for all topics together, in a remedy.
TOGETHER: Final = "partition.assignment.strategy=roundrobin, or cooperative-sticky"
#: How a consumer is closed, in a remedy.
CLOSING: Final = "consumer.close(), or await consumer.stop() with aiokafka"
_CLOSING: Final[Mapping[str, str]] = {
    "aiokafka": "await consumer.stop()",
    "barnabas": "await consumer.close(), or async with",
    _RDKAFKA: "rd_kafka_consumer_close(), or close()",
}
_SETTINGS: Final = re.compile(
    r"(?<![\w.])(auto\.commit\.interval\.ms|auto\.offset\.reset|client\.id|enable\.auto\.commit|fetch\.max\.bytes|fetch\.min\.bytes"
    r"|group\.id|group\.instance\.id|group\.protocol|group\.remote\.assignor|heartbeat\.interval\.ms|isolation\.level"
    r"|max\.partition\.fetch\.bytes|max\.poll\.interval\.ms|max\.poll\.records|metadata\.max\.age\.ms|partition\.assignment\.strategy"
    r"|receive\.message\.max\.bytes|request\.timeout\.ms|session\.timeout\.ms|transaction\.timeout\.ms|transactional\.id)(?![\w]|\.\w)"
)

_COMMANDS: Final = re.compile(r"(`[^`]*`)")


def speller(events: Iterable[GroupEvent]) -> Callable[[str | None], str | None]:
    """Make a function that gives a remedy the spelling of the library that all members of a group use.

    Args:
        events: of the group. If members use several libraries, or one that is not known, a remedy stays as it is.
    """
    used = {_library(event) for event in events if isinstance(event, MemberJoined)}
    library = used.pop() if len(used) == 1 else None
    if library is None:
        return lambda remedy: remedy

    def spelled(remedy: str | None) -> str | None:
        # Commands stay as they are.
        parts = [] if remedy is None else _COMMANDS.split(remedy)
        return None if remedy is None else "".join(part if part[:1] == "`" else words(part) for part in parts)

    def words(remedy: str) -> str:
        assignors = _ASSIGNORS.get(library)
        if assignors is not None:
            remedy = remedy.replace(TOGETHER, f"partition.assignment.strategy={assignors}")
        remedy = remedy.replace(CLOSING, _CLOSING.get(library, "consumer.close()"))
        if library == _CONFLUENT:
            return remedy.replace("max.poll.records", "num_messages of consume()")
        return (
            remedy if library in (_JAVA, _RDKAFKA) else _SETTINGS.sub(lambda found: found[0].replace(".", "_"), remedy)
        )

    return spelled


def _library(event: MemberJoined) -> str | None:
    """The library of a member; aiokafka says its name only in the client ids that it chooses."""
    name = event.software or (event.member.client_id or "")[: len("aiokafka-")]
    return next((each for each in _LIBRARIES if each in name), None)
