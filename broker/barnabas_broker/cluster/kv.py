"""What a cluster needs of etcd, as a port: reads, transactions, leases, a watch. Keys are text, values are bytes.

The revision counts what ever changed; a key's creating revision tells one life of it from the next. See the etcd v3
API guarantees, https://etcd.io/docs/v3.5/learning/api_guarantees/.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas_broker.logs import logger

log = logger("cluster")

#: Seconds before a watch that broke is set up anew, at first and at most.
_RETRY_SECONDS: Final = (0.05, 1.0)


class KvError(Exception):
    """A request that was refused; the text says why. Nothing was changed by it."""


class KvUnavailable(KvError):
    """No answer in time. Whether something was changed is not known."""


class KvCompacted(KvError):
    """What was asked for lies in a past that is no longer kept."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key, its value, and the revisions that made it and that changed it last."""

    key: str
    value: bytes
    created: int
    modified: int


@dataclass(frozen=True, slots=True)
class Range:
    """Keys in their order, as they were at `revision`; `more` if there are others behind."""

    entries: Sequence[Entry]
    revision: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Created:
    """A condition: `key` was created by `revision`; 0: it is not there."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Holds:
    """A condition: `key` holds `value`."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key; it goes with its lease, 0 for none."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key, or those from `key` up to `end`, exclusive."""

    key: str
    end: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction.

    Attributes:
        done: whether the conditions held, and so everything was done.
        revision: after it.
        found: the keys that were asked for in case it was not done.
    """

    done: bool
    revision: int
    found: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease and for how many seconds it lives without being renewed."""

    lease_id: int
    ttl: int


@dataclass(frozen=True, slots=True)
class Change:
    """A key that was set, or (`value` None) is gone."""

    key: str
    value: bytes | None
    created: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that happened to the watched keys up to `revision`, since what came before."""

    revision: int
    changes: Sequence[Change]


class Kv(Protocol):
    """etcd, or a model of it. Every method is bounded in time.

    Raises:
        KvUnavailable: no answer; every method may.
        KvError: refused; every method may.
    """

    async def range(self, start: str, end: str | None = None, *, revision: int = 0, limit: int = 0) -> Range:
        """Read one key, or those from `start` up to `end`, exclusive; now, or as they were at `revision`.

        Raises:
            KvCompacted: `revision` is no longer kept.
        """

    async def txn(
        self, conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str] = ()
    ) -> Outcome:
        """If all conditions hold do all of `then`, else read the keys `otherwise`; in one step."""

    async def grant(self, ttl: int) -> Lease:
        """A new lease of about `ttl` seconds."""

    async def keep_alive(self, lease_id: int, seconds: float) -> int:
        """Renew a lease, within `seconds`; for how many it lives now, 0 if it is gone."""

    async def revoke(self, lease_id: int) -> None:
        """End a lease, if there is one, and with it the keys that go with it."""

    def watch(self, start: str, end: str, after: int) -> AsyncIterator[Changes]:
        """What happens to the keys from `start` up to `end` after revision `after`, until the connection breaks.

        Raises:
            KvUnavailable: the connection broke.
            KvCompacted: `after` is no longer kept.
        """

    async def close(self) -> None:
        """Let go of connections."""


async def follow(kv: Kv, start: str, end: str, after: int) -> AsyncIterator[Changes]:
    """A watch that goes on where it was when its connection broke.

    Raises:
        KvCompacted: it was away for too long; list the keys, then follow from there.
    """
    pause = _RETRY_SECONDS[0]
    while True:
        try:
            async for changes in kv.watch(start, end, after):
                after = max(after, changes.revision)
                pause = _RETRY_SECONDS[0]
                yield changes
        except KvCompacted:
            raise
        except KvError as error:
            log.debug("watch broke", keys=start, reason=str(error))
        await asyncio.sleep(pause)
        pause = min(pause * 2, _RETRY_SECONDS[1])


def prefix_end(prefix: str) -> str:
    """The first key behind all that start with `prefix`, which ends in "/"."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
