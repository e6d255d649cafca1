"""Regular expressions that consumers subscribe with (``SubscribedTopicRegex``): what a group knows of them. Pure.

:mod:`barnabas_broker.regexes` compiles them and matches topics with them.

Source: Kafka's ``TopicRegexResolver``, ``GroupMetadataManager.maybeUpdateRegularExpressions``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas_broker.steps import Steps

#: Seconds that have to pass between two refreshes of a group's expressions.
MIN_REFRESH_INTERVAL: Final = 10.0

#: Maximum number of different regular expressions of the members of one group. Kafka has no such limit.
MAX_REGEXES: Final = 100

#: Maximum number of names of topics that all regular expressions of a group match together. Each is in memory and in a
#: record.
MAX_NAMES: Final = 100_000

#: Maximum number of different topics that they match together: with each change, a group hashes all of them and writes
#: their names, in 25 ms. With 50 letters each they fill a record of 1 MB.
MAX_TOPICS: Final = 20_000

#: Names of topics that a group takes over in one call, about.
NAMES_PER_CALL: Final = 5_000

#: Topics that are authorized in one step.
_AUTHORIZED_PER_STEP: Final = 100


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched (``ConsumerGroupRegularExpressionValue``).

    Attributes:
        topics: the names of the topics.
        version: of the metadata that was searched.
        timestamp_ms: when.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Resolve(NamedTuple):
    """Match all topics with each expression, then report with ``ConsumerGroup.regexes_resolved``.

    Attributes:
        ticket: for the report.
        regexes: the expressions of all members.
        may_describe: whether the client whose request starts the search may describe a topic; None if it may describe
            all. As in Kafka, this client decides for the whole group.
        client: the principal and the host of that client.
    """

    ticket: int
    regexes: frozenset[str]
    may_describe: Callable[[str], bool] | None
    client: tuple[str, str]


def authorized(
    matches: Mapping[str, frozenset[str]], may_describe: Callable[[str], bool]
) -> Steps[dict[str, frozenset[str]]]:
    """Match expressions, without topics that a client may not describe, some topics per step.

    Args:
        matches: the names of topics by expression.
        may_describe: whether the client may describe a topic; it is asked once for each.
    """
    allowed: dict[str, bool] = {}
    #: Of results that are the same: expressions with equal matches share one object.
    known: dict[frozenset[str], frozenset[str]] = {}
    kept: dict[str, frozenset[str]] = {}
    for regex, topics in matches.items():
        if topics not in known:
            found = []
            for number, topic in enumerate(topics, 1):
                may = allowed.get(topic)
                if may is None:
                    may = allowed[topic] = may_describe(topic)
                if may:
                    found.append(topic)
                if number % _AUTHORIZED_PER_STEP == 0:
                    yield
            known[topics] = topics if len(found) == len(topics) else frozenset(found)
        kept[regex] = known[topics]
        yield
    return kept


def in_parts(matches: Mapping[str, frozenset[str]]) -> Iterator[dict[str, frozenset[str]]]:
    """Match expressions, in the order of their texts, in parts of about :data:`NAMES_PER_CALL` names."""
    part: dict[str, frozenset[str]] = {}
    names = 0
    for regex in sorted(matches):
        if part and names + len(matches[regex]) > NAMES_PER_CALL:
            yield part
            part, names = {}, 0
        part[regex] = matches[regex]
        names += len(matches[regex])
    yield part


def refresh_due(
    subscribed: Collection[str],
    resolved: Collection[str],
    *,
    refreshed_at: float,
    version: int,
    newest_topics_version: int,
    interval: float,
    now: float,
) -> bool:
    """Whether a group's expressions have to be matched with all topics again. Ask it with each heartbeat of a member.

    Args:
        subscribed: the different expressions of the members, with the change of this heartbeat.
        resolved: those of them for which there is a result.
        refreshed_at: when all of them were matched last, in seconds; -inf for never.
        version: of the topics that they were matched with.
        newest_topics_version: the version at which topics were created last.
        interval: ``group.consumer.regex.refresh.interval.ms``, in seconds.
        now: the time, in seconds.

    A group whose refresh has not ended must not start another.
    """
    if not subscribed or now <= refreshed_at + MIN_REFRESH_INTERVAL:
        return False
    return len(subscribed) != len(resolved) or version < newest_topics_version or now > refreshed_at + interval
