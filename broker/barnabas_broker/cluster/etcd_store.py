"""The metadata store that several brokers share: a log of batches in etcd; from time to time a snapshot replaces its
beginning. An adapter of :mod:`.store`, over the port :mod:`.kv`.

| key (after the prefix) | value |
|---|---|
| ``cluster-id`` | the cluster's id |
| ``log/SEQ`` | a batch of events; the first line names its writer |
| ``head`` | the number of the last batch |
| ``snapshot-head`` | the number of the last batch in the snapshot |
| ``snapshot/SEQ/PART`` | the snapshot |
| ``history`` | the restores of the metadata, see :mod:`barnabas_broker.cluster.etcd_restore`; absent without any |
| ``live/...`` | keys attached to a broker's lease, see :mod:`barnabas_broker.cluster.lifecycle` |

Values are JSON lines, compressed with zlib if they are long. An append sets ``head`` and ``log/SEQ`` in one transaction
if ``head`` has not changed since the decision and this broker's registration still exists. An append without a response
is repeated: it can succeed only once, and its batch shows its writer.

An etcd that was restored from a backup, or emptied, lacks batches that brokers have applied. Each broker looks for its
last batch whenever its watch was set up, because the content of etcd can only go back while connections are broken.
"""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster.event_json import UNREADABLE, event_from_json, event_to_json
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
from barnabas_broker.cluster.store import (
    EventBatch,
    LoadedMetadata,
    Restored,
    StoreError,
    StoreFenced,
    StoreLost,
    StoreUnavailable,
)
from barnabas_broker.logs import logger
from barnabas_protocol.backoff import Backoff

log = logger("cluster")

#: The key of the restores.
HISTORY: Final = "history"
#: Seconds that an append without a response is repeated.
APPEND_SECONDS: Final = 6.0
#: Batches, or bytes of batches, after which a snapshot is due.
SNAPSHOT_BATCHES: Final = 1000
SNAPSHOT_BYTES: Final = 16 * 1024 * 1024
#: Maximum bytes of one value; etcd rejects requests over 1.5 MB.
_VALUE_BYTES: Final = 1_400_000
#: Bytes above which a value is compressed.
_PLAIN_BYTES: Final = 4096
#: Maximum bytes of a decompressed value.
_TEXT_BYTES: Final = 256 * 1024 * 1024
#: Bytes of one part of a snapshot, about.
_PART_BYTES: Final = 1_000_000
#: Batches or parts of a snapshot in one read.
_PAGE: Final = 32
#: Seconds between attempts while etcd does not answer: the first pause, and the longest.
_PAUSE_SECONDS: Final = (0.1, 2.0)
#: Digits of the number of a batch.
_DIGITS: Final = 20


