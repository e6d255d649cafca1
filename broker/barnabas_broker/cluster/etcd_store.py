"""The metadata store that several brokers share: a log of batches in etcd; from time to time a snapshot replaces its
beginning. An adapter of :mod:`.store`, over the port :mod:`.kv`.

| key (after the prefix) | value |
|---|---|
| ``cluster-id`` | the cluster's id |
| ``log/SEQ`` | a batch of events; the first line names its writer |
| ``head`` | the number of the last batch |
| ``snapshot-head`` | the number of the last batch in the snapshot |
| ``snapshot/SEQ/PART`` | the snapshot |
| ``live/...`` | keys attached to a broker's lease, see :mod:`barnabas_broker.cluster.lifecycle` |

Values are JSON lines, compressed with zlib if they are long. An append sets ``head`` and ``log/SEQ`` in one transaction
if ``head`` has not changed since the decision and this broker's registration still exists. An append without a response
is repeated: it can succeed only once, and its batch shows its writer.
"""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.kv import (
    Created,
    Delete,
    Holds,
    KeyEntry,
    KeyValueStore,
    KvCompacted,
    KvError,
    KvUnavailable,
    Put,
    follow,
    prefix_end,
)
from barnabas_broker.cluster.store import EventBatch, LoadedMetadata, StoreError, StoreFenced, StoreUnavailable
from barnabas_broker.logs import logger

log = logger("cluster")

#: Seconds that an append without a response is repeated.
APPEND_SECONDS: Final = 6.0
#: Batches, or bytes of batches, after which a snapshot is due.
SNAPSHOT_BATCHES: Final = 1000
SNAPSHOT_BYTES: Final = 16 * 1024 * 1024
#: Bytes of one value at most; etcd rejects requests over 1.5 MB.
_VALUE_BYTES: Final = 1_400_000
#: Bytes above which a value is compressed.
_PLAIN_BYTES: Final = 4096
#: Bytes of a decompressed value at most.
_TEXT_BYTES: Final = 256 * 1024 * 1024
#: Bytes of one part of a snapshot, about.
_PART_BYTES: Final = 1_000_000
#: Batches or parts of a snapshot in one read.
_PAGE: Final = 32
_PAUSE_SECONDS: Final = 0.1
#: Digits of the number of a batch.
_DIGITS: Final = 20


