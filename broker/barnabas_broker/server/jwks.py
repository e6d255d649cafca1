"""The keys of a provider of tokens, read from a URL or a file, and again from time to time.

Imported only where OAUTHBEARER with signed tokens is configured, because it needs optional packages
(``barnabas[oauth]``).

A login never waits for the provider: a token is checked with the keys that are known. They are read at the start, then
every ``sasl.oauthbearer.jwks.endpoint.refresh.ms``, and sooner if a token has a key that is not among them, which is
how a new key of the provider becomes known. However many such tokens come, there are :data:`SOONER_SECONDS` between
two readings for them. A reading that fails is repeated with a back-off, and the earlier keys stay.

Source: Kafka's ``RefreshingHttpsJwks``.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import aiohttp

from barnabas_broker.config import ConfigError
from barnabas_broker.config.keys import SASL_OAUTHBEARER_JWKS_ENDPOINT_URL
from barnabas_broker.logs import logger
from barnabas_broker.security.tokens import LARGEST_SET, KeySet, KeysRefused, SignedTokens
from barnabas_broker.server.sasl import BearerSettings
from barnabas_protocol.printable import printable

log = logger("server")

#: Seconds for one answer of a provider.
ANSWER_SECONDS: Final = 10.0
#: Seconds between two readings because of tokens whose key is not known.
SOONER_SECONDS: Final = 10.0
#: Minimum seconds to wait after a failure.
SHORTEST_SECONDS: Final = 0.1
_SHOWN: Final = 200

#: Reads the text of a set of keys. Raises OSError, or :exc:`KeysRefused`.
Read = Callable[[], Awaitable[bytes]]


class KeySource:
    """The keys of a provider, kept up to date by a task.

    Args:
        read: reads their text.
        place: where from, for the log.
        refresh: seconds between two readings.
        backoff: seconds to wait after a failure; twice as long after each further one.
        most: seconds to wait at most.

    Attributes:
        keys: the keys; None as long as none could be read.
    """

    def __init__(self, read: Read, place: str, refresh: float, backoff: float, most: float) -> None:
        self.keys: KeySet | None = None
        self._read = read
        self._place = place
        self._refresh = refresh
        self._backoff = backoff
        self._most = most
        self._sooner = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: Since the last reading that succeeded.
        self._failures = 0

    async def start(self) -> str:
        """Read for the first time, then begin to read again.

        Returns:
            Why the keys could not be read; "" if they were.
        """
        self._failures = 0 if not (reason := await self._update()) else 1
        self._task = asyncio.get_running_loop().create_task(self._keep())
        return reason

    async def stop(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def missing(self) -> None:
        """A token has a key that is not known: read sooner."""
        self._sooner.set()

    async def _keep(self) -> None:
        while True:
            if self._failures:
                await asyncio.sleep(self._pause())
            else:
                await self._wait()
            self._failures = self._failures + 1 if await self._update() else 0

    def _pause(self) -> float:
        """Seconds until the next reading after a failure."""
        return max(min(self._backoff * 2.0 ** min(self._failures - 1, 30), self._most), SHORTEST_SECONDS)

    async def _wait(self) -> None:
        """Wait until the keys have to be read again: after some time, or because of a token."""
        try:
            async with asyncio.timeout(self._refresh):
                # A token that comes in these seconds brings a reading at their end.
                await asyncio.sleep(SOONER_SECONDS)
                await self._sooner.wait()
        except TimeoutError:
            pass

    async def _update(self) -> str:
        """Read once: why the keys could not be read, or ""."""
        # Whatever comes from now on may be for a newer set.
        self._sooner.clear()
        try:
            # In a thread, because many keys take some milliseconds.
            keys = await asyncio.to_thread(KeySet.of_json, await self._read())
        except (OSError, KeysRefused, aiohttp.ClientError) as error:
            reason = printable((str(error) or "no answer in time")[:_SHOWN])
            # The first failures, then fewer and fewer.
            if self._failures & (self._failures + 1) == 0:
                stays = "the earlier keys stay" if self.keys is not None else "tokens are refused until then"
                log.warning("keys of tokens not read", place=self._place, reason=reason, result=stays)
            return reason
        if self.keys is None or self._failures or len(keys) != len(self.keys):
            log.info("keys of tokens read", place=self._place, keys=len(keys))
        self.keys = keys
        return ""


async def open_tokens(settings: BearerSettings, wall_ms: Callable[[], int], stack: AsyncExitStack) -> SignedTokens:
    """Begin to read the keys of a provider, and check tokens with them until `stack` is closed.

    A provider that cannot be reached does not keep the broker from starting. A file that cannot be used does.

    Raises:
        ConfigError: a file cannot be used.
    """
    try:
        read = reader(settings.url, settings.cafile)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"ssl.truststore.location={settings.cafile}: it cannot be used: {reason}") from error
    source = KeySource(read, settings.url, settings.refresh, settings.backoff, settings.backoff_max)
    stack.push_async_callback(source.stop)
    reason = await source.start()
    if reason and urlsplit(settings.url).scheme == "file":
        raise ConfigError(f"{SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name}={settings.url}: {reason}")
    return SignedTokens(settings.rules, lambda: source.keys, wall_ms, source.missing)


def reader(url: str, cafile: str) -> Read:
    """Reader of the set of keys at a URL: https, file, or http on the loopback address.

    Args:
        url: the URL, which has been checked.
        cafile: a PEM file with the authorities of the provider's certificate; "" for those of the system.

    Raises:
        OSError: `cafile` cannot be used.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return lambda: asyncio.to_thread(_read_file, Path(url2pathname(parts.path)))
    context = ssl.create_default_context(cafile=cafile or None)
    return lambda: _fetch(url, context)


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_SET + 1)


async def _fetch(url: str, context: ssl.SSLContext) -> bytes:
    """Ask a provider.

    Raises:
        OSError: it cannot be reached, or does not answer in time.
        KeysRefused: its answer is an error, or too long.
    """
    limit = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    plain = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with (
        aiohttp.ClientSession(timeout=limit, headers=plain, auto_decompress=False) as session,
        # Another address that the answer names was not configured, and may be less secure.
        session.get(url, ssl=context, allow_redirects=False) as response,
    ):
        if response.status != 200:
            raise KeysRefused(f"the provider answers with status {response.status}")
        found = bytearray()
        async for chunk in response.content.iter_any():
            found += chunk
            if len(found) > LARGEST_SET:
                raise KeysRefused(f"it has more than {LARGEST_SET} bytes")
        return bytes(found)
