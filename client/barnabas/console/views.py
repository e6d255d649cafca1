"""Groups of any cluster as JSON, in the shape of the broker's endpoint. Pure.

Values that only the coordinator knows, such as a member's last heartbeat, are None.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas_broker.http.health import health
from barnabas_broker.http.rates import UNKNOWN, Rates
from barnabas_broker.http.samples import Age
from barnabas_client.admin.types import GroupDescription, GroupListing, MemberDescription
from barnabas_client.structs import TopicPartition
from barnabas_explain.doctor import Diagnosis
from barnabas_explain.storm_score import FLAPPING, Score

#: States in which no rebalance goes on.
_CALM: Final = ("Stable", "Empty", "Dead", "")
#: Maximum number of groups that are watched; beyond that those that were seen least recently are dropped.
_MOST_GROUPS: Final = 50_000


class Position(NamedTuple):
    """A group's position in a partition.

    Attributes:
        partition: the partition.
        committed: the committed offset; None if there is none.
        end: the high watermark; None if it is not known.
        stable: the last stable offset; None likewise.
    """

    partition: TopicPartition
    committed: int | None
    end: int | None
    stable: int | None

    @property
    def lag(self) -> int | None:
        """Records that are not consumed; None if one of the two offsets is not known."""
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)

    @property
    def unstable_lag(self) -> int | None:
        """Records of the lag behind the beginning of an open transaction; None if that is not known."""
        if self.committed is None or self.end is None or self.stable is None:
            return None
        return max(self.end - max(self.stable, self.committed), 0)


class _Seen:
    """A group as it was seen: since when it rebalances, its committed offsets, and since when these are the same."""

    __slots__ = ("committed", "rebalancing", "unchanged")

    def __init__(self) -> None:
        self.rebalancing: float | None = None
        self.committed: int | None = None
        self.unchanged = 0.0


class Observed(NamedTuple):
    """Findings from several looks at a group.

    Attributes:
        rebalancing: for how many seconds it has rebalanced; None if it does not.
        since_commit: for how many seconds nothing was committed; None if that is not known.
        age: of its oldest record that is not consumed; None if that is not known.
        rates: how fast it consumes, and how fast what it reads grows.
        flapping: whether it is in a rebalance storm.
        storm: its storm score; None if its events are not known.
        findings: what is wrong with it, worst first, as far as it was examined.
    """

    rebalancing: float | None = None
    since_commit: float | None = None
    age: Age | None = None
    rates: Rates = UNKNOWN
    flapping: bool = False
    storm: Score | None = None
    findings: Sequence[Diagnosis] = ()


class Observations:
    """Compares several looks at groups. Durations begin with the first look: they are lower bounds."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, _Seen] = OrderedDict()

    def look(self, group: str, state: str, positions: Iterable[Position], now: float) -> Observed:
        """Take note of a group as it is; `now` is a monotonic time in seconds."""
        seen = self._groups.setdefault(group, _Seen())
        self._groups.move_to_end(group)
        if len(self._groups) > _MOST_GROUPS:
            self._groups.popitem(last=False)
        if state in _CALM:
            seen.rebalancing = None
        elif seen.rebalancing is None:
            seen.rebalancing = now
        committed = hash(tuple((each.partition, each.committed) for each in positions if each.committed is not None))
        if committed != seen.committed:
            seen.committed, seen.unchanged = committed, now
        return Observed(None if seen.rebalancing is None else now - seen.rebalancing, now - seen.unchanged)


