"""The topics of the cluster, as groups of the consumer protocol see them: by name and by id, with a hash. Pure.

One catalog serves all groups of a coordinator. A group compares the hash of the topics that it subscribes to with the
one of its last epoch: if they differ, a topic was created, deleted, recreated or has grown (KIP-1101).
"""

from collections.abc import Callable, Iterable, KeysView
from itertools import chain
from typing import Final

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.steps import Steps

#: Hashes one topic to 64 bits, and several hashes by topic name to one.
TopicHash = Callable[[Topic], int]
GroupHash = Callable[[dict[str, int]], int]

#: Topics that are hashed in one step.
_TOPICS_PER_STEP: Final = 200

#: The hash of a group that subscribes to no topic that exists.
NO_TOPICS: Final = 0


class TopicCatalog:
    """The topics of the cluster.

    Attributes:
        by_name: the topics; replaced as a whole, never changed, so that threads may read it.
        by_id: the same topics.
        version: changes whenever a topic does.
        names_version: the version at which there was a new name last: then regular expressions may match more.

    Args:
        topic_hash: hashes a topic.
        group_hash: hashes the topics of a group.
    """

    __slots__ = ("_group_hash", "_hashes", "_topic_hash", "by_id", "by_name", "names_version", "version")

    def __init__(self, topic_hash: TopicHash, group_hash: GroupHash) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.version = self.names_version = 0
        self._topic_hash = topic_hash
        self._group_hash = group_hash
        self._hashes: dict[str, int] = {}

    def update(self, changed: Iterable[Topic], deleted: Iterable[str] = ()) -> bool:
        """Add or replace some topics, and remove others; returns whether one of them has changed.

        Args:
            changed: topics as they are now. Those that are not given stay as they are.
            deleted: names of topics that do not exist any more.
        """
        before = self.by_name
        new = {topic.name: topic for topic in changed if before.get(topic.name) != topic}
        gone = [name for name in deleted if name in before and name not in new]
        if not new and not gone:
            return False
        by_name, by_id = before | new, self.by_id.copy()
        for name in (*new, *gone):
            self._hashes.pop(name, None)
            if name in before:
                del by_id[before[name].topic_id]
        for name in gone:
            del by_name[name]
        by_id.update((topic.topic_id, topic) for topic in new.values())
        self.version += 1
        if not new.keys() <= before.keys():
            self.names_version = self.version
        self.by_name, self.by_id = by_name, by_id
        return True

    def ids_of(self, names: frozenset[str]) -> frozenset[bytes]:
        """The ids of those topics that exist."""
        by_name = self.by_name
        if len(by_name) < len(names):
            # Members may subscribe to tens of thousands of topics that do not exist.
            return frozenset(by_name[name].topic_id for name in names.intersection(by_name))
        return frozenset(by_name[name].topic_id for name in names if name in by_name)

    def hash_each(self, names: Iterable[str]) -> Steps[None]:
        """Compute the hash of each of many topics beforehand, so that :meth:`hash_of` does not take long."""
        for number, name in enumerate(names, 1):
            self._hash_of_topic(name)
            if number % _TOPICS_PER_STEP == 0:
                yield

    def _hash_of_topic(self, name: str) -> int | None:
        topic = self.by_name.get(name)
        if topic is None:
            return None
        known = self._hashes.get(name)
        if known is None:
            known = self._hashes[name] = self._topic_hash(topic)
        return known

    def hash_of(self, *names: KeysView[str]) -> int:
        """The hash of those topics that exist; :data:`NO_TOPICS` if none of them does."""
        known, by_name = self._hashes, self.by_name
        hashes: dict[str, int] = {}
        for name in chain.from_iterable(by_name.keys() & some for some in names):
            # As _hash_of_topic, written out: there may be thousands of topics, most of them known.
            found = known.get(name)
            if found is None:
                found = self._hash_of_topic(name)
            if found is not None:
                hashes[name] = found
        return self._group_hash(hashes) if hashes else NO_TOPICS
