"""Follows a group of the consumer protocol (KIP-848), whose records say more than those of classic groups. Pure."""

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from barnabas_explain.catalog import (
    NOT_RECORDED,
    EpochBumped,
    GroupDeleted,
    GroupEmpty,
    GroupEvent,
    GroupReconciled,
    HistoryBegan,
    MemberAway,
    MemberEvent,
    MemberGone,
    MemberJoined,
    MemberReplaced,
    MemberRevoked,
    MemberRevoking,
    RegexResolved,
    SubscriptionChanged,
    TargetAssigned,
    TopicChanged,
)
from barnabas_explain.members import MOST_MEMBERS, Partition, Pause, by_topic, moves_of
from barnabas_explain.rebuild.history import NOTHING, History, RebuiltMember, listed
from barnabas_protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    MemberState,
)

#: Members that are remembered; others are left out, with a gap.
_MOST_CONSUMERS: Final = 100_000
#: Topics of a regular expression that an event lists.
_MOST_TOPICS: Final = 20
#: What a static member that leaves for a while has as its epoch (KIP-848).
_AWAY_EPOCH: Final = -2
#: A group whose first known epoch is later has a past. Kafka's groups begin with epoch 2.
_FIRST_EPOCH: Final = 2


@dataclass(slots=True)
class _Consumer:
    """A member of a group of the consumer protocol.

    Attributes:
        member: what identifies it, its subscription and its assignment.
        regex: the regular expression that it subscribes with.
        known: whether its metadata was read, not only its assignment.
        epoch: its member epoch, None if unknown.
        state: of the member, as a number; see ``MemberState`` of Kafka.
        pending: partitions that it has to revoke.
        pending_since: when it had to.
        target: its target assignment.
        at: when its newest record was written.
    """

    member: RebuiltMember
    regex: str = ""
    known: bool = False
    epoch: int | None = None
    state: int = MemberState.STABLE.value
    pending: frozenset[Partition] = NOTHING
    pending_since: int = 0
    target: frozenset[Partition] = NOTHING
    at: int = 0

    @property
    def owned(self) -> frozenset[Partition]:
        return self.member.partitions | self.pending


