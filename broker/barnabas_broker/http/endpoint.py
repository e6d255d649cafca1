"""The HTTP server. The only module of the broker that needs aiohttp."""

import asyncio
import json
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import Any, Final

import xxhash
from aiohttp import web

from barnabas_broker.groups.events.chart import chart
from barnabas_broker.http import assets
from barnabas_broker.http.families import exposition
from barnabas_broker.http.groups import all_groups, one_group
from barnabas_broker.http.history import recorded, version_of
from barnabas_broker.http.process import LoopLag
from barnabas_broker.http.text import gather, listing
from barnabas_broker.http.view import View
from barnabas_broker.logs import logger

log = logger("http")

JSON: Final = "application/json; charset=utf-8"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
#: What is served, and what it is: the response to ``/``.
PATHS: Final = {
    "/": "this list; the page in a browser",
    "/metrics": "metrics in Prometheus' text format",
    "/groups": "the consumer groups that this broker coordinates",
    "/groups/{id}": "a group's members and offsets",
    "/groups/{id}/history": "a group's last events",
    "/groups/{id}/chart": "a group on a time axis, with explanations: since=MS (default: an hour ago)",
    "/healthz": "200 while the event loop runs",
    "/readyz": "200, or 503 with the reasons why the broker is not ready",
}
#: Partitions that ``/readyz`` names.
WAITING_SHOWN: Final = 20
#: Seconds that a stop waits for responses that are not sent yet.
GRACE: Final = 1.0
#: Bytes of a request line: a group id has up to 32,767, percent-encoded three times as many.
_LONGEST_LINE: Final = 100 * 1024
#: What a chart shows unless its request says since when: the last hour, in ms.
CHART_MS: Final = 3_600_000
#: Charts that are kept to answer further requests for them.
_CHARTS: Final = 32
#: Seconds for which a list of groups may be sent to requests with ``Cache-Control: max-age``.
_LIST_SECONDS: Final = 1.0
#: The page loads its own files only, and no script or style that is not one of them.
_POLICY: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

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
        self._assets = assets.load()
        self._list: tuple[float, list[bytes]] | None = None
        self._listing: asyncio.Task[list[bytes]] | None = None
        self._charts: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()
        app = web.Application(middlewares=[_plainly])
        app.router.add_get("/page/{file}", self._asset)
        for path, handler in zip(
            PATHS,
            (
                self._index,
                self._metrics,
                self._groups,
                self._group,
                self._history,
                self._chart,
                self._health,
                self._readiness,
            ),
            strict=True,
        ):
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=GRACE, max_line_size=_LONGEST_LINE
        )

    async def start(self) -> None:
        """Start to answer."""
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()
        self._lag.start()

    async def stop(self) -> None:
        """Stop to answer."""
        self._lag.stop()
        for task in (self._scrape, self._listing, *self._charts.values()):
            if task is not None:
                task.cancel()
        await self._runner.cleanup()

    # Paths

    async def _index(self, request: web.Request) -> web.Response:
        if "text/html" in request.headers.get("Accept", ""):
            return _file(request, self._assets["index.html"], {"Vary": "Accept, Accept-Encoding"})
        return _json(
            {"node_id": self._view.node_id, "version": self._view.version, "paths": PATHS}, 200, {"Vary": "Accept"}
        )

    async def _asset(self, request: web.Request) -> web.Response:
        found = self._assets.get(request.match_info["file"])
        if found is None:
            raise web.HTTPNotFound
        return _file(request, found, {"Vary": "Accept-Encoding"})

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
        # Pages ask every second or two, and say that a list of this age is good enough for them: any number of pages
        # then costs no more than one.
        fresh = (
            "max-age" not in request.headers.get("Cache-Control", "") or "max-age=0" in request.headers["Cache-Control"]
        )
        if fresh or self._list is None or time.monotonic() - self._list[0] > _LIST_SECONDS:
            if self._listing is None or fresh:
                pieces = gather(chain(all_groups(self._view), "\n"), time.perf_counter)
                self._listing = asyncio.get_running_loop().create_task(pieces)
            task = self._listing
            try:
                chunks = await asyncio.shield(task)
            finally:
                if self._listing is task:
                    self._listing = None
            self._list = (time.monotonic(), chunks)
        else:
            chunks = self._list[1]
        etag = f'"{xxhash.xxh3_64_hexdigest(b"".join(chunks))}"'
        if _unchanged(request, etag):
            return web.Response(status=304, headers={"ETag": etag})
        return await _send(request, chunks, JSON, {"ETag": etag, "Cache-Control": "no-cache"})

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

    async def _chart(self, request: web.Request) -> web.StreamResponse:
        group_id = request.match_info["id"]
        now = self._view.wall_ms()
        try:
            since = int(request.query["since"]) if "since" in request.query else now - CHART_MS
        except ValueError:
            return _json({"error": "since: must be a time in ms since 1970"}, 400)
        if group_id not in self._view.groups.groups and not self._view.history.recent(group_id):
            return self._missing(group_id)
        # Without `since` the chart of a quiet group would change every ms: it begins at a whole minute instead.
        since = max(since - since % 60_000, 0)
        version = version_of(self._view.history.recent(group_id))
        etag = f'"{xxhash.xxh3_64_hexdigest(f"{group_id}/{since}/{version}".encode("utf-8", "replace"))}"'
        if _unchanged(request, etag):
            return web.Response(status=304, headers={"ETag": etag})
        # Several pages may show the same group: each version of its chart is made once.
        task = self._charts.get(etag)
        if task is None:
            task = self._charts[etag] = asyncio.get_running_loop().create_task(self._make_chart(group_id, since))
            if len(self._charts) > _CHARTS:
                self._charts.popitem(last=False)
        try:
            body = await asyncio.shield(task)
        except Exception:
            self._charts.pop(etag, None)
            raise
        return await _send(request, [body], JSON, {"ETag": etag, "Cache-Control": "no-cache"})

    async def _make_chart(self, group_id: str, since: int) -> bytes:
        events = await recorded(self._view, group_id, since)

        def encode() -> bytes:
            made = {"group": group_id, "since": since, **chart(events)}
            return json.dumps(made).encode() + b"\n"

        return await asyncio.to_thread(encode)

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


async def _send(
    request: web.Request, chunks: list[bytes], content_type: str, headers: dict[str, str] | None = None
) -> web.StreamResponse:
    """Send chunks, as fast as the client reads them."""
    response = web.StreamResponse(headers={"Content-Type": content_type, **(headers or {})})
    response.content_length = sum(map(len, chunks))
    await response.prepare(request)
    if request.method != "HEAD":
        for chunk in chunks:
            await response.write(chunk)
    await response.write_eof()
    return response


def _file(request: web.Request, asset: assets.Asset, headers: dict[str, str]) -> web.Response:
    """The response with a file of the page: compressed if the browser can read that, 304 if it has the file."""
    more = {**_POLICY, **headers, "ETag": asset.etag, "Cache-Control": "no-cache"}
    if _unchanged(request, asset.etag):
        return web.Response(status=304, headers=more)
    body = asset.plain
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body = asset.compressed
        more["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers={"Content-Type": asset.content_type, **more})


def _unchanged(request: web.Request, etag: str) -> bool:
    """Whether the client has the version with this ETag."""
    return etag in request.headers.get("If-None-Match", "")


def _json(value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=json.dumps(value).encode() + b"\n", status=status, headers={"Content-Type": JSON, **(headers or {})}
    )
