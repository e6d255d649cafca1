"""Subscriptions of the members of a group: topics by name, and what their regular expressions match. Pure.

It is counted, not searched: a heartbeat of a group of thousands of members does not look at the others.
"""

from collections import Counter
from math import inf
from typing import Final

from barnabas_broker.groups.consumer.members import Description
from barnabas_broker.groups.consumer.regex import MAX_NAMES, MAX_REGEXES, MAX_TOPICS, ResolvedRegex, refresh_due
from barnabas_broker.groups.consumer.topics import TopicCatalog
from barnabas_protocol.errors import ErrorCode, KafkaError

_NOTHING: Final[frozenset[str]] = frozenset()


class Subscriptions:
    """The subscriptions of a group's members.

    Attributes:
        named: number of members by the name of a topic that they subscribe to.
        regexes: number of members by their regular expression.
        resolved: what the members' regular expressions match, those that are not resolved yet left out.
        refreshed_at: when all regular expressions were resolved last, in seconds; -inf if they were not.
    """

    __slots__ = (
        "_failed",
        "_hashed",
        "_matched",
        "_matches",
        "_refreshed_version",
        "_sets",
        "named",
        "refreshed_at",
        "regexes",
        "resolved",
    )

    def __init__(self) -> None:
        self.named: Counter[str] = Counter()
        self.regexes: Counter[str] = Counter()
        self.resolved: dict[str, ResolvedRegex] = {}
        self.refreshed_at = -inf
        #: The version of the topics then.
        self._refreshed_version = -1
        #: Number of resolved regular expressions by the name of a topic that they match.
        self._matched: Counter[str] = Counter()
        #: Number of topics that all resolved regular expressions match, together.
        self._matches = 0
        #: The sets of topics that members subscribe to, each with the number of members that have this very object.
        self._sets: dict[frozenset[str], tuple[frozenset[str], int]] = {}
        #: The version of the topics, and the hash of those that the group subscribes to; None if these have changed.
        self._hashed: tuple[int, int] | None = None
        #: Why what a regular expression matches could not be taken over when it was resolved last.
        self._failed: dict[str, str] = {}

    def shared(self, topics: frozenset[str]) -> frozenset[str]:
        """The set that a member has already which subscribes to the same topics: one set is compared fast, and small.

        Thousands of members that name thousands of topics each do not have one set each.
        """
        known = self._sets.get(topics)
        return topics if known is None else known[0]

    def change(self, before: Description, after: Description) -> None:
        """Count what a member subscribes to."""
        self._name(before.topics, after.topics)
        if before.regex == after.regex:
            return
        if after.regex:
            self.regexes[after.regex] += 1
        if before.regex:
            self.regexes[before.regex] -= 1
            if not self.regexes[before.regex]:
                del self.regexes[before.regex]

    def _name(self, before: frozenset[str], after: frozenset[str]) -> None:
        """Count the topics that a member names, as a whole and one by one."""
        if before is after:
            return
        named = self.named
        for name in before - after:
            named[name] -= 1
            if not named[name]:
                del named[name]
                self._hashed = None
        added = after - before
        if not added <= named.keys():
            self._hashed = None
        named.update(added)
        if after:
            known, members = self._sets.get(after, (after, 0))
            self._sets[after] = known, members + 1
        if before:
            known, members = self._sets[before]
            if members > 1:
                self._sets[before] = known, members - 1
            else:
                del self._sets[before]

    def match(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set what a regular expression matches; None forgets it."""
        before = self.resolved.pop(regex, None)
        self._failed.pop(regex, None)
        after = _NOTHING if resolved is None else resolved.topics
        self._matches += len(after) - (0 if before is None else len(before.topics))
        if before is not None:
            for name in before.topics - after:
                self._matched[name] -= 1
                if not self._matched[name]:
                    del self._matched[name]
                    self._hashed = None
            after -= before.topics
        if resolved is not None:
            self.resolved[regex] = resolved
            if not after <= self._matched.keys():
                self._hashed = None
            self._matched.update(after)
        elif not self.resolved:
            self.refreshed_at = -inf

    def topics_of(self, names: frozenset[str], regex: str) -> frozenset[str]:
        """The names of the topics of a subscription by names and by a regular expression."""
        resolved = self.resolved.get(regex)
        if resolved is None or not resolved.topics:
            return names
        return names | resolved.topics if names else resolved.topics

    def include(self, topic: str) -> bool:
        """Whether a member subscribes to a topic."""
        return topic in self.named or topic in self._matched

    def hash_of(self, topics: TopicCatalog) -> int:
        """The hash of all topics that the group subscribes to. Members that join subscribe to the same, as a rule."""
        if self._hashed is None or self._hashed[0] != topics.version:
            self._hashed = topics.version, topics.hash_of(self.named.keys(), self._matched.keys())
        return self._hashed[1]

    # Regular expressions

    def check_room(self, before: str, after: str | None, group_id: str) -> None:
        """Check that the group may have one more expression.

        Args:
            before: the expression that its member has had; "" for none.
            after: the one that it has now; None, or "", for none.
            group_id: of the group, for the message.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        if not after or after in self.regexes:
            return
        replaces = self.regexes.get(before) == 1
        if len(self.regexes) - replaces >= MAX_REGEXES:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"The members of group {group_id} have {MAX_REGEXES} different SubscribedTopicRegex, and a group"
                " may not have more. Subscribe with one that another member has.",
            )

    def refresh_due(self, topics: TopicCatalog, interval: float, now: float) -> bool:
        """Whether the expressions have to be matched with all topics again.

        Args:
            topics: of the cluster.
            interval: seconds after which that is due even without new topics.
            now: the time.
        """
        return bool(self.regexes) and refresh_due(
            self.regexes,
            self.resolved,
            refreshed_at=self.refreshed_at,
            version=self._refreshed_version,
            newest_topics_version=topics.names_version,
            interval=interval,
            now=now,
        )

    def refreshed(self, now: float, version: int) -> None:
        """All expressions have been matched with the topics of this version."""
        self.refreshed_at, self._refreshed_version = now, version

    def refusal(self, regex: str, topics: frozenset[str], max_record_bytes: int) -> str | None:
        """Why a regular expression cannot match these topics now; None if it can.

        Args:
            regex: the expression.
            topics: that it matches.
            max_record_bytes: of a record with their names.
        """
        known = self.resolved.get(regex)
        before = _NOTHING if known is None else known.topics
        if sum(map(len, topics)) + 2 * len(topics) > max_record_bytes:
            return f"the names of {len(topics)} topics are larger than a record allows"
        if len(topics) > MAX_TOPICS or len(topics | (self._matched.keys() - before)) > MAX_TOPICS:
            return f"the group would match more than {MAX_TOPICS} different topics"
        others = self._matches - len(before)
        if len(topics) + others > MAX_NAMES:
            return (
                f"it matches {len(topics)} topics, and the others of the group {others}: a group may have {MAX_NAMES}"
                " matches in all"
            )
        return None

    def fails_anew(self, regex: str, reason: str) -> bool:
        """Whether this is news: an expression that cannot be taken over is tried again, every ten seconds."""
        if self._failed.get(regex) == reason:
            return False
        self._failed[regex] = reason
        return True