def summary(
    listed: GroupListing,
    described: GroupDescription | None,
    positions: Sequence[Position],
    observed: Observed,
    *,
    generation: int | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    """A row of ``/groups``.

    Args:
        listed: the group in the list of groups.
        described: the group; None if it cannot be described.
        positions: in its partitions.
        observed: what several looks tell.
        generation: of a classic group, if it is known.
        error: why something is not known of it.
    """
    if described is None:
        head = {
            "group": listed.group_id,
            "state": listed.state,
            "generation": generation,
            "type": listed.type or "classic",
            "protocol_type": listed.protocol_type,
            "protocol": None,
        }
    else:
        head = _head(described, generation)
    return {
        **head,
        "members": None if described is None else len(described.members),
        **_judged(described, positions, observed, error),
    }


def _judged(
    described: GroupDescription | None, positions: Sequence[Position], observed: Observed, error: str | None
) -> dict[str, Any]:
    """The lag and the rates of a group, and its health."""
    lag, unstable = total(each.lag for each in positions), total(each.unstable_lag for each in positions)
    # Of the newest sample; without lag it is 0, also if the sample is older than the commit.
    age = observed.age if lag else None if lag is None else Age(0, True)
    storm = observed.storm
    status, reason = "unknown", error or ""
    if described is not None:
        judged = health(
            members=len(described.members),
            lag=lag,
            unstable_lag=unstable,
            rebalancing=observed.rebalancing,
            since_commit=observed.since_commit,
            flapping=observed.flapping or (storm is not None and storm.value >= FLAPPING),
            storm="" if storm is None else storm.text,
            oldest=None if age is None else age.ms / 1000,
        )
        if error is None or judged.status != "ok":
            status, reason = judged
    return {
        "lag": lag,
        "unstable_lag": unstable,
        "lag_ms": None if age is None else age.ms,
        "lag_ms_exact": age is None or age.exact,
        **observed.rates.as_data(),
        "health": status,
        "health_reason": reason,
        "storm_score": None if storm is None else storm.value,
        "findings": [each.as_data() for each in observed.findings],
    }


def one_group(
    described: GroupDescription, positions: Sequence[Position], observed: Observed, *, generation: int | None
) -> dict[str, Any]:
    """``/groups/{id}``: a group with its members and offsets.

    Args:
        described: the group.
        positions: in its partitions.
        observed: what several looks tell.
        generation: of a classic group, if it is known.
    """
    owners = {tp: member.member_id for member in described.members for tp in member.partitions}
    broker = described.coordinator
    return {
        **_head(described, generation),
        "assignment_epoch": described.assignment_epoch,
        "seconds_in_state": None if observed.rebalancing is None else round(observed.rebalancing, 3),
        "coordinator": None if broker is None else {"node_id": broker.node_id},
        **_judged(described, positions, observed, None),
        "storm": None if observed.storm is None else observed.storm.as_data(),
        "members": [_member(each) for each in described.members],
        "offsets": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "current_offset": each.committed,
                "log_end_offset": each.end,
                "last_stable_offset": each.stable,
                "lag": each.lag,
                "unstable_lag": each.unstable_lag,
                "member_id": owners.get(each.partition),
                "committed_ms": None,
                "metadata": None,
            }
            for each in positions
        ],
    }


def positions_of(
    described: GroupDescription | None,
    committed: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, int],
    stables: Mapping[TopicPartition, int],
) -> list[Position]:
    """The positions of a group, in every partition with a committed offset or an owner, in order."""
    owned = () if described is None else (tp for member in described.members for tp in member.partitions)
    partitions = sorted({*committed, *owned})
    return [Position(tp, committed.get(tp), ends.get(tp), stables.get(tp)) for tp in partitions]


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum of the numbers that are known; None if none is."""
    known = [each for each in numbers if each is not None]
    return sum(known) if known else None


def _head(described: GroupDescription, generation: int | None) -> dict[str, Any]:
    consumer = described.epoch is not None
    return {
        "group": described.group_id,
        "state": described.state,
        "generation": described.epoch if consumer else generation,
        "type": "consumer" if consumer else "classic",
        "protocol_type": described.protocol_type or None,
        "protocol": described.protocol or None,
    }


def _member(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "member_epoch": member.epoch,
        "heard_ago_ms": None,
        "topics": sorted(member.topics),
        "assignment": _by_topic(member.partitions),
        "revoking": _by_topic(member.to_revoke),
        "target": None if member.target is None else _by_topic(member.target),
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return found