class EtcdStore:
    """A :class:`~barnabas_broker.cluster.store.MetadataStore` in etcd.

    Args:
        kv: etcd.
        prefix: of all keys, with a slash at both ends.
        writer: a name that is unique among all writers ever.
        now: a monotonic clock, in seconds.

    Attributes:
        registration: this broker's registration key and its create revision; without it this broker cannot write.
        controllership: the same for the controller's key, while this broker is the controller.
    """

    def __init__(self, kv: KeyValueStore, prefix: str, writer: str, now: Callable[[], float]) -> None:
        self.registration: Created | None = None
        self.controllership: Created | None = None
        self._kv = kv
        self._prefix = prefix
        self._writer = writer
        self._now = now
        self._written = 0
        self._revision = 0
        self._since_snapshot = self._bytes_since_snapshot = 0

    def _log_key(self, sequence: int) -> str:
        return f"{self._prefix}log/{sequence:020}"

    async def cluster_id(self, proposed: str | None) -> str | None:
        """The cluster's id; the proposed one is stored if there is none.

        Raises:
            StoreUnavailable: etcd does not answer.
            StoreError: etcd rejects the request.
        """
        key = f"{self._prefix}cluster-id"
        try:
            if proposed is not None and (await self._kv.txn([Created(key, 0)], [Put(key, proposed.encode())])).done:
                return proposed
            found = (await self._kv.range(key)).entries
        except KvError as error:
            raise _store_error(error) from error
        return found[0].value.decode(errors="replace") if found else None

    # Read

    async def load(self) -> LoadedMetadata:
        while True:
            try:
                return await self._load()
            except KvCompacted:
                continue
            except KvError as error:
                raise _store_error(error) from error

    async def _load(self) -> LoadedMetadata:
        head = await self._kv.range(f"{self._prefix}snapshot-head")
        revision = head.revision
        sequence = _number(head.entries[0]) if head.entries else 0
        events: list[Event] = []
        if head.entries:
            start = f"{self._prefix}snapshot/{sequence:020}/"
            async for entry in self._read(start, prefix_end(start), revision):
                events += _events(entry.key, _lines(entry.key, entry.value))
            if not events:
                raise StoreError(f"etcd: the snapshot {start} is missing; restore etcd from a backup")
        self._since_snapshot = self._bytes_since_snapshot = 0
        end = prefix_end(f"{self._prefix}log/")
        async for entry in self._read(self._log_key(sequence + 1), end, revision):
            batch = self._batch(entry.key, entry.value)
            if batch.sequence != sequence + 1:
                raise StoreError(f"etcd: {self._log_key(sequence + 1)} is missing; restore etcd from a backup")
            sequence = batch.sequence
            events += batch.events
        self._revision = revision
        return LoadedMetadata(sequence, events)

    async def _read(self, start: str, end: str, revision: int) -> AsyncIterator[KeyEntry]:
        more = True
        while more:
            page = await self._kv.range(start, end, revision=revision, limit=_PAGE)
            for entry in page.entries:
                start = entry.key + "\0"
                yield entry
            more = page.more

    def _batch(self, key: str, value: bytes) -> EventBatch:
        self._since_snapshot += 1
        self._bytes_since_snapshot += len(value)
        number = key.rpartition("/")[2].encode()
        if not number.isdigit() or len(number) > _DIGITS:
            raise StoreError(f"etcd: {key} is not a batch of events: another program writes below this prefix")
        return EventBatch(int(number), _events(key, _lines(key, value)[1:]))

    async def newest(self) -> int:
        try:
            head = (await self._kv.range(f"{self._prefix}head")).entries
        except KvError as error:
            raise _store_error(error) from error
        return _number(head[0]) if head else 0

    async def watch(self) -> AsyncIterator[EventBatch | LoadedMetadata]:
        start = f"{self._prefix}log/"
        while True:
            try:
                async for changes in follow(self._kv, start, prefix_end(start), self._revision):
                    for change in changes.changes:
                        if change.value is not None:
                            yield self._batch(change.key, change.value)
                    self._revision = max(self._revision, changes.revision)
            except KvCompacted:
                log.info("loading the metadata again: etcd has compacted the history that the watch missed")
            try:
                yield await self.load()
            except StoreUnavailable:
                await asyncio.sleep(_PAUSE_SECONDS)

    # Write

    def _guards(self, as_controller: bool) -> list[Created]:
        guards = [self.registration, *([self.controllership] if as_controller else [])]
        held = [guard for guard in guards if guard is not None]
        if len(held) < len(guards):
            raise StoreFenced("this broker is not registered" if self.registration is None else "not the controller")
        return held

    async def append(self, events: Sequence[Event], expected: int, *, as_controller: bool = False) -> bool:
        self._written += 1
        me = {"writer": self._writer, "number": self._written}
        value = _value([json.dumps(me), *map(event_to_json, events)])
        if len(value) > _VALUE_BYTES:
            raise StoreError(f"{len(events)} events are too large for one batch: {len(value)} bytes")
        head, key = f"{self._prefix}head", self._log_key(expected + 1)
        guards = self._guards(as_controller)
        first = Holds(head, str(expected).encode()) if expected else Created(head, 0)
        deadline = self._now() + APPEND_SECONDS
        while True:
            try:
                outcome = await self._kv.txn(
                    [first, *guards],
                    [Put(head, str(expected + 1).encode()), Put(key, value)],
                    [key, *(guard.key for guard in guards)],
                )
            except KvUnavailable as error:
                if self._now() >= deadline:
                    raise StoreUnavailable(f"{error}; it is unknown whether the change was made") from error
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            except KvError as error:
                raise StoreError(str(error)) from error
            if outcome.done:
                return True
            there = outcome.found.get(key)
            if there is not None:
                return _lines(key, there.value)[0] == json.dumps(me)
            for guard in guards:
                entry = outcome.found.get(guard.key)
                if entry is None or entry.created != guard.revision:
                    raise StoreFenced(f"{guard.key} is no longer this broker's")
            return False

    # Snapshots

    @property
    def snapshot_due(self) -> bool:
        """Whether there are so many batches that a snapshot should replace them."""
        return self._since_snapshot >= SNAPSHOT_BATCHES or self._bytes_since_snapshot >= SNAPSHOT_BYTES

    async def snapshot(self, image: Image, sequence: int) -> None:
        """Replace all batches up to `sequence` by a snapshot of `image`. Only for the controller.

        Raises:
            StoreError: it was not done; the batches still exist.
        """
        base = f"{self._prefix}snapshot/"
        here = f"{base}{sequence:020}/"
        head = f"{self._prefix}snapshot-head"
        guards = self._guards(as_controller=True)
        try:
            before = (await self._kv.range(head)).entries
            if before and _number(before[0]) >= sequence:
                self._since_snapshot = self._bytes_since_snapshot = 0
                return
            for number, part in enumerate(_parts(image)):
                await self._step(guards, [Put(f"{here}{number:06}", part)])
            # A transaction without a response may be applied much later: it must not undo a newer snapshot then.
            await self._step(
                [*guards, Holds(head, before[0].value) if before else Created(head, 0)],
                [
                    Put(head, str(sequence).encode()),
                    Delete(base, here),
                    Delete(prefix_end(here), prefix_end(base)),
                    Delete(f"{self._prefix}log/", self._log_key(sequence + 1)),
                ],
            )
        except KvError as error:
            raise _store_error(error) from error
        self._since_snapshot = self._bytes_since_snapshot = 0

    async def _step(self, guards: Sequence[Created | Holds], operations: Sequence[Put | Delete]) -> None:
        if not (await self._kv.txn(guards, operations)).done:
            raise StoreFenced("not the controller any more, or another snapshot was first")

    async def close(self) -> None:
        await self._kv.close()


