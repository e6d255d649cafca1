"""The HTTP server. The only module of the broker that needs aiohttp."""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import Any, Final

from aiohttp import web

from barnabas_broker.http.families import exposition
from barnabas_broker.http.groups import all_groups, one_group
from barnabas_broker.http.process import LoopLag
from barnabas_broker.http.text import gather, listing
from barnabas_broker.http.view import View
from barnabas_broker.logs import logger

log = logger("http")

JSON: Final = "application/json; charset=utf-8"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
#: What is served, and what it is: the response to ``/``.
PATHS: Final = {
    "/": "this list",
    "/metrics": "metrics in Prometheus' text format",
    "/groups": "the consumer groups that this broker coordinates",
    "/groups/{id}": "a group's members and offsets",
    "/groups/{id}/history": "a group's last events",
    "/healthz": "200 while the event loop runs",
    "/readyz": "200, or 503 with the reasons why the broker is not ready",
}
#: Partitions that ``/readyz`` names.
WAITING_SHOWN: Final = 20
#: Seconds that a stop waits for responses that are not sent yet.
GRACE: Final = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """Answers GET and HEAD requests about the broker.

    Args:
        view: the broker's parts.
        listener: a bound socket.
    """

    def __init__(self, view: View, listener: socket.socket) -> None:
        self._view = view
        self._listener = listener
        self._lag = LoopLag(time.monotonic, asyncio.get_running_loop().call_later)
        self._scrape: asyncio.Task[list[bytes]] | None = None
        app = web.Application(middlewares=[_plainly])
        for path, handler in zip(
            PATHS,
            (self._index, self._metrics, self._groups, self._group, self._history, self._health, self._readiness),
            strict=True,
        ):
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=GRACE)

    async def start(self) -> None:
        """Start to answer."""
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()
        self._lag.start()

    async def stop(self) -> None:
        """Stop to answer."""
        self._lag.stop()
        if self._scrape is not None:
            self._scrape.cancel()
        await self._runner.cleanup()

    # Paths

    async def _index(self, request: web.Request) -> web.Response:
        return _json({"node_id": self._view.node_id, "version": self._view.version, "paths": PATHS})

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        # Requests during a scrape share its result, so that any number of them costs no more than one.
        if self._scrape is None:
            pieces = gather(exposition(self._view, self._lag), time.perf_counter)
            self._scrape = asyncio.get_running_loop().create_task(pieces)
            self._scrape.add_done_callback(self._scraped)
        return await _send(request, await asyncio.shield(self._scrape), PROMETHEUS)

    def _scraped(self, task: "asyncio.Task[list[bytes]]") -> None:
        self._scrape = None

    async def _groups(self, request: web.Request) -> web.StreamResponse:
        return await _send_json(request, all_groups(self._view))

    async def _group(self, request: web.Request) -> web.StreamResponse:
        group_id = request.match_info["id"]
        hosted = self._view.groups.groups.get(group_id)
        if hosted is None:
            return self._missing(group_id)
        return await _send_json(request, one_group(self._view, hosted))

    async def _history(self, request: web.Request) -> web.StreamResponse:
        group_id = request.match_info["id"]
        events = self._view.history.recent(group_id)
        if not events and group_id not in self._view.groups.groups:
            return self._missing(group_id)
        return await _send_json(request, listing({"group": group_id}, "events", events))

    def _missing(self, group_id: str) -> web.Response:
        """The response for a group that is not here: 503 while its partition is being loaded, otherwise 404."""
        groups = self._view.groups
        partition = groups.partition_for(group_id)
        if partition in self._view.unloaded():
            return _json({"error": f"group {group_id} is being loaded"}, 503)
        return _json({"error": f"this broker has no group {group_id}"}, 404)

    async def _health(self, request: web.Request) -> web.Response:
        member = self._view.member()
        cluster = {} if member is None else {"cluster": member}
        return _json({"status": "ok", "node_id": self._view.node_id, "version": self._view.version, **cluster})

    async def _readiness(self, request: web.Request) -> web.Response:
        obstacles = self._view.obstacles()
        if obstacles:
            return _json({"status": "not ready", "reasons": obstacles}, 503)
        damage, waiting = self._view.damage(), self._view.waiting()
        more: dict[str, Any] = {"damaged": damage} if damage else {}
        if waiting:
            # Still ready: where brokers start one after the other, the awaited ones would never start otherwise.
            more |= {"partitions_without_leader": len(waiting), "waiting": waiting[:WAITING_SHOWN]}
        return _json({"status": "ready", **more})


@web.middleware
async def _plainly(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error with one line of JSON; the details go to the log."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _json({"error": "no such path", "paths": list(PATHS)}, 404)
    except web.HTTPMethodNotAllowed:
        return _json({"error": "only GET and HEAD are answered"}, 405, {"Allow": "GET, HEAD"})
    except web.HTTPException as error:
        return _json({"error": error.reason}, error.status)
    except Exception:
        log.exception("HTTP request failed", path=request.path)
        return _json({"error": "internal error, see the broker's log"}, 500)


async def _send_json(request: web.Request, pieces: Iterable[str]) -> web.StreamResponse:
    """Send a long text of JSON, and the newline that a terminal needs after it."""
    return await _send(request, await gather(chain(pieces, "\n"), time.perf_counter), JSON)


async def _send(request: web.Request, chunks: list[bytes], content_type: str) -> web.StreamResponse:
    """Send chunks, as fast as the client reads them."""
    response = web.StreamResponse(headers={"Content-Type": content_type})
    response.content_length = sum(map(len, chunks))
    await response.prepare(request)
    if request.method != "HEAD":
        for chunk in chunks:
            await response.write(chunk)
    await response.write_eof()
    return response


def _json(value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=json.dumps(value).encode() + b"\n", status=status, headers={"Content-Type": JSON, **(headers or {})}
    )
