"""Subscribers of each topic, for both assignors. Pure."""

from collections.abc import Sequence
from itertools import chain

from barnabas_broker.groups.consumer.assignment import GroupSpec


def subscribers_by_topic(spec: GroupSpec, members: Sequence[str]) -> dict[bytes, list[int]]:
    """The subscribers of each topic, as ascending positions in `members`.

    Topics with the same subscribers share one list. So the work grows with the number of different subscriptions, and
    not with members times topics, and callers may remember results by the identity of a list.

    Raises:
        ValueError: a member subscribes to a topic that the spec does not have.
    """
    alike: dict[frozenset[bytes], list[int]] = {}
    for position, member in enumerate(members):
        alike.setdefault(spec.members[member].topic_ids, []).append(position)
    if len(alike) == 1:
        # As a rule, all members subscribe to the same topics.
        ((topics, positions),) = alike.items()
        _check(spec, topics)
        return dict.fromkeys(topics, positions)
    different = list(alike.values())
    parts: dict[bytes, list[int]] = {}
    for number, topics in enumerate(alike):
        _check(spec, topics)
        for topic in topics:
            parts.setdefault(topic, []).append(number)
    merged: dict[tuple[int, ...], list[int]] = {}
    subscribers = {}
    for topic, numbers in parts.items():
        key = tuple(numbers)
        together = merged.get(key)
        if together is None:
            together = merged[key] = sorted(chain.from_iterable(map(different.__getitem__, numbers)))
        subscribers[topic] = together
    return subscribers


def _check(spec: GroupSpec, topics: frozenset[bytes]) -> None:
    missing = topics - spec.topics.keys()
    if missing:
        raise ValueError(f"members subscribe to topic {min(missing).hex()}, which does not exist")
