"""A model of etcd: keys with revisions, transactions, leases, watches, compaction. Time comes in as an argument.

:class:`EtcdModel` is the server; it executes each request as one step. :class:`ModelKv` is a broker's connection to it
and can inject faults; its `pass_time` determines the time between request, step and response.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

from barnabas_broker.cluster.kv import (
    Created,
    Delete,
    Holds,
    KeyChange,
    KeyChanges,
    KeyEntry,
    KeyRange,
    KvCompacted,
    KvError,
    KvUnavailable,
    Lease,
    Put,
    TxnOutcome,
)

T = TypeVar("T")


@dataclass(slots=True)
class _Held:
    ttl: int
    expires: float
    keys: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Watcher:
    start: str
    end: str
    notify: Callable[[KeyChanges], None]


class EtcdModel:
    """The state of etcd. Times are seconds of one clock; leases expire when `advance` is called."""

    def __init__(self) -> None:
        #: How often a backup was restored: a request to the servers before does not reach the new ones.
        self.restores = 0
        self.revision = 1
        self.entries: dict[str, KeyEntry] = {}
        self.leases: dict[int, _Held] = {}
        self.compacted = 0
        self._lease_of: dict[str, int] = {}
        self._next_lease = 1
        #: Changes by revision, and every past state, for reads at older revisions.
        self._history: list[tuple[int, list[KeyChange]]] = []
        self._past: dict[int, dict[str, KeyEntry]] = {1: {}}
        self._watchers: list[_Watcher] = []

    # Keys

    def range(self, start: str, end: str | None, revision: int, limit: int) -> KeyRange:
        if revision and revision < self.compacted:
            raise KvCompacted(f"revisions before {self.compacted} are no longer kept")
        if revision > self.revision:
            raise KvError("required revision is a future revision")
        entries = self._past[revision] if revision else self.entries
        found = [entries[key] for key in sorted(entries) if key == start or (end is not None and start <= key < end)]
        more = bool(limit) and len(found) > limit
        return KeyRange(found[:limit] if more else found, self.revision, more)

    def txn(
        self, conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str]
    ) -> TxnOutcome:
        if not all(self._holds(condition) for condition in conditions):
            found = {key: self.entries[key] for key in otherwise if key in self.entries}
            return TxnOutcome(False, self.revision, found)
        for operation in then:
            if isinstance(operation, Put) and operation.lease and operation.lease not in self.leases:
                raise KvError("requested lease not found")
        self._apply(then)
        return TxnOutcome(True, self.revision)

    def _holds(self, condition: Created | Holds) -> bool:
        entry = self.entries.get(condition.key)
        if isinstance(condition, Created):
            return (0 if entry is None else entry.created) == condition.revision
        return entry is not None and entry.value == condition.value

    def _apply(self, operations: Sequence[Put | Delete]) -> None:
        revision = self.revision + 1
        changes: list[KeyChange] = []
        for operation in operations:
            if isinstance(operation, Put):
                before = self.entries.get(operation.key)
                created = revision if before is None else before.created
                self._unlease(operation.key)
                self.entries[operation.key] = KeyEntry(
                    operation.key, operation.value, created, revision, operation.lease
                )
                if operation.lease:
                    self._lease_of[operation.key] = operation.lease
                    self.leases[operation.lease].keys.add(operation.key)
                changes.append(KeyChange(operation.key, operation.value, created))
            else:
                last = operation.end
                doomed = [k for k in self.entries if k == operation.key or (last and operation.key <= k < last)]
                for key in doomed:
                    del self.entries[key]
                    self._unlease(key)
                    changes.append(KeyChange(key, None, 0))
        if not changes:
            return
        self.revision = revision
        self._past[revision] = dict(self.entries)
        self._history.append((revision, changes))
        for watcher in list(self._watchers):
            self._notify(watcher, revision, changes)

    def _unlease(self, key: str) -> None:
        lease = self._lease_of.pop(key, None)
        if lease in self.leases:
            self.leases[lease].keys.discard(key)

    # Watches

    @staticmethod
    def _notify(watcher: _Watcher, revision: int, changes: list[KeyChange]) -> None:
        concerned = [change for change in changes if watcher.start <= change.key < watcher.end]
        if concerned:
            watcher.notify(KeyChanges(revision, concerned))

    def watch(self, start: str, end: str, after: int, notify: Callable[[KeyChanges], None]) -> Callable[[], None]:
        """Call `notify` with all changes after revision `after`; return a function that ends the watch."""
        if after + 1 < self.compacted:
            raise KvCompacted(f"revisions before {self.compacted} are no longer kept")
        watcher = _Watcher(start, end, notify)
        for revision, changes in self._history:
            if revision > after:
                self._notify(watcher, revision, changes)
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def compact(self) -> None:
        """Discard all revisions before the current one."""
        self.compacted = self.revision
        self._history = [each for each in self._history if each[0] >= self.compacted]
        self._past = {r: state for r, state in self._past.items() if r >= self.compacted}

    # Backups

    def backup(self) -> Callable[[], None]:
        """Save the present content; returns a function that restores it, as a new server has it at first."""
        revision, entries, lease_of = self.revision, dict(self.entries), dict(self._lease_of)
        leases = {lease_id: (held.ttl, set(held.keys)) for lease_id, held in self.leases.items()}

        def restore() -> None:
            self.restores += 1
            self.revision = self.compacted = revision
            self.entries, self._lease_of = dict(entries), dict(lease_of)
            # Their time begins when the server next looks at them.
            self.leases = {each: _Held(ttl, float("inf"), set(keys)) for each, (ttl, keys) in leases.items()}
            self._past, self._history = {revision: dict(entries)}, []

        return restore

    # Leases

    def expires(self, lease_id: int) -> float | None:
        """Return the time at which a lease expires unless it is renewed."""
        held = self.leases.get(lease_id)
        return None if held is None else held.expires

    def grant(self, now: float, ttl: int) -> Lease:
        lease_id, self._next_lease = self._next_lease, self._next_lease + 1
        self.leases[lease_id] = _Held(ttl, now + ttl)
        return Lease(lease_id, ttl)

    def keep_alive(self, now: float, lease_id: int) -> int:
        held = self.leases.get(lease_id)
        if held is None:
            return 0
        held.expires = now + held.ttl
        return held.ttl

    def revoke(self, lease_id: int) -> None:
        held = self.leases.pop(lease_id, None)
        if held is not None and held.keys:
            self._apply([Delete(key) for key in sorted(held.keys)])

    def advance(self, now: float) -> None:
        """Expire the leases that are due at `now`."""
        for lease_id in [each for each, held in self.leases.items() if held.expires <= now]:
            self.revoke(lease_id)

    def next_expiry(self) -> float | None:
        """Return the time at which the next lease expires."""
        return min((held.expires for held in self.leases.values()), default=None)

    def new_leader(self, now: float) -> None:
        """Elect another etcd member: all leases start again with their full time to live."""
        for held in self.leases.values():
            held.expires = now + held.ttl


class Fault(Enum):
    """Faults of a request."""

    #: The request does not arrive.
    LOST = auto()
    #: The request is executed, but the response does not arrive.
    ANSWER_LOST = auto()


class ModelKv:
    """A broker's connection to the model.

    Args:
        model: the server.
        now: the model's clock, in seconds.
        pass_time: waits for the time that a message takes; by default one iteration of the event loop.
    """

    def __init__(
        self,
        model: EtcdModel,
        now: Callable[[], float],
        pass_time: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
    ) -> None:
        self.model = model
        #: Faults of the next requests, in order.
        self.faults: list[Fault | None] = []
        #: No request arrives.
        self.cut_off = False
        #: Requests arrive, but neither responses nor changes.
        self.deaf = False
        self._now = now
        self._pass_time = pass_time
        self._breaks: set[Callable[[], None]] = set()

    async def _do(self, step: Callable[[], T]) -> T:
        fault = self.faults.pop(0) if self.faults else None
        await self._pass_time()
        if fault is Fault.LOST or self.cut_off:
            raise KvUnavailable("the request did not arrive")
        self.model.advance(self._now())
        result = step()
        await self._pass_time()
        if fault is Fault.ANSWER_LOST or self.cut_off or self.deaf:
            raise KvUnavailable("the answer did not arrive")
        return result

    async def range(self, start: str, end: str | None = None, *, revision: int = 0, limit: int = 0) -> KeyRange:
        return await self._do(lambda: self.model.range(start, end, revision, limit))

    async def txn(
        self, conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str] = ()
    ) -> TxnOutcome:
        return await self._do(lambda: self.model.txn(conditions, then, otherwise))

    async def grant(self, ttl: int) -> Lease:
        return await self._do(lambda: self.model.grant(self._now(), ttl))

    async def keep_alive(self, lease_id: int, patience: float, seconds: float) -> int:
        return await self._do(lambda: self.model.keep_alive(self._now(), lease_id))

    async def alarms(self) -> frozenset[str]:
        return await self._do(frozenset)

    async def revoke(self, lease_id: int) -> None:
        await self._do(lambda: self.model.revoke(lease_id))

    async def watch(self, start: str, end: str, after: int) -> AsyncIterator[KeyChanges]:
        queue: asyncio.Queue[KeyChanges | None] = asyncio.Queue()
        stop = await self._do(lambda: self.model.watch(start, end, after, queue.put_nowait))

        def end_it() -> None:
            queue.put_nowait(None)

        self._breaks.add(end_it)
        try:
            yield KeyChanges(after, ())
            while (changes := await queue.get()) is not None:
                await self._pass_time()
                if self.cut_off or self.deaf:
                    break
                yield changes
        finally:
            self._breaks.discard(end_it)
            stop()
        raise KvUnavailable("the watch broke")

    def break_watches(self) -> None:
        """Break all open watches."""
        for end_it in list(self._breaks):
            end_it()

    async def close(self) -> None:
        self.break_watches()
