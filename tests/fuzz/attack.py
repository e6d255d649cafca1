"""Sends requests with odd values, damaged ones, batches of odd records, and lists that name one thing many times, one
by one and in bursts, and watches what they cost the broker.

The broker runs in this event loop. After each request or burst comes an ApiVersions request: its response shows that
the broker has dealt with the others. A request may wait for long (a Fetch, a JoinGroup), so that its connection is
closed after :data:`PATIENCE`; one that waits longer elsewhere would show in the time between two turns of the loop.
"""

import asyncio
import gc
import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from typing import Final, NamedTuple

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_broker.gc_tuning import collect_all
from barnabas_broker.storage import TopicPartition
from barnabas_broker.storage.slices import joined
from barnabas_broker.storage.time_budget import Allowance
from barnabas_protocol.apis import APIS
from barnabas_protocol.codec import encode_request
from barnabas_protocol.errors import DecodeError, EncodeError
from barnabas_protocol.messages.api_versions import ApiVersionsRequest
from barnabas_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_protocol.records import iter_batches, iter_records
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Request
from tests.fuzz.batches import some_batch
from tests.protocol.support import damaged, repeat, some
from tests.wire import Wire

#: Seconds until a connection with a request that waits is closed.
PATIENCE: Final = 0.05
#: Connections at a time.
CONNECTIONS: Final = 4
#: Topics that get batches, with their configuration.
TOPICS: Final = {
    "batches": {"retention.bytes": "10000000", "segment.bytes": "2000000"},
    "keyed": {"cleanup.policy": "compact", "segment.bytes": "2000000"},
}
#: The configuration of a broker that decides for each request what its client may do: anything without ACLs.
AUTHORIZER: Final = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
#: The share of requests that carry a batch.
BATCHES: Final = 0.25
#: The share of other requests that name something many times.
REPEATED: Final = 0.05
#: Elements of a list in such a request.
TIMES: Final = (2, 10, 100, 1_000)
#: The share of requests that begin a burst: several are sent at once, the same one or different ones.
BURSTS: Final = 0.02
#: Requests of a burst.
MOST_IN_BURST: Final = 50
#: Bytes of a burst, after which nothing is added.
BURST_BYTES: Final = 200_000
#: Bytes of a batch when it is decompressed, more than the attack sends.
MOST_DECOMPRESSED: Final = 1 << 26
#: Objects in reference cycles for each request: they stay until the collector runs, and make it slow. With
#: uvloop: asyncio's own transports are in cycles.
GARBAGE: Final = 1
#: How many of the longest holds are kept.
LONGEST: Final = 10

_ASK: Final = encode_request(ApiVersionsRequest(), 0, -7, "fuzz")
_SIZE: Final = struct.Struct(">i")


class Hold(NamedTuple):
    """A time between two turns of the loop.

    Attributes:
        seconds: processor time of the loop's thread.
        collector: how much of that the garbage collector took.
        passed: time that has passed. What is more than `seconds` the thread has waited: for a processor, or the disk.
        number: how many requests had been sent.
        request: the last one of them.
    """

    seconds: float
    collector: float
    passed: float
    number: int
    request: str

    def __str__(self) -> str:
        of = (
            f"{self.seconds * 1000:.0f} ms ({self.collector * 1000:.0f} of the collector) "
            f"in {self.passed * 1000:.0f} ms"
        )
        return f"{of} at request {self.number:,}: {self.request}"


@dataclass
class Findings:
    """What an attack has shown.

    Attributes:
        requests: how many were sent.
        closed: how many of them made the broker close the connection.
        waited: how many waited for longer than :data:`PATIENCE`.
        garbage: how many objects the garbage collector has freed, because they were in reference cycles.
        holds: the longest ones; the longest is the last.
        names: requests by API.
    """

    requests: int = 0
    closed: int = 0
    waited: int = 0
    garbage: int = 0
    holds: list[Hold] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)


def stored(broker: BrokerServer, topic: str) -> tuple[int, list[int]]:
    """How many batches the attack has stored in one of :data:`TOPICS`, and the offsets of those that are unreadable."""
    log = broker.directory.logs[TopicPartition(topic, 0)]
    assert not log.damage
    count, unreadable, offset = 0, [], log.log_start_offset
    while offset < log.log_end_offset and (parts := log.read(offset, 1 << 20, log.log_end_offset, min_one=True)):
        for header, batch in iter_batches(joined(parts)):
            count, offset = count + 1, header.next_offset
            try:
                for _ in iter_records(batch, max_bytes=MOST_DECOMPRESSED):
                    pass
            except DecodeError:
                unreadable.append(header.base_offset)
    return count, unreadable


