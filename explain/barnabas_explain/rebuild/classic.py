"""Compares the generations of a classic group, which are its records in ``__consumer_offsets``. Pure."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas_explain.catalog import (
    NOT_RECORDED,
    UNKNOWN_GENERATION,
    Between,
    GroupDeleted,
    GroupEmpty,
    HistoryBegan,
    MemberEvent,
    MemberGone,
    MemberJoined,
    MemberRejoined,
    MemberReplaced,
    RebalanceOver,
    RebalanceStarted,
    SubscriptionChanged,
    TopicChanged,
)
from barnabas_explain.members import MOST_MEMBERS, Partition, Pause, moves_of
from barnabas_explain.rebuild.history import NOTHING, History, RebuiltMember, listed
from barnabas_protocol.codec import decode
from barnabas_protocol.consumer_protocol import ConsumerProtocolSubscription
from barnabas_protocol.coordinator_records import GroupMetadataValue, MemberMetadata
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.subscriptions import CONSUMER, read_assignment, read_topics

_INT16: Final = struct.Struct(">h")
#: The newest version of a subscription; a reader treats a newer one as this one.
_NEWEST_SUBSCRIPTION: Final = 3
#: A member may have been removed so much earlier than its record says: brokers read the clock for each separately.
_SLACK_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of a classic group.

    Attributes:
        number: the generation, -1 if it is not known.
        time: when its assignment was recorded.
        joined: when all its members had joined; None if that is not known.
        members: by member id.
        is_consumer: whether the members are consumers.
        protocol: the name of the assignor.
    """

    number: int
    time: int
    joined: int | None
    members: Mapping[str, RebuiltMember]
    is_consumer: bool
    protocol: str = ""

    @property
    def partitions(self) -> frozenset[Partition]:
        return frozenset(each for member in self.members.values() for each in member.partitions)


