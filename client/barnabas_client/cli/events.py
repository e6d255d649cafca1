"""Where brokers write down why groups rebalanced, and whoever can tell it as sentences.

The events are records of ``__group_events``, in the partition that a group has in ``__consumer_offsets`` too. What they
mean is known to the package that writes them: it gives a function by an entry point of the group ``barnabas.tellers``,
which takes the values of a group's records, oldest first, and returns what happened as data: `time` (ms since 1970),
`generation`, `text`, `remedy` (or None), `details` (sentences) and `data` (the events).
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import OffsetSpec
from barnabas_client.cli.failures import CommandError
from barnabas_client.cli.output import Output, Style
from barnabas_client.cli.values import shown_time
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import EVENTS_TOPIC, partition_for

TELLERS: Final = "barnabas.tellers"

Told = dict[str, Any]


class Teller(Protocol):
    """Tells events."""

    def __call__(
        self, values: Iterable[bytes], *, since: int | None = None, generation: int | None = None
    ) -> list[Told]: ...


class Where(NamedTuple):
    """The records that hold a group's events."""

    partition: TopicPartition
    start: int
    end: int


def teller() -> Teller | None:
    """Who tells events, if anybody is installed who can."""
    from importlib.metadata import entry_points

    for point in entry_points(group=TELLERS):
        tell: Teller = point.load()
        return tell
    return None


async def locate(admin: Admin, group: str, since: int | None) -> Where | None:
    """Where a group's events are; None if these brokers write none.

    Args:
        admin: to look with.
        group: whose.
        since: a time in ms since 1970 before which none is wanted.

    Raises:
        KafkaError: the topic cannot be looked at.
    """
    (topic,) = await admin.describe_topics([EVENTS_TOPIC], raise_errors=False)
    if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not topic.partitions:
        return None
    tp = TopicPartition(EVENTS_TOPIC, partition_for(group, len(topic.partitions)))
    end = (await admin.list_offsets({tp: OffsetSpec.LATEST}))[tp].offset
    first = (await admin.list_offsets({tp: OffsetSpec.EARLIEST if since is None else max(since, 0)}))[tp].offset
    return Where(tp, end if first < 0 else first, end)


def require_teller() -> Teller:
    """Who tells events.

    Raises:
        CommandError: nobody.
    """
    tell = teller()
    if tell is None:
        raise CommandError(
            "what the events mean is told by the package barnabas_broker, which is not installed here. To do: install "
            f"barnabas as a whole, or read the topic {EVENTS_TOPIC} with `barnabas consume`"
        )
    return tell


def lines(told: Told, output: Output) -> list[str]:
    """What happened, as lines."""
    when = output.styled(shown_time(told["time"]), Style.FAINT)
    out = [f"{when}  {told['text']}"]
    out += (f"    {detail}" for detail in told.get("details", ()))
    if told.get("remedy"):
        out.append(f"    {output.styled('To do:', Style.WARN)} {told['remedy']}")
    return out