class Attack:
    """An attack on a broker that runs in this event loop.

    Args:
        broker: the broker.
        seed: the same seed makes the same requests.
        watch: is called with the number of requests sent, now and then.
    """

    def __init__(self, broker: BrokerServer, seed: int, watch: Callable[[int], None] = lambda sent: None) -> None:
        self.found = Findings()
        self._broker = broker
        self._port = broker.port
        self._random = random.Random(seed)
        self._watch = watch
        self._left = 0
        self._current = ""
        self._last = time.thread_time()
        self._passed = time.monotonic()
        self._collecting = self._collected = 0.0
        self._ended = False

    async def run(self, requests: int) -> Findings:
        """Send requests over several connections, and return what they have shown."""
        self._left = requests
        await self._create_topics()
        collect_all()
        gc.callbacks.append(self._collector)
        self._last, self._passed = time.thread_time(), time.monotonic()
        self._turn()
        try:
            await asyncio.gather(*(self._connection() for _ in range(CONNECTIONS)))
        finally:
            self._ended = True
            collect_all()
            gc.callbacks.remove(self._collector)
        self.found.holds.sort()
        return self.found

    def stop(self) -> None:
        """Send no more requests: :meth:`run` returns what those before have shown."""
        self._left = 0

    async def _create_topics(self) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, configs in TOPICS.items()
        ]
        async with await Wire.connect(self._port) as wire:
            created = await wire.ask(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
            assert not any(topic.error_code for topic in created.topics)
        # All batches are looked into, not only in a share of the time: so all that are accepted can be read.
        self._broker.directory.logs[TopicPartition("keyed", 0)].disk.inspections = Allowance(lambda: 0.0)

    def _collector(self, phase: str, info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collecting = now
        else:
            self._collected += now - self._collecting
            self.found.garbage += info["collected"]

    def _turn(self) -> None:
        if self._ended:
            return
        now, holds = time.thread_time(), self.found.holds
        passed = time.monotonic()
        hold = Hold(now - self._last, self._collected, passed - self._passed, self.found.requests, self._current)
        if len(holds) < LONGEST:
            heappush(holds, hold)
        elif hold > holds[0]:
            heapreplace(holds, hold)
        self._last, self._passed, self._collected = now, passed, 0.0
        asyncio.get_running_loop().call_soon(self._turn)

    async def _connection(self) -> None:
        while self._left > 0:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                while self._left > 0 and await self._send(reader, writer):
                    pass
            finally:
                writer.close()

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send a request or a burst; whether the connection is still of use."""
        began, passed = time.thread_time(), time.monotonic()
        frame = self._requests()
        # Making the request is not the broker's work.
        self._last += time.thread_time() - began
        self._passed += time.monotonic() - passed
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(frame + _ASK)
                del frame  # a reset connection would keep it until the collector runs
                while True:
                    (size,) = _SIZE.unpack(await reader.readexactly(4))
                    body = await reader.readexactly(size)
                    if body[:4] == _ASK[8:12]:
                        return True
        except TimeoutError:
            self.found.waited += 1
        except (OSError, asyncio.IncompleteReadError):
            self.found.closed += 1
        return False

    def _requests(self) -> bytes:
        """The frames of one request, or of a burst."""
        chance = self._random
        frames = self._request()
        if chance.random() < BURSTS:
            count, same = chance.randint(2, MOST_IN_BURST), frames if chance.random() < 0.5 else None
            while count > 1 and self._left > 0 and len(frames) < BURST_BYTES:
                frames += self._request() if same is None else self._counted(same)
                count -= 1
            self._current = f"burst of {len(frames):,} bytes, the last one: {self._current}"
        return frames

    def _counted(self, frame: bytes) -> bytes:
        """Count a request that is sent."""
        self._left -= 1
        self.found.requests += 1
        if not self.found.requests % 1000:
            self._watch(self.found.requests)
        return frame

    def _request(self) -> bytes:
        chance = self._random
        while True:
            batch = chance.random() < BATCHES
            if batch:
                key, version = ApiKey.PRODUCE, chance.randrange(3, 13)
                message: Request = self._produce()
            else:
                key = ApiKey(chance.choice(list(APIS)))
                declared = api(key).request
                version = chance.choice(list(declared.VERSIONS))
                message = some(chance, declared, version)
                if chance.random() < REPEATED:
                    repeat(chance, message, chance.choice(TIMES))
            try:
                frame = encode_request(message, version, 1, "fuzz")
            except EncodeError:
                continue
            body = frame[4:]
            if not batch and chance.random() < 0.5:
                body = damaged(chance, body)
            self._current = f"{key.name} v{version}: {body[:200].hex()}"
            self.found.names[key.name] += 1
            return self._counted(_SIZE.pack(len(body)) + body)

    def _produce(self) -> ProduceRequest:
        chance = self._random
        partition = PartitionProduceData(index=0, records=some_batch(chance))
        topic = TopicProduceData(name=chance.choice(list(TOPICS)), partition_data=[partition])
        return ProduceRequest(acks=chance.choice((-1, 0, 1)), timeout_ms=1000, topic_data=[topic])
