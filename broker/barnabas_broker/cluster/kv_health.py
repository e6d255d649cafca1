"""How well etcd answers, and what is not possible while it does not: :class:`KvHealth`, which is pure, and
:class:`WatchedKv`, which keeps it up to date."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from barnabas_broker.cluster.kv import (
    Created,
    Delete,
    Holds,
    KeyChanges,
    KeyRange,
    KeyValueStore,
    KvCompacted,
    KvError,
    KvUnavailable,
    Lease,
    Put,
    TxnOutcome,
)
from barnabas_broker.conditions import Condition, ConditionName
from barnabas_broker.logs import logger

log = logger("cluster")

T = TypeVar("T")

#: Requests without an answer in a row after which etcd counts as unreachable.
_UNREACHABLE: Final = 2
#: Seconds after which an answer is slow, and how many requests in a row have to be.
SLOW_SECONDS: Final = 0.25
_SLOW_ANSWERS: Final = 3
#: Seconds between looks at etcd's alarms.
ALARM_SECONDS: Final = 5.0
_IMPOSSIBLE: Final = (
    "No leader can change, also after a failure; no ISR, topic, configuration, user or ACL can change; no broker can "
    "join"
)
#: What to do, by a word in etcd's text.
_REMEDIES: Final = (
    (
        "database space exceeded",
        "etcd has no space (alarm NOSPACE). To do: `etcdctl compact REVISION` with the revision that `etcdctl endpoint "
        "status -w json` shows, `etcdctl defrag --cluster`, `etcdctl alarm disarm`; then set --auto-compaction-mode "
        "and --auto-compaction-retention, or a larger --quota-backend-bytes",
    ),
    (
        "corrupt cluster",
        "etcd's members differ (alarm CORRUPT). To do: find the one that differs with `etcdctl endpoint hashkv "
        "--cluster`, replace it with `etcdctl member remove` and `etcdctl member add`, then `etcdctl alarm disarm`",
    ),
    (
        "permission denied",
        "etcd's user may not write. To do: grant the role of etcd.user readwrite on the prefix with `etcdctl role "
        "grant-permission ROLE readwrite PREFIX --prefix`",
    ),
    ("auth", "etcd does not accept the login. To do: check etcd.user and etcd.password.file"),
    ("user name", "etcd asks for a login. To do: set etcd.user and etcd.password.file"),
)
_ALARMS: Final = {"NOSPACE": "database space exceeded", "CORRUPT": "corrupt cluster"}


class KvHealth:
    """Health of etcd, from the answers to this broker's requests."""

    def __init__(self) -> None:
        self._failed = 0
        self._reason = ""
        #: Seconds of the last answers.
        self._took: list[float] = []
        #: Why the last change was refused; "" if it was not.
        self._refused = ""
        self._alarms: frozenset[str] = frozenset()

    def answered(self, took: float | None, *, change: bool) -> None:
        """A request was answered.

        Args:
            took: after how many seconds; None if that says nothing, because the answer is large.
            change: it has changed something.
        """
        self._failed = 0
        if took is not None:
            self._took = [*self._took[1 - _SLOW_ANSWERS :], took]
        if change:
            self._refused = ""

    def unavailable(self, reason: str) -> None:
        """A request was not answered."""
        self._failed += 1
        self._reason = reason

    def refused(self, reason: str, *, change: bool) -> None:
        """A request was refused; `change`: it would have changed something."""
        self._failed = 0
        if change:
            self._refused = reason

    def alarmed(self, alarms: frozenset[str]) -> None:
        """These alarms are raised."""
        if self._alarms and not alarms:
            self._refused = ""  # it may be tried again
        self._alarms = alarms

    @property
    def latency(self) -> float:
        """Seconds that the last answers took at least; 0 before there are some."""
        return min(self._took) if len(self._took) == _SLOW_ANSWERS else 0.0

    def conditions(self) -> Iterable[Condition]:
        """The conditions: what is not possible now."""
        if self._failed >= _UNREACHABLE:
            yield Condition(
                ConditionName.METADATA_UNREACHABLE,
                f"{self._reason}. {_IMPOSSIBLE}; this broker serves until its lease ends. {_remedy(self._reason)}",
                ready=True,
            )
        reasons = [_ALARMS[each] for each in sorted(self._alarms) if each in _ALARMS]
        if reasons or self._refused:
            reason = self._refused or f"etcd has an alarm: {', '.join(sorted(self._alarms))}"
            yield Condition(
                ConditionName.METADATA_READ_ONLY,
                f"etcd refuses changes: {reason}. {_IMPOSSIBLE}; present leaders go on. "
                f"{_remedy(reasons[0] if reasons else self._refused)}",
                ready=True,
            )
        if self.latency >= SLOW_SECONDS:
            yield Condition(
                ConditionName.METADATA_SLOW,
                f"etcd takes {self.latency:.2f} s to answer: failovers and changes of topics take several times as "
                "long. To do: look at the disks and the network of etcd's members (`etcdctl check perf`)",
                ready=True,
            )