class GenerationHistory:
    """Compares the generations of a classic group."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.generation: Generation | None = None
        #: How many partitions of a topic were ever assigned, to see that it has grown.
        self._known: dict[str, int] = {}
        #: Members that gave up partitions which no member got.
        self._revoked: list[RebuiltMember] = []

    def record(self, value: GroupMetadataValue | None) -> None:
        """A record of the group, or its tombstone."""
        history, before = self._history, self.generation
        holes = history.take_holes()
        if value is None:
            removed, history.removed = history.removed, 0
            history.flush_commits()
            history.emit(GroupDeleted, offsets=removed, inferred=True)
            self.generation = None
            self._revoked = []
            return
        joined = value.current_state_timestamp
        after = before.time if before is not None else 0
        self.next(
            Generation(
                value.generation,
                history.now,
                joined if after <= joined <= history.now and joined > 0 else None,
                {one.member_id: _classic_member(one, value.protocol_type == CONSUMER) for one in value.members},
                value.protocol_type == CONSUMER,
                value.protocol or "",
            ),
            holes,
        )

    def next(self, new: Generation, holes: int) -> None:
        """Compare a generation with the one before.

        Args:
            new: the generation.
            holes: the number of records before it that are missing or cannot be read.
        """
        history, before = self._history, self.generation
        if before is not None and new.number < before.number:
            history.flush_commits()
            history.gap("went_back", before=before.number, now=new.number)
            before = None
        if before is None and new.number in (0, 1):
            # Nothing is before generation 1, so nothing is missing.
            before = Generation(0, 0, None, {}, new.is_consumer)
        history.generation = new.number if before is None else before.number
        self.generation = new
        if before is None:
            self._begin(new)
        elif new.number > before.number or new.number == UNKNOWN_GENERATION:
            self._rebalance(before, new, holes)
        else:
            self._rewritten(before, new)
        history.generation = new.number

    def _begin(self, new: Generation) -> None:
        history = self._history
        history.flush_commits()
        history.emit(HistoryBegan, members=len(new.members))
        for name in new.partitions:
            history.assigned(name, new.time, new.time)
        self._count(new)

    def _rewritten(self, before: Generation, new: Generation) -> None:
        """The same generation again: a static member came back without a rebalance, or nothing has changed."""
        gone = {each.instance_id: each for each in before.members.values() if each.member_id not in new.members}
        for member in new.members.values():
            old = gone.get(member.instance_id) if member.instance_id else None
            if member.member_id not in before.members and old is not None:
                self._history.emit(MemberReplaced, member=member.identity(), old_member_id=old.member_id)

    def _rebalance(self, before: Generation, new: Generation, holes: int) -> None:
        history = self._history
        history.flush_commits()
        skipped = new.number - before.number - 1 if new.number > 0 else 0
        if skipped > 0:
            kind = "compacted" if holes else "not_completed"
            history.gap(kind, first=before.number + 1, last=new.number - 1, **({"records": holes} if holes else {}))
        start = before.time or None
        joined = new.time if new.joined is None else new.joined
        triggers = self._triggers(before, new, (start, joined))
        for event in triggers:
            history.events.append(event)
        self._started(before, new, triggers, skipped > 0, (start, joined))
        pauses = self._move(before, new, joined)
        if new.members:
            data: dict[str, Any] = {"members": len(new.members)}
            if new.joined is not None:
                data["sync_took_ms"] = new.time - new.joined
            if new.is_consumer:
                had = {each.member_id: each.partitions for each in before.members.values()}
                has = {each.member_id: each.partitions for each in new.members.values()}
                identities = {
                    each.member_id: each.identity() for each in (*before.members.values(), *new.members.values())
                }
                data.update(moves=moves_of(identities, had, has), **listed(pauses))
            history.emit(RebalanceOver, generation=new.number, **data)
        else:
            history.emit(GroupEmpty, generation=new.number)

    def _triggers(self, before: Generation, new: Generation, between: Between) -> list[MemberEvent]:
        """The changes of the members between two generations; each may have caused the rebalance."""
        history, upper = self._history, between[1]
        out: list[MemberEvent] = []
        instances = {each.instance_id: each for each in before.members.values() if each.instance_id}
        replaced: set[str] = set()
        for member in new.members.values():
            known = before.members.get(member.member_id)
            if known is not None:
                if known.topics != member.topics and known.topics is not None and member.topics is not None:
                    added, removed = sorted(member.topics - known.topics), sorted(known.topics - member.topics)
                    changed: dict[str, Any] = {"added": tuple(added), "removed": tuple(removed), "between": between}
                    out.append(history.event(SubscriptionChanged, upper, member=member.identity(), **changed))
                continue
            old = instances.get(member.instance_id or "")
            if old is not None and old.member_id not in new.members:
                replaced.add(old.member_id)
                data: dict[str, Any] = {
                    "member": member.identity(),
                    "old_member_id": old.member_id,
                    "between": between,
                }
                out.append(history.event(MemberReplaced, upper, **data))
            else:
                out.append(history.event(MemberJoined, upper, member=member.identity(), between=between))
        for member in before.members.values():
            if member.member_id not in new.members and member.member_id not in replaced:
                out.append(self._gone(member, before, between))
        return out

    def _gone(self, member: RebuiltMember, before: Generation, between: Between) -> MemberGone:
        """A member is gone: when it was there for the last time, and what can have happened to it."""
        start, upper = between
        last = self._history.last_commit(member.partitions, start or 0)
        possible = ["left"]
        end = upper or 0
        if start is None or start > end:
            start = None
            possible = ["left", "expired", "not_rejoined"]
        else:
            if last is not None and last.time > end:
                last = None
            heard = max(before.joined or before.time, 0 if last is None else last.time)
            if member.session_ms is None or end - heard + _SLACK_MS >= member.session_ms:
                possible.append("expired")
            longest = max((each.rebalance_ms or 0 for each in before.members.values()), default=0)
            if member.rebalance_ms is None or end - before.time + _SLACK_MS >= longest:
                possible.append("not_rejoined")
        data: dict[str, Any] = {
            "last_commit": last,
            "session_ms": member.session_ms,
            "rebalance_timeout_ms": member.rebalance_ms,
        }
        return self._history.event(
            MemberGone,
            upper,
            member=member.identity(),
            inferred=True,
            possible=tuple(possible),
            between=(start if last is None else last.time, upper),
            **{name: value for name, value in data.items() if value is not None},
        )

    def _started(
        self,
        before: Generation,
        new: Generation,
        triggers: list[MemberEvent],
        skipped: bool,
        between: Between,
    ) -> None:
        """Add the start of the rebalance, with its cause if there can be only one."""
        by = tuple(event.member for event in triggers[:MOST_MEMBERS])
        cause, reason = NOT_RECORDED, "the same members joined again; why they did is not recorded"
        if triggers:
            reason = "which of these came first is not recorded"
            if len({event.type for event in triggers}) == 1 and not skipped:
                cause = triggers[0].type
        elif grown := self._grown(new):
            history = self._history
            for topic, count, now in grown:
                topic_changed: dict[str, Any] = {"topic": topic, "before": count, "partitions": now, "inferred": True}
                history.emit(TopicChanged, between[1], **topic_changed)
            topic, count, now = grown[0]
            cause = TopicChanged.type
            reason = f"topic {topic} has {now} partitions that are assigned, {count} before"
        elif self._revoked and not skipped:
            by = tuple(each.identity() for each in self._revoked[:MOST_MEMBERS])
            cause = MemberRejoined.type
            reason = (
                f"partitions that were revoked in generation {before.number} are assigned"
                " (the second rebalance of cooperative rebalancing)"
            )
        data: dict[str, Any] = {"cause": cause, "by": by, "reason": reason, "between": between, "inferred": True}
        self._history.emit(RebalanceStarted, between[1], **data)

    def _grown(self, new: Generation) -> list[tuple[str, int, int]]:
        """Topics with more assigned partitions than ever before: name, number before, number now."""
        counts = _counts(new.partitions)
        return [
            (topic, self._known[topic], count)
            for topic, count in counts.items()
            if self._known.get(topic, count) < count
        ]

    def _count(self, new: Generation) -> None:
        for topic, count in _counts(new.partitions).items():
            self._known[topic] = max(self._known.get(topic, 0), count)

    def _move(self, before: Generation, new: Generation, joined: int) -> list[Pause]:
        """Give partitions to their owners; the pauses of those that had none meanwhile."""
        history, has = self._history, new.partitions
        pauses = []
        for member in new.members.values():
            old = before.members.get(member.member_id)
            kept = member.kept & old.partitions if old is not None else NOTHING
            for name in member.partitions:
                # A partition that the member kept during a cooperative rebalance was never without an owner.
                pause = history.assigned(name, new.time, new.time if name in kept else joined)
                if pause is not None and name not in kept:
                    pauses.append(pause)
        self._revoked = []
        for member in before.members.values():
            dropped = member.partitions - has
            now = new.members.get(member.member_id)
            if dropped and now is not None:
                self._revoked.append(member)
            for name in dropped:
                # With cooperative rebalancing a member learns only from the new generation what it has to revoke.
                kept_until_now = now is not None and name in now.kept
                owned = history.by_name.get(name)
                since = before.time if owned is None or owned.owned_at is None else owned.owned_at
                if kept_until_now:
                    if owned is not None:
                        owned.owned_at = new.time
                else:
                    history.lost(name, since, joined)
        self._count(new)
        return pauses


def _counts(partitions: Iterable[Partition]) -> dict[str, int]:
    """The smallest number of partitions that each topic has."""
    counts: dict[str, int] = {}
    for topic, partition in partitions:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts


def _classic_member(one: MemberMetadata, is_consumer: bool) -> RebuiltMember:
    subscription, assignment = bytes(one.subscription), bytes(one.assignment)
    topics = read_topics(subscription) if is_consumer else None
    assigned = (read_assignment(assignment) or {}) if is_consumer else {}
    return RebuiltMember(
        one.member_id,
        one.group_instance_id,
        one.client_id,
        one.client_host,
        one.session_timeout,
        one.rebalance_timeout if one.rebalance_timeout >= 0 else None,
        None if topics is None else frozenset(topics),
        frozenset((topic, partition) for topic, partitions in assigned.items() for partition in partitions),
        _kept(subscription) if is_consumer else NOTHING,
    )


def _kept(subscription: bytes) -> frozenset[Partition]:
    """The partitions that a member owned when it joined: nothing with eager rebalancing (KIP-429)."""
    try:
        version = min(int(_INT16.unpack_from(subscription)[0]), _NEWEST_SUBSCRIPTION)
        if version < 1:
            return NOTHING
        read = decode(ConsumerProtocolSubscription, version, subscription[2:], trailing=True)
    except (struct.error, DecodeError):
        return NOTHING
    return frozenset((each.topic, partition) for each in read.owned_partitions for partition in each.partitions)
