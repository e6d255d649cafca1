"""The console over HTTP. It needs aiohttp."""

import asyncio
import json
import secrets
import socket
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import xxhash
from aiohttp import web

from barnabas.console.cluster import Cluster
from barnabas.console.histories import GroupHistory, Histories
from barnabas.console.records import RecordReader
from barnabas.console.resets import Resets
from barnabas.console.survey import Survey
from barnabas_broker.http import assets
from barnabas_broker.http.access import AllowedHosts, HttpLogin
from barnabas_broker.http.responses import (
    JSON,
    HttpRoute,
    about,
    application,
    as_json,
    number_in,
    page_or_paths,
    records_query,
    send,
    unchanged,
)
from barnabas_broker.http.serving import HttpServer
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.failures import CommandError
from barnabas_client.logs import logger
from barnabas_protocol.errors import KafkaError

log = logger("barnabas_client.console")

RESET_PATH: Final = "/groups/{id}/offsets"
#: The header with the token of a request that changes something. Pages of other origins cannot send it.
TOKEN_HEADER: Final = "X-Barnabas-Token"
#: What a chart shows unless its request says since when: the last hour, in ms.
_CHART_MS: Final = 3_600_000
#: Seconds that a request for a chart waits until the events were read; then it gets those that were.
_PATIENCE: Final = 1.5
#: Charts that are kept to answer further requests for them.
_CHARTS: Final = 16
#: Connections at a time.
_MOST_CONNECTIONS: Final = 100
#: Maximum bytes of a request body.
_MOST_BYTES: Final = 256 * 1024
#: The status when no broker answers, or one refuses: the console does what a gateway does.
_BAD_GATEWAY: Final = 502


