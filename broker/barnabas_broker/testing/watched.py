"""A broker whose requests are seen, and meet faults, on their way to the handlers."""

import asyncio
from typing import Any, Final

from barnabas_broker.broker import Broker
from barnabas_broker.config.config import Config
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Dispatch
from barnabas_broker.server.server import Connection, Peer
from barnabas_broker.testing.rules import Rules
from barnabas_broker.testing.seen import RequestLog
from barnabas_broker.testing.tap import Tap
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.registry import ApiKey

#: Seconds that a stop waits for answers that are on their way. Tests that stop brokers do not want to wait for members
#: that wait for each other.
GRACE_SECONDS: Final = 0.5


class WatchedBroker(Broker):
    """A broker with a tap.

    Args:
        config: its configuration.
        host: the address to listen on.
        port: the port to listen on; 0 picks a free one.
        log: where requests are remembered.
        rules: the faults that they meet.
    """

    def __init__(self, config: Config, host: str, port: int, log: RequestLog, rules: Rules) -> None:
        super().__init__(config, host, port)
        self._log = log
        self._rules = rules
        self._dispatch: Dispatch | None = None
        self._tap: Tap | None = None

    async def start(self) -> None:
        await super().start()
        server = self._server
        assert server is not None and isinstance(server.dispatch, Dispatch)
        self._dispatch = server.dispatch
        self._tap = server.dispatch = Tap(self._dispatch, self._log, self._rules)
        # A group's first member shall not have to come again because its coordinator is being made.
        await self.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["test"]))
        assert self._group_partitions is not None
        await asyncio.gather(*self._group_partitions.loading)

    async def stop(self) -> None:
        self._dispatch = self._tap = None
        if self._server is not None:
            await self._server.stop(GRACE_SECONDS)
        await super().stop()

    @property
    def dispatch(self) -> Dispatch:
        """The handlers without the tap."""
        assert self._dispatch is not None
        return self._dispatch

    async def ask(self, key: ApiKey, request: Any) -> Any:
        """Ask a handler that answers later, beside the tap."""
        route = self.dispatch.handlers[key]
        context = RequestContext(self.dispatch.services, Peer("test", 0), route.served(key).high, "test")
        answer: Any = route.handler(context, request)
        return await answer

    @property
    def tap(self) -> Tap:
        """The tap; the broker must be started."""
        assert self._tap is not None
        return self._tap

    def disconnect(self, client_id: str | None) -> int:
        """Close connections now, without answering what is asked on them.

        Args:
            client_id: of these clients; None for all.

        Returns:
            How many were closed.
        """
        assert self._server is not None
        connections: list[Connection] = list(self._server._connections)
        peers = self.tap.peers_of(client_id, [connection.peer for connection in connections])
        for connection in connections:
            if connection.peer in peers:
                connection.abort()
        return len(peers)
