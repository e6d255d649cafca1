"""Sends requests with odd values, and damaged ones, and watches what they cost the broker.

The broker runs in this event loop. After each request comes an ApiVersions request: its response shows that the broker
has dealt with the first one. A request may wait for long (a Fetch, a JoinGroup), so that its connection is closed after
:data:`PATIENCE`; one that waits longer elsewhere would show in the time between two turns of the loop.
"""

import asyncio
import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from barnabas_broker.broker import BrokerServer
from barnabas_protocol.codec import encode_request
from barnabas_protocol.errors import EncodeError
from barnabas_protocol.messages.api_versions import ApiVersionsRequest
from barnabas_protocol.registry import APIS, ApiKey, api
from tests.protocol.support import damaged, some

#: Seconds until a connection with a request that waits is closed.
PATIENCE: Final = 0.05
#: Connections at a time.
CONNECTIONS: Final = 4

_ASK: Final = encode_request(ApiVersionsRequest(), 0, -7, "fuzz")
_SIZE: Final = struct.Struct(">i")


@dataclass
class Findings:
    """What an attack has shown.

    Attributes:
        requests: how many were sent.
        closed: how many of them made the broker close the connection.
        waited: how many waited for longer than :data:`PATIENCE`.
        held: the longest processor time of the loop's thread between two turns, in seconds.
        holder: a request that was under way then.
        names: requests by API.
    """

    requests: int = 0
    closed: int = 0
    waited: int = 0
    held: float = 0.0
    holder: str = ""
    names: Counter[str] = field(default_factory=Counter)


class Attack:
    """An attack on a broker that runs in this event loop.

    Args:
        broker: the broker.
        seed: the same seed makes the same requests.
        watch: is called with the number of requests sent, now and then.
    """

    def __init__(self, broker: BrokerServer, seed: int, watch: Callable[[int], None] = lambda sent: None) -> None:
        self.found = Findings()
        self._port = broker.port
        self._random = random.Random(seed)
        self._watch = watch
        self._left = 0
        self._current = ""
        self._last = time.thread_time()
        self._ended = False

    async def run(self, requests: int) -> Findings:
        """Send requests over several connections, and return what they have shown."""
        self._left = requests
        self._last = time.thread_time()
        self._turn()
        try:
            await asyncio.gather(*(self._connection() for _ in range(CONNECTIONS)))
        finally:
            self._ended = True
        return self.found

    def _turn(self) -> None:
        now = time.thread_time()
        if now - self._last > self.found.held:
            self.found.held, self.found.holder = now - self._last, self._current
        self._last = now
        if not self._ended:
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
        """Send a request; whether the connection is still of use."""
        self._left -= 1
        self.found.requests += 1
        if not self.found.requests % 1000:
            self._watch(self.found.requests)
        frame = self._request()
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(frame + _ASK)
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

    def _request(self) -> bytes:
        chance = self._random
        while True:
            key = chance.choice(list(APIS))
            declared = api(ApiKey(key)).request
            version = chance.choice(list(declared.VERSIONS))
            try:
                frame = encode_request(some(chance, declared, version), version, 1, "fuzz")
            except EncodeError:
                continue
            body = frame[4:]
            if chance.random() < 0.5:
                body = damaged(chance, body)
            self._current = f"{ApiKey(key).name} v{version}: {body[:200].hex()}"
            self.found.names[ApiKey(key).name] += 1
            return _SIZE.pack(len(body)) + body