class Console:
    """Answers requests of the page about a cluster.

    Args:
        cluster: its groups.
        histories: the events of groups.
        survey: its topics, brokers, transactions and ACLs.
        records: reads records of topics.
        hidden: why records are not shown; None if they are.
        resets: offset resets; None if nothing may be changed.
        about: `version` and `brokers`, and the `title` that the page shows.
        token: requests that change something have it in :data:`TOKEN_HEADER`; "" if nothing may be changed.
        wall_ms: the time of day, in ms since 1970.
        hosts: the names that requests may be for.
        login: what requests need.
        listener: a bound socket.
    """

    def __init__(
        self,
        cluster: Cluster,
        histories: Histories,
        survey: Survey,
        records: RecordReader,
        hidden: str | None,
        resets: Resets | None,
        about: dict[str, Any],
        token: str,
        wall_ms: Callable[[], int],
        hosts: AllowedHosts,
        login: HttpLogin,
        listener: socket.socket,
    ) -> None:
        self._cluster, self._histories, self._resets = cluster, histories, resets
        self._survey, self._records, self._hidden = survey, records, hidden
        self._about, self._token, self._wall_ms = about, token, wall_ms
        self._assets = assets.load()
        self._charts: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()
        self._routes = (
            HttpRoute("/", "this list; the page in a browser", self._index),
            HttpRoute("/groups", "the consumer groups of the cluster", self._groups),
            HttpRoute("/groups/{id}", "a group's members and offsets", self._group),
            HttpRoute(
                "/groups/{id}/chart",
                "a group on a time axis, with explanations: since=MS (default: an hour ago)",
                self._chart,
            ),
            HttpRoute(
                "/groups/{id}/curves",
                "a group's lag, commit rate and produce rate since its page was opened: since=MS",
                self._curves,
            ),
            HttpRoute("/topics", "the topics, with offsets and sizes", self._topics),
            HttpRoute("/topics/{topic}", "a topic's partitions and configuration", self._topic),
            HttpRoute(
                "/topics/{topic}/records",
                "some records: last ones, since=MS or after=PARTITION:OFFSET,...; partition=N, count=N",
                self._topic_records,
            ),
            HttpRoute(
                "/transactions", "the open transactions, and the partitions that wait for them", self._transactions
            ),
            HttpRoute("/brokers", "the brokers, with their log directories", self._brokers),
            HttpRoute("/acls", "what principals may do", self._acls),
            HttpRoute("/healthz", "200 while the event loop runs", self._health, probe=True),
        )
        app = application(
            self._routes, self._assets, hosts, login, _refused, _failed, _brokers_fail, most_bytes=_MOST_BYTES
        )
        if resets is not None:
            app.router.add_post(RESET_PATH, self._reset)
        self._server = HttpServer(app, listener, None, _MOST_CONNECTIONS, "connections of the console")

    async def start(self) -> None:
        """Start to answer."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop to answer."""
        for task in self._charts.values():
            task.cancel()
        await self._server.stop()

    # Paths

    async def _index(self, request: web.Request) -> web.Response:
        index = {**self._about, "changes": self._resets is not None, "paths": about(self._routes)}
        return page_or_paths(request, self._assets, index)

    async def _health(self, request: web.Request) -> web.Response:
        return as_json({"status": "ok", **self._about})

    async def _groups(self, request: web.Request) -> web.StreamResponse:
        return await _send_answer(request, await self._cluster.groups())

    async def _group(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        group = await self._cluster.group(name)
        if group is None:
            return as_json({"error": f"this cluster has no group {name}"}, 404)
        return await _send_answer(request, group)

    async def _chart(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        now = self._wall_ms()
        since = min(number_in(request, "since", now - _CHART_MS), now)
        history = self._histories.of(name, max(since - since % 60_000, 0))
        await history.settled(_PATIENCE)
        etag = _tag(f"{name}/{id(history)}/{history.since}/{history.version}".encode("utf-8", "replace"))
        if unchanged(request, etag):
            return web.Response(status=304, headers={"ETag": etag})
        # Several pages may show the same group: each version of its chart is made once.
        task = self._charts.get(etag)
        if task is None:
            task = self._charts[etag] = asyncio.get_running_loop().create_task(_make_chart(name, history))
            if len(self._charts) > _CHARTS:
                self._charts.popitem(last=False)
        try:
            body = await asyncio.shield(task)
        except Exception:
            self._charts.pop(etag, None)
            raise
        return await _send_tagged(request, body, etag)

    async def _curves(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        since = number_in(request, "since", 0)
        version, curves = self._cluster.curves(name, since)
        etag = f'"{since}-{version}"'
        if unchanged(request, etag):
            return web.Response(status=304, headers={"ETag": etag})
        return as_json({"group": name, **curves}, 200, {"ETag": etag, "Cache-Control": "no-cache"})

    async def _topics(self, request: web.Request) -> web.StreamResponse:
        return await _send_answer(request, await self._survey.topics())

    async def _topic(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["topic"]
        topic = await self._survey.topic(name)
        if topic is None:
            return as_json({"error": f"this cluster has no topic {name}"}, 404)
        return await _send_answer(request, topic)

    async def _topic_records(self, request: web.Request) -> web.StreamResponse:
        if self._hidden is not None:
            return as_json({"error": self._hidden}, 403)
        name, wanted = request.match_info["topic"], records_query(request)
        topic = await self._survey.metadata_of(name)
        if topic is None:
            return as_json({"error": f"this cluster has no topic {name}"}, 404)
        led = sorted(number for number, each in topic.partitions.items() if each.leader >= 0)
        if wanted.partition is not None:
            if wanted.partition not in led:
                return as_json({"error": f"partition {wanted.partition} of the topic has no leader"}, 404)
            led = [wanted.partition]
        found = await self._records.read(topic, led, wanted.most, after=wanted.after, since=wanted.since)
        body = await _encoded({"topic": name, "time": self._wall_ms(), **found})
        return await send(request, [body], JSON)

    async def _transactions(self, request: web.Request) -> web.StreamResponse:
        return await _send_answer(request, await self._survey.transactions())

    async def _brokers(self, request: web.Request) -> web.StreamResponse:
        return await _send_answer(request, await self._survey.brokers())

    async def _acls(self, request: web.Request) -> web.StreamResponse:
        return await _send_answer(request, await self._survey.acls())

    async def _reset(self, request: web.Request) -> web.Response:
        """Plan an offset reset, or execute a plan."""
        assert self._resets is not None
        self._check_origin(request)
        try:
            wanted = json.loads(await request.read())
        except (ValueError, RecursionError):
            wanted = None
        if not isinstance(wanted, dict):
            return as_json({"error": "the body must be a JSON object"}, 400)
        name = request.match_info["id"]
        try:
            if "plan" in wanted:
                return as_json(await self._resets.execute(name, str(wanted["plan"])))
            return as_json(await self._resets.plan(name, wanted))
        except ValueError as error:
            return as_json({"error": str(error)}, 400)
        except (CommandError, KafkaError) as error:
            return as_json({"error": for_command_line(error)}, 409)

    def _check_origin(self, request: web.Request) -> None:
        """Refuse what the page of this console has not sent.

        Raises:
            HTTPForbidden: the token is missing, or a browser says that another page has sent it.
            HTTPUnsupportedMediaType: the body is not JSON, which a form of another page could send.
        """
        given = request.headers.get(TOKEN_HEADER, "")
        if not secrets.compare_digest(given.encode("utf-8", "replace"), self._token.encode()):
            raise web.HTTPForbidden(reason="the token is missing or wrong: open the address that the console printed")
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{request.host}":
            raise web.HTTPForbidden(reason="the request is from a page of another origin")
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise web.HTTPForbidden(reason="the request is from a page of another site")
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(reason="the body must be application/json")


@web.middleware
async def _brokers_fail(request: web.Request, handler: Any) -> web.StreamResponse:
    """Say what brokers answer, or that they do not."""
    try:
        response: web.StreamResponse = await handler(request)
    except (KafkaError, CommandError) as error:
        return as_json({"error": for_command_line(error)}, _BAD_GATEWAY)
    return response


async def _make_chart(name: str, history: GroupHistory) -> bytes:
    draw = history.chart()
    return await asyncio.to_thread(lambda: json.dumps({"group": name, **draw()}).encode() + b"\n")


async def _encoded(value: dict[str, Any]) -> bytes:
    return await asyncio.to_thread(lambda: json.dumps(value).encode() + b"\n")


def _tag(body: bytes) -> str:
    return f'"{xxhash.xxh3_64_hexdigest(body)}"'


async def _send_answer(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
    body = await _encoded(answer)
    return await _send_tagged(request, body, _tag(body))


async def _send_tagged(request: web.Request, body: bytes, etag: str) -> web.StreamResponse:
    if unchanged(request, etag):
        return web.Response(status=304, headers={"ETag": etag})
    return await send(request, [body], JSON, {"ETag": etag, "Cache-Control": "no-cache"})


def _refused(request: web.Request) -> None:
    log.warning("wrong token", host=request.remote)


def _failed(request: web.Request) -> str:
    log.error("HTTP request failed", path=request.path, reason=traceback.format_exc())
    return "internal error of the console: see what it printed"
