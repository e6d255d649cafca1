"""Topics that are new, have grown or were deleted, and the clients that did it: the newest ones. Pure.

An event says that a group rebalances because of such a topic. Memory is bounded: :data:`_MOST` topics of each kind.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from math import inf
from typing import Final

from barnabas_broker.groups.sightings import ClientAddress
from barnabas_broker.recent import Newest
from barnabas_explain.catalog import GroupEvent, RebalanceOver, SubscriptionChanged, TargetAssigned, TopicDeleted
from barnabas_explain.members import Member, Partition, is_default
from barnabas_protocol.internal_topics import INTERNAL_TOPICS

#: Topics count as new for so many seconds; the newest ones are remembered.
_NEW_SECONDS: Final = 600
_MOST: Final = 1_000
#: Bytes of the subscriptions of an event that are read.
_LARGEST: Final = 64 * 1024
#: Members of a group of which it is looked for the topics that they have made.
_MOST_OWN: Final = 100
#: Clients that an event names.
_MOST_NAMED: Final = 5


class NewTopics:
    """These topics of a cluster."""

    def __init__(self) -> None:
        #: When topics were created, in seconds on the coordinator's clock.
        self._created: Newest[str, float] = Newest(_MOST)
        #: The clients for which topics were created automatically.
        self._created_for: Newest[str, ClientAddress] = Newest(_MOST)
        #: The clients that have asked last to create or delete topics, as far as they asked this broker.
        self._changed_by: Newest[str, ClientAddress] = Newest(_MOST)
        #: The number of partitions that topics had before they have grown last, and when that was.
        self._grown: Newest[str, tuple[int, float]] = Newest(_MOST)

    def grown(self, topics: Iterable[str], before: Mapping[str, int], now: float) -> None:
        """Topics were created or have got partitions.

        Args:
            topics: their names.
            before: the numbers of partitions that they had; 0 for those that were created.
            now: in seconds on the coordinator's clock.
        """
        for name in topics:
            if not before.get(name):
                self._created[name] = now
            else:
                self._grown[name] = before[name], now

    def created_for(self, topic: str, client: ClientAddress) -> None:
        """A topic was created automatically, because a client has used its name."""
        if topic not in INTERNAL_TOPICS:
            self._created_for[topic] = client

    def changed_by(self, topic: str, client: ClientAddress) -> None:
        """A client asks to create or delete a topic."""
        self._changed_by[topic] = client

    def deleted(self, topic: str) -> None:
        """A topic was deleted."""
        self._grown.pop(topic, None)

    def was_added(self, place: Partition, since: float) -> bool:
        """Whether a partition was added to its topic after a time, in seconds on the coordinator's clock."""
        before, at = self._grown.get(place[0], (inf, inf))
        return place[1] >= before and since < at

    def complete(self, event: GroupEvent, now: float) -> GroupEvent:
        """An event with the new topics that it is about."""
        if isinstance(event, SubscriptionChanged) and self._created:
            return self._with_new_topics(event, now)
        if isinstance(event, RebalanceOver | TargetAssigned):
            return self._with_own_topics(event, now)
        if isinstance(event, TopicDeleted) and event.topic in self._changed_by:
            client = self._changed_by[event.topic]
            return event.changed(client_id=client.client_id, host=client.host)
        return event

    def _with_new_topics(self, event: SubscriptionChanged, now: float) -> SubscriptionChanged:
        """The event with those topics that were created shortly before: an expression of a client matches them."""
        if len(event.old or b"") + len(event.new or b"") > _LARGEST:
            return event
        event = event.decoded()
        new = tuple(topic for topic in event.added or () if self._is_new(topic, now))
        by = dict.fromkeys(self._changed_by[topic] for topic in new if topic in self._changed_by)
        names = tuple(Member(None, *client).common_name for client in islice(by, _MOST_NAMED))
        return event.changed(
            new_topics=new or None, own_topics=self._own(event.member, new, now) or None, created_by=names or None
        )

    def _with_own_topics(self, event: RebalanceOver | TargetAssigned, now: float) -> GroupEvent:
        """The event with the new topics that clients of its members have made. These may join while that happens."""
        if (event.members or 0) > _MOST_OWN or not any(self._is_new(each, now) for each in self._created_for):
            return event
        event = event.decoded()
        own = (self._own(move.member, move.gained, now) for move in event.moves or ())
        return event.changed(own_topics=tuple(dict.fromkeys(chain.from_iterable(own))) or None)

    def _is_new(self, topic: str, now: float) -> bool:
        return self._created.get(topic, -inf) >= now - _NEW_SECONDS

    def _own(self, member: Member, topics: Iterable[str], now: float) -> tuple[str, ...]:
        """Those new topics that were created because the client of a member has used their names."""
        client = ClientAddress(member.client_id or "", member.host or "")
        if is_default(client.client_id):
            return ()
        return tuple(each for each in topics if self._created_for.get(each) == client and self._is_new(each, now))