@dataclass(slots=True)
class EpochHistory:
    """Follows a group of the consumer protocol (KIP-848), whose records say more than those of classic groups."""

    history: History
    topic_name: Callable[[bytes], str | None]
    epoch: int | None = None
    members: dict[str, _Consumer] = field(default_factory=dict)
    #: Whether all members are known, because the group's first epoch was read.
    complete: bool = False
    _hash: int = 0
    _target_epoch: int | None = None
    _bumped_at: int = 0
    _reconciled: bool = True
    _triggers: list[GroupEvent] = field(default_factory=list)
    _regexes: dict[str, frozenset[str]] = field(default_factory=dict)
    #: The targets that changed since the last epoch of the target: what they were before.
    _targets_before: dict[str, frozenset[Partition]] = field(default_factory=dict)
    _pauses: list[Pause] = field(default_factory=list)
    #: A static member whose records were removed: another one with its instance id may follow at once.
    _held: tuple[int, _Consumer] | None = None

    @property
    def reconciling(self) -> bool:
        """Whether members are known not to own their targets yet."""
        return self.epoch is not None and not self._reconciled

    def record(self, key: Any, value: Any) -> None:
        """A record of the group, or a tombstone."""
        history = self.history
        if self._held is not None and self._held[0] != history.now:
            self.release()
        match key:
            case ConsumerGroupMetadataKey():
                self.release()
                self._epoch(value)
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                self._metadata(member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self._target_complete(value)
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                self._target(member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                self._current(member_id, value)
            case ConsumerGroupRegularExpressionKey(regular_expression=regex):
                self._regex(regex, value)

    def release(self) -> None:
        """No other member took the place of a static member that is gone."""
        if self._held is not None:
            at, consumer = self._held
            self._held = None
            self._gone(at, consumer)

    def _epoch(self, value: ConsumerGroupMetadataValue | None) -> None:
        history, before = self.history, self.epoch
        holes = history.take_holes()
        if value is None:
            removed, history.removed = history.removed, 0
            history.flush_commits()
            self.flush_triggers()
            history.emit(GroupDeleted, offsets=removed, inferred=True)
            self.epoch = self._target_epoch = None
            self.members.clear()
            self.complete = False
            return
        self.epoch = value.epoch
        changed_topics = before is not None and value.metadata_hash != self._hash
        self._hash = value.metadata_hash
        if before is None:
            self.complete = value.epoch <= _FIRST_EPOCH
            history.generation = value.epoch
            if not self.complete:
                history.flush_commits()
                history.emit(HistoryBegan)
        elif value.epoch < before:
            history.flush_commits()
            history.gap("went_back", before=before, now=value.epoch)
        elif value.epoch == before:
            return
        elif value.epoch > before + 1:
            history.gap(
                "compacted" if holes else "not_completed", first=before + 1, last=value.epoch - 1, records=holes
            )
        history.flush_commits()
        history.generation = value.epoch
        self._bump(changed_topics)
        self._bumped_at = history.now
        self._reconciled = False
        self._pauses = []
        if not self.members and (self.complete or before is not None):
            history.emit(GroupEmpty)
            self.complete = True
            self._reconciled = True

    def _bump(self, changed_topics: bool) -> None:
        """Add the epoch with its cause: the change whose record is just before."""
        triggers, history = self._triggers, self.history
        cause, by = NOT_RECORDED, []
        if triggers:
            cause = triggers[-1].type
            by = [each.member for each in triggers if each.type == cause and isinstance(each, MemberEvent)]
        elif changed_topics:
            cause = TopicChanged.type
        self.flush_triggers()
        data = {"cause": cause, "by": tuple(by[-MOST_MEMBERS:]), "inferred": cause == NOT_RECORDED, **self._size()}
        history.emit(EpochBumped, **data)

    def _size(self) -> dict[str, Any]:
        """The number of members, if all of them are known."""
        return {"members": len(self.members)} if self.complete else {}

    def flush_triggers(self) -> None:
        """Add the changes that no epoch has followed yet."""
        generation = self.history.generation
        self.history.events += [event.changed(generation=generation) for event in self._triggers]
        self._triggers = []

    def _consumer(self, member_id: str) -> _Consumer | None:
        consumer = self.members.get(member_id)
        if consumer is None:
            if len(self.members) >= _MOST_CONSUMERS:
                self.history.gap("too_many", what="members", most=_MOST_CONSUMERS)
                return None
            consumer = self.members[member_id] = _Consumer(RebuiltMember(member_id), at=self.history.now)
        return consumer

    def _metadata(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        history = self.history
        if value is None:
            consumer = self.members.pop(member_id, None)
            if consumer is not None and consumer.member.instance_id:
                self.release()
                self._held = history.now, consumer
            elif consumer is not None:
                self._gone(history.now, consumer)
            return
        is_new = member_id not in self.members
        consumer = self._consumer(member_id)
        if consumer is None:
            return
        classic = value.classic_member_metadata
        before, was_known = consumer.member, consumer.known
        topics = frozenset(value.subscribed_topic_names)
        member = consumer.member = RebuiltMember(
            member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            classic.session_timeout_ms if classic is not None and classic.supported_protocols else None,
            value.rebalance_timeout_ms if value.rebalance_timeout_ms >= 0 else None,
            topics,
            before.partitions,
        )
        regex, before_regex = value.subscribed_topic_regex or "", consumer.regex
        consumer.regex, consumer.known = regex, True
        held = self._held
        if is_new and held is not None and member.instance_id == held[1].member.instance_id:
            self._held = None
            self._replace(held[1], consumer)
        elif is_new:
            data: dict[str, Any] = {} if self.complete or self.epoch is None else {"inferred": True}
            self._triggers.append(history.event(MemberJoined, member=member.identity(), **data))
        elif was_known and (before.topics != topics or before_regex != regex):
            known = before.topics or frozenset()
            data = {"added": tuple(sorted(topics - known)), "removed": tuple(sorted(known - topics))}
            data |= {"regex": regex} if regex != before_regex else {}
            self._triggers.append(history.event(SubscriptionChanged, member=member.identity(), **data))

    def _replace(self, old: _Consumer, new: _Consumer) -> None:
        """A static member came back with another member id, and takes over what its predecessor had."""
        history = self.history
        for name in old.owned:
            history.lost(name, old.at, history.now)
        new.target = old.target
        self._reconciled = self.epoch is None
        history.emit(MemberReplaced, member=new.member.identity(), old_member_id=old.member.member_id)

    def _gone(self, at: int, consumer: _Consumer) -> None:
        """A member's records were removed, at that time: it left, or the coordinator removed it."""
        history, member = self.history, consumer.member
        last = history.last_commit(consumer.owned, 0)
        data: dict[str, Any] = {"last_commit": last} if last is not None else {}
        if member.rebalance_ms is not None:
            data["rebalance_timeout_ms"] = member.rebalance_ms
        if consumer.pending:
            data.update(pending=by_topic(consumer.pending), pending_ms=max(at - consumer.pending_since, 0))
        possible = ["left", "expired"]
        if consumer.pending and at - consumer.pending_since >= (member.rebalance_ms or 0):
            possible.append("not_revoked")
        event = history.event(
            MemberGone,
            at,
            member=member.identity(),
            inferred=True,
            possible=tuple(possible),
            between=(at, at),
            **data,
        )
        self._triggers.append(event)
        for name in consumer.owned:
            history.lost(name, consumer.at, at)

    def _target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            if member_id in self.members:
                self.members[member_id].target = NOTHING
            return
        consumer = self._consumer(member_id)
        if consumer is not None:
            self._targets_before.setdefault(member_id, consumer.target)
            consumer.target = self._names(value.topic_partitions)

    def _target_complete(self, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        before, self._targets_before = self._targets_before, {}
        self._target_epoch = None if value is None else value.assignment_epoch
        if value is None or self.epoch is None or not (before or self.members):
            return
        changed = {each: self.members[each] for each in before if each in self.members}
        identities = {each: consumer.member.identity() for each, consumer in changed.items()}
        moves = moves_of(identities, before, {each: consumer.target for each, consumer in changed.items()})
        data: dict[str, Any] = {"moves": moves, "inferred": not self.complete, **self._size()}
        self.history.emit(TargetAssigned, took_ms=max(self.history.now - self._bumped_at, 0), **data)

    def _current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        history, now = self.history, self.history.now
        if value is None:
            return  # the metadata of the member is removed as well
        consumer = self._consumer(member_id)
        if consumer is None:
            return
        owned, pending_before = consumer.owned, consumer.pending
        assigned = self._names(value.assigned_partitions)
        pending = self._names(value.partitions_pending_revocation)
        if value.member_epoch == _AWAY_EPOCH:
            history.emit(MemberAway, member=consumer.member.identity())
            for name in owned:
                history.lost(name, consumer.at, now)
        consumer.epoch, consumer.state = value.member_epoch, value.state
        consumer.member = replace(consumer.member, partitions=assigned)
        consumer.pending = pending
        if value.member_epoch != _AWAY_EPOCH:
            for name in (assigned | pending) - owned:
                pause = history.assigned(name, now, now)
                if pause is not None:
                    self._pauses.append(pause)
        revoked = pending_before - pending
        for name in owned - assigned - pending:
            history.lost(name, consumer.pending_since if name in revoked else consumer.at, now)
        if revoked and self.epoch is not None:
            data: dict[str, Any] = {"partitions": by_topic(revoked), "waited_ms": max(now - consumer.pending_since, 0)}
            history.emit(MemberRevoked, member=consumer.member.identity(), **data)
        if pending - pending_before and self.epoch is not None:
            consumer.pending_since = now
            data = {"partitions": by_topic(pending)}
            if consumer.member.rebalance_ms is not None:
                data["timeout_ms"] = consumer.member.rebalance_ms
            history.emit(MemberRevoking, member=consumer.member.identity(), **data)
        consumer.at = now
        self._check_reconciled()

    def _check_reconciled(self) -> None:
        if self._reconciled or self.epoch is None or self._target_epoch != self.epoch:
            return
        for consumer in self.members.values():
            done = consumer.epoch in (self.epoch, _AWAY_EPOCH) and consumer.state == MemberState.STABLE.value
            if not done or consumer.pending:
                return
        self._reconciled = True
        history = self.history
        data: dict[str, Any] = {"took_ms": max(history.now - self._bumped_at, 0), **listed(self._pauses)}
        self._pauses = []
        history.emit(GroupReconciled, members=len(self.members), inferred=not self.complete, **data)

    def _regex(self, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        before = self._regexes.get(regex, frozenset())
        topics = frozenset() if value is None else frozenset(value.topics)
        if value is None:
            self._regexes.pop(regex, None)
            return
        if regex not in self._regexes and len(self._regexes) >= _MOST_CONSUMERS:
            self.history.gap("too_many", what="regular expressions", most=_MOST_CONSUMERS)
            return
        self._regexes[regex] = topics
        if topics != before:
            data: dict[str, Any] = {
                "added": tuple(sorted(topics - before)[:_MOST_TOPICS]),
                "removed": tuple(sorted(before - topics)[:_MOST_TOPICS]),
            }
            self._triggers.append(self.history.event(RegexResolved, regex=regex, topics=len(topics), **data))

    def _names(self, topics: Iterable[Any]) -> frozenset[Partition]:
        """Partitions with the names of their topics; a topic that is not known has its id."""
        names: list[Partition] = []
        for each in topics:
            name = self.topic_name(each.topic_id) or _shown_id(each.topic_id)
            names += ((name, partition) for partition in each.partitions)
        return frozenset(names)


def _shown_id(topic_id: bytes) -> str:
    """A topic id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
