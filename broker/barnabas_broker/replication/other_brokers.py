"""Messages to the group coordinators of other brokers. A shell."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from barnabas_broker.coordinators.ports import Peers
from barnabas_broker.log_throttle import FoldedLines
from barnabas_broker.logs import logger
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas_protocol.wire import Buffer

log = logger("coordinator")

_VERSION: Final = 0
#: Seconds that an answer may take, and messages without one, beyond which no further one is sent.
_SECONDS: Final = 5.0
_MOST_ASKING: Final = 1_000
#: A broker that has not answered is not asked for so many seconds: an older one closes each connection on which it is.
_PAUSE: Final = 5.0


class OtherCoordinators:
    """Implements :class:`.OtherBrokers`.

    Args:
        node_ids: of the other brokers.
        peers: the other brokers.
        advertised: the address that one of them advertises to the clients of a listener.
    """

    def __init__(
        self,
        node_ids: Callable[[], Collection[int]],
        peers: Peers,
        advertised: Callable[[int, str], str | None],
    ) -> None:
        self._node_ids = node_ids
        self._advertised = advertised
        self._peers = peers
        self._asking: set[asyncio.Task[None]] = set()
        #: When the brokers that have not answered are asked again.
        self._again_at: dict[int, float] = {}
        self._lines = FoldedLines(asyncio.get_running_loop().time)

    def all(self) -> Collection[int]:
        """See there."""
        return self._node_ids()

    def advertised(self, node_id: int, listener: str) -> str | None:
        """See there."""
        return self._advertised(node_id, listener)

    def ask(self, node_id: int, message: bytes, done: Callable[[Buffer | None], None]) -> None:
        """See there."""
        loop = asyncio.get_running_loop()
        if len(self._asking) >= _MOST_ASKING or loop.time() < self._again_at.get(node_id, 0.0):
            loop.call_soon(done, None)
            return
        asking = loop.create_task(self._ask(node_id, message, done))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _ask(self, node_id: int, message: bytes, done: Callable[[Buffer | None], None]) -> None:
        answer: Buffer | None = None
        try:
            request = EnvelopeRequest(request_data=message, request_principal=None, client_host_address=b"")
            frame = await self._peers.ask(node_id, request, _VERSION, _SECONDS)
            response = decode_response(EnvelopeResponse, _VERSION, frame)
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(ErrorCode.of(response.error_code))
            answer = response.response_data
            self._again_at.pop(node_id, None)
        except (KafkaError, DecodeError, OSError) as error:
            self._again_at[node_id] = asyncio.get_running_loop().time() + _PAUSE
            reason = error.code.name if isinstance(error, KafkaError) else str(error) or type(error).__name__
            self._lines.add(
                log.info,
                "another broker does not report the Fetches of members: whether they get on there is not known",
                "",
                node_id=node_id,
                reason=reason,
            )
        done(answer)
