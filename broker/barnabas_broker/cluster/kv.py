"""The port onto etcd: reads, transactions, leases, watches. Keys are text, values are bytes.

The revision counts all changes. A key that is deleted and created again gets another create revision. See the etcd v3
API guarantees, https://etcd.io/docs/v3.5/learning/api_guarantees/.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas_broker.backoff import jittered
from barnabas_broker.logs import logger

log = logger("cluster")

#: Seconds before a broken watch is set up again: the first pause, and the longest.
_RETRY_SECONDS: Final = (0.05, 2.0)


class KvError(Exception):
    """A request was rejected; the text says why. It changed nothing."""


class KvUnavailable(KvError):
    """No response in time. It is unknown whether the request changed anything."""


class KvCompacted(KvError):
    """The requested revision has been compacted."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A key, its value, its create revision, its last modification's revision, and its lease, 0 for none."""

    key: str
    value: bytes
    created: int
    modified: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys in order, as of `revision`; `more` if the limit has cut off others."""

    entries: Sequence[KeyEntry]
    revision: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Created:
    """A condition: the create revision of `key` is `revision`; 0 if the key does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Holds:
    """A condition: the value of `key` is `value`."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key, attached to a lease; 0 for none."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key, or those from `key` up to `end`, exclusive."""

    key: str
    end: str | None = None


@dataclass(frozen=True, slots=True)
class TxnOutcome:
    """The result of a transaction.

    Attributes:
        done: whether the conditions held, so that the operations were applied.
        revision: after the transaction.
        found: if it was not done, the keys that it should read then.
    """

    done: bool
    revision: int
    found: Mapping[str, KeyEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease, and its time to live in seconds."""

    lease_id: int
    ttl: int


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key that was set, or deleted if `value` is None."""

    key: str
    value: bytes | None
    created: int


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """All changes of the watched keys up to `revision`, after those delivered before."""

    revision: int
    changes: Sequence[KeyChange]


class KeyValueStore(Protocol):
    """A key-value store with etcd's guarantees. Every method is bounded in time.

    Raises:
        KvUnavailable: no response; from every method.
        KvError: rejected; from every method.
    """

    async def range(self, start: str, end: str | None = None, *, revision: int = 0, limit: int = 0) -> KeyRange:
        """Read one key, or the keys from `start` up to `end`, exclusive; as of `revision`, or now.

        Raises:
            KvCompacted: `revision` has been compacted.
        """

    async def txn(
        self, conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str] = ()
    ) -> TxnOutcome:
        """If all conditions hold, apply all of `then`; otherwise read the keys `otherwise`. Atomic."""

    async def grant(self, ttl: int) -> Lease:
        """Create a lease of about `ttl` seconds."""

    async def keep_alive(self, lease_id: int, patience: float, seconds: float) -> int:
        """Renew a lease; its new time to live, 0 if it has expired.

        Args:
            lease_id: of the lease.
            patience: seconds after which other requests use another server, if there is one.
            seconds: after which an answer is not waited for any longer.
        """

    async def alarms(self) -> frozenset[str]:
        """The alarms that are raised, by etcd's names: NOSPACE, CORRUPT."""

    async def revoke(self, lease_id: int) -> None:
        """End a lease, if it exists, and delete the keys attached to it."""

    def watch(self, start: str, end: str, after: int) -> AsyncIterator[KeyChanges]:
        """Yield the changes of the keys from `start` up to `end` after revision `after`. The first item is empty: the
        watch is set up.

        Raises:
            KvUnavailable: the connection was lost.
            KvCompacted: `after` has been compacted.
        """

    async def close(self) -> None:
        """Close the connections."""


async def follow(kv: KeyValueStore, start: str, end: str, after: int) -> AsyncIterator[KeyChanges]:
    """A watch that is set up again when its connection is lost, without missing changes. Yields an empty item whenever
    it was set up.

    Raises:
        KvCompacted: it was interrupted for too long; list the keys, then follow from there.
    """
    backoff = jittered(*_RETRY_SECONDS, seed=start)
    while True:
        try:
            async for changes in kv.watch(start, end, after):
                after = max(after, changes.revision)
                if changes.changes:
                    backoff.succeeded()
                yield changes
        except KvCompacted:
            raise
        except KvError as error:
            log.debug("watch is broken, setting it up again", keys=start, reason=str(error))
        await asyncio.sleep(backoff.failed())


def prefix_end(prefix: str) -> str:
    """The first key after all that begin with `prefix`, which ends in "/"."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