def _remedy(reason: str) -> str:
    for word, remedy in _REMEDIES:
        if word in reason:
            return remedy
    return "To do: look at etcd's members with `etcdctl endpoint status --cluster -w table`, and at their logs"


class WatchedKv:
    """A :class:`~barnabas_broker.cluster.kv.KeyValueStore` that notes how another one answers, and logs when something
    becomes impossible, and possible again.

    Args:
        kv: the other one.
        now: a monotonic clock, in seconds.

    Attributes:
        health: what is known.
    """

    def __init__(self, kv: KeyValueStore, now: Callable[[], float]) -> None:
        self.health = KvHealth()
        self._kv = kv
        self._now = now
        self._logged: set[ConditionName] = set()

    async def _noted(self, call: Awaitable[T], *, change: bool = False, timed: bool = True) -> T:
        began = self._now()
        try:
            result = await call
        except KvUnavailable as error:
            self.health.unavailable(str(error))
            self._log()
            raise
        except KvCompacted:
            raise
        except KvError as error:
            self.health.refused(str(error), change=change)
            self._log()
            raise
        self.health.answered(self._now() - began if timed else None, change=change)
        self._log()
        return result

    def _log(self) -> None:
        found = {each.name: each for each in self.health.conditions()}
        for name in found.keys() - self._logged:
            log.error("metadata cannot be changed as usual", condition=name.value, reason=found[name].text)
        for name in self._logged - found.keys():
            log.info("metadata can be changed as usual again", condition=name.value)
        self._logged = set(found)

    async def watch_alarms(self) -> None:
        """Look at etcd's alarms from time to time, until cancelled."""
        while True:
            try:
                self.health.alarmed(await self.alarms())
                self._log()
            except KvError:
                pass  # noted already; some etcd servers refuse this to users
            await asyncio.sleep(ALARM_SECONDS)

    async def range(self, start: str, end: str | None = None, *, revision: int = 0, limit: int = 0) -> KeyRange:
        call = self._kv.range(start, end, revision=revision, limit=limit)
        return await self._noted(call, timed=end is None)

    async def txn(
        self, conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str] = ()
    ) -> TxnOutcome:
        return await self._noted(self._kv.txn(conditions, then, otherwise), change=bool(then))

    async def grant(self, ttl: int) -> Lease:
        return await self._noted(self._kv.grant(ttl), change=True)

    async def keep_alive(self, lease_id: int, patience: float, seconds: float) -> int:
        return await self._noted(self._kv.keep_alive(lease_id, patience, seconds))

    async def alarms(self) -> frozenset[str]:
        return await self._noted(self._kv.alarms())

    async def revoke(self, lease_id: int) -> None:
        await self._noted(self._kv.revoke(lease_id))

    def watch(self, start: str, end: str, after: int) -> AsyncIterator[KeyChanges]:
        return self._kv.watch(start, end, after)

    async def close(self) -> None:
        await self._kv.close()