def _store_error(error: KvError) -> StoreError:
    return StoreUnavailable(str(error)) if isinstance(error, KvUnavailable) else StoreError(str(error))


def _number(entry: KeyEntry) -> int:
    if not entry.value.isdigit() or len(entry.value) > _DIGITS:
        raise StoreError(f"etcd: {entry.key} is not a number: another program writes below this prefix")
    return int(entry.value)


def _value(lines: Sequence[str]) -> bytes:
    text = "\n".join(lines).encode()
    return text if len(text) <= _PLAIN_BYTES else zlib.compress(text, 1)


def _lines(key: str, value: bytes) -> list[str]:
    try:
        if not value.startswith(b"{"):
            inflate = zlib.decompressobj()
            value = inflate.decompress(value, _TEXT_BYTES)
            if not inflate.eof:
                raise StoreError(f"etcd: {key} is truncated or too large")
        return value.decode().split("\n")
    except (zlib.error, UnicodeDecodeError) as error:
        raise StoreError(f"etcd: {key} cannot be read ({error})") from error


def _events(key: str, lines: Sequence[str]) -> list[Event]:
    try:
        return [event_from_json(line) for line in lines]
    except StoreError as error:
        raise StoreError(f"etcd: {key} holds {error}") from error


def _parts(image: Image) -> list[bytes]:
    parts, lines, size = [], [], 0
    for event in image.snapshot():
        line = event_to_json(event)
        lines.append(line)
        size += len(line)
        if size >= _PART_BYTES:
            parts.append(_value(lines))
            lines, size = [], 0
    if lines:
        parts.append(_value(lines))
    too_long = max(map(len, parts))
    if too_long > _VALUE_BYTES:
        raise StoreError(f"a part of the snapshot has {too_long} bytes, which is too large")
    return parts