class EtcdStore:
    """A :class:`~barnabas_broker.cluster.store.MetadataStore` in etcd.

    Args:
        kv: etcd.
        prefix: of all keys, with a slash at both ends.
        writer: a name that is unique among all writers ever.
        now: a monotonic clock, in seconds.
        seed: of the jitter of pauses.

    Attributes:
        registration: this broker's registration key and its create revision; without it this broker cannot write.
        controllership: the same for the controller's key, while this broker is the controller.
        history: the restores of the metadata, as of the last load.
        on_lost: called with the reason when etcd lacks a batch that this broker has applied.
    """

    def __init__(
        self, kv: KeyValueStore, prefix: str, writer: str, now: Callable[[], float], *, seed: str = ""
    ) -> None:
        self.registration: Created | None = None
        self.controllership: Created | None = None
        self.history: tuple[Restored, ...] = ()
        self.on_lost: Callable[[str], None] = lambda reason: None
        self._kv = kv
        self._prefix = prefix
        self._writer = writer
        self._now = now
        self._seed = seed
        self._written = 0
        self._revision = 0
        self._since_snapshot = self._bytes_since_snapshot = 0
        #: The last batch that was loaded, delivered or appended, and its first line; None if it is in a snapshot.
        self._last: tuple[int, str | None] = (0, None)

    def _backoff(self) -> Backoff:
        return jittered(*_PAUSE_SECONDS, seed=f"store {self._seed}")

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
        known = self._last[0]
        history = await read_history(self._kv, self._prefix)
        head = await self._kv.range(f"{self._prefix}snapshot-head")
        revision = head.revision
        sequence = read_number(head.entries[0]) if head.entries else 0
        last: tuple[int, str | None] = (sequence, None)
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
            last = sequence, _lines(entry.key, entry.value)[0]
            events += batch.events
        if known and (sequence < known or history != self.history):
            raise self._lose(known, sequence)
        self._revision, self.history = revision, history
        self._reached(*last)
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

    def _reached(self, sequence: int, line: str | None) -> None:
        """This batch is in etcd."""
        if sequence > self._last[0]:
            self._last = sequence, line

    def _lose(self, known: int, newest: int) -> StoreLost:
        reason = f"etcd has lost the metadata after batch {newest}, and this broker has applied batch {known}"
        if newest >= known:
            reason = f"etcd has another batch {known} of the metadata than this broker has applied"
        self.on_lost(reason)
        return StoreLost(reason)

    async def _check_history(self) -> None:
        """Check that etcd has the last batch that this broker knows. Repeated until etcd answers.

        Raises:
            StoreLost: it has not.
            StoreError: etcd rejects the request.
        """
        head, restores = f"{self._prefix}head", f"{self._prefix}{HISTORY}"
        backoff = self._backoff()
        while True:
            (sequence, line), key = self._last, self._log_key(self._last[0])
            try:
                # All keys in one step, and as new as all that was ever acknowledged.
                found = (await self._kv.txn([Created(head, 0)], [], [head, key, restores])).found
            except KvUnavailable:
                await asyncio.sleep(backoff.failed())
                continue
            except KvError as error:
                raise _store_error(error) from error
            newest = read_number(found[head]) if head in found else 0
            history = _history(restores, found[restores].value) if restores in found else ()
            # A batch that is not there is in a snapshot.
            other = line is not None and key in found and _lines(key, found[key].value)[0] != line
            if newest < sequence or other or (sequence and history != self.history):
                raise self._lose(sequence, newest)
            return

    async def newest(self) -> int:
        known = self._last[0]
        try:
            head = (await self._kv.range(f"{self._prefix}head")).entries
        except KvError as error:
            raise _store_error(error) from error
        newest = read_number(head[0]) if head else 0
        if newest < known:
            raise self._lose(known, newest)
        return newest

    async def watch(self) -> AsyncIterator[EventBatch | LoadedMetadata]:
        start = f"{self._prefix}log/"
        backoff = self._backoff()
        while True:
            try:
                async for changes in follow(self._kv, start, prefix_end(start), self._revision):
                    if not changes.changes:
                        await self._check_history()
                    for change in changes.changes:
                        if change.value is not None:
                            batch = self._batch(change.key, change.value)
                            self._reached(batch.sequence, _lines(change.key, change.value)[0])
                            yield batch
                    self._revision = max(self._revision, changes.revision)
            except KvCompacted:
                log.info("loading the metadata again: etcd has compacted the history that the watch missed")
            try:
                yield await self.load()
                backoff.succeeded()
            except StoreUnavailable:
                await asyncio.sleep(backoff.failed())

    # Write

    def _guards(self, as_controller: bool) -> list[Created]:
        guards = [self.registration, *([self.controllership] if as_controller else [])]
        held = [guard for guard in guards if guard is not None]
        if len(held) < len(guards):
            raise StoreFenced("this broker is not registered" if self.registration is None else "not the controller")
        return held

    async def append(self, events: Sequence[Event], expected: int, *, as_controller: bool = False) -> bool:
        self._written += 1
        me = json.dumps({"writer": self._writer, "number": self._written})
        value = _value([me, *map(event_to_json, events)])
        if len(value) > _VALUE_BYTES:
            raise StoreError(f"{len(events)} events are too large for one batch: {len(value)} bytes")
        head, key = f"{self._prefix}head", self._log_key(expected + 1)
        guards = self._guards(as_controller)
        first = Holds(head, str(expected).encode()) if expected else Created(head, 0)
        deadline, backoff = self._now() + APPEND_SECONDS, self._backoff()
        unknown = False
        while True:
            known = self._last[0]  # before the request: the watch may deliver more meanwhile
            try:
                outcome = await self._kv.txn(
                    [first, *guards],
                    [Put(head, str(expected + 1).encode()), Put(key, value)],
                    [head, key, *(guard.key for guard in guards)],
                )
            except KvUnavailable as error:
                unknown = True
                if self._now() >= deadline:
                    raise StoreUnavailable(f"{error}; it is unknown whether the change was made") from error
                await asyncio.sleep(backoff.failed())
                continue
            except KvError as error:
                if unknown:
                    return await self._rejected_later(key, me, error)
                raise StoreError(str(error)) from error
            there = outcome.found.get(key)
            if outcome.done or (there is not None and _lines(key, there.value)[0] == me):
                self._reached(expected + 1, me)
                return True
            newest = read_number(outcome.found[head]) if head in outcome.found else 0
            if newest < known:
                raise self._lose(known, newest)
            if there is not None:
                return False
            for guard in guards:
                entry = outcome.found.get(guard.key)
                if entry is None or entry.created != guard.revision:
                    raise StoreFenced(f"{guard.key} is no longer this broker's")
            return False

    async def _rejected_later(self, key: str, me: str, error: KvError) -> bool:
        """An append was rejected after an attempt without a response, which may have stored the batch, or may store it
        yet: read what is there.

        Raises:
            StoreUnavailable: it is still unknown.
        """
        try:
            there = (await self._kv.range(key)).entries
        except KvError as failed:
            raise StoreUnavailable(f"{failed}; it is unknown whether the change was made") from failed
        if not there:
            raise StoreUnavailable(f"{error}; it is unknown whether the change was made") from error
        return _lines(key, there[0].value)[0] == me

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
            if before and read_number(before[0]) >= sequence:
                self._since_snapshot = self._bytes_since_snapshot = 0
                return
            made = [Put(f"{here}{number:06}", part) for number, part in enumerate(parts(image))]
            for put in made:
                await self._step(guards, [put])
            # A transaction without a response may be applied much later: it must not undo a newer snapshot then, nor
            # refer to a snapshot that a restore of etcd has removed meanwhile. The last part is there with the rest.
            last = Holds(made[-1].key, made[-1].value)
            await self._step(
                [*guards, Holds(head, before[0].value) if before else Created(head, 0), last],
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


async def read_history(kv: KeyValueStore, prefix: str) -> tuple[Restored, ...]:
    """The restores of the metadata, oldest first.

    Raises:
        KvError: etcd does not answer, or rejects the request.
        StoreError: the key has another content.
    """
    found = (await kv.range(f"{prefix}{HISTORY}")).entries
    return _history(found[0].key, found[0].value) if found else ()


def _history(key: str, value: bytes) -> tuple[Restored, ...]:
    try:
        return tuple(Restored.of(each) for each in json.loads(value))
    except UNREADABLE as error:
        raise StoreError(f"etcd: {key} cannot be read ({error})") from error


def read_number(entry: KeyEntry) -> int:
    """The number that a key holds.

    Raises:
        StoreError: it holds something else.
    """
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


def parts(image: Image) -> list[bytes]:
    """The values of a snapshot.

    Raises:
        StoreError: one is too large.
    """
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
