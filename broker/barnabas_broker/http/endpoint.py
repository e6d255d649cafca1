"""The HTTP server of a broker. It needs aiohttp."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

import xxhash
from aiohttp import web

from barnabas_broker.config.keys import HTTP_MAX_CONNECTIONS
from barnabas_broker.http import assets
from barnabas_broker.http.access import AllowedHosts, HttpLogin
from barnabas_broker.http.client_metrics import all_clients, one_client
from barnabas_broker.http.cluster import all_acls, all_topics, disk_of, one_broker, one_topic
from barnabas_broker.http.groups import all_groups, one_group
from barnabas_broker.http.history import recorded, version_of
from barnabas_broker.http.json_rows import MOST_PARTITIONS
from barnabas_broker.http.metrics import exposition
from barnabas_broker.http.port import HttpTls
from barnabas_broker.http.process import LoopLag
from barnabas_broker.http.records import RecordReader
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
    send_json,
    unchanged,
)
from barnabas_broker.http.sampler import Sampler
from barnabas_broker.http.serving import HttpServer
from barnabas_broker.http.shares import one_share_group
from barnabas_broker.http.text import SharedText, collect, gather, listing
from barnabas_broker.http.transactions import all_transactions
from barnabas_broker.http.view import View
from barnabas_broker.logs import logger
from barnabas_broker.recent import Newest
from barnabas_explain.chart import chart
from barnabas_explain.records import record_of

log = logger("http")

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Why records are not shown.
HIDDEN: Final = (
    "records are not shown, because this port is open to other machines, or a listener has TLS or logins. "
    "To do: start the broker with --http-show-records if everyone who can reach the port may read all topics"
)
#: Partitions that ``/readyz`` names.
WAITING_SHOWN: Final = 20
#: What a chart shows unless its request says since when: the last hour, in ms.
CHART_MS: Final = 3_600_000
#: Charts that are kept to answer further requests for them.
_CHARTS: Final = 32
#: Seconds for which a list of groups may be sent to requests with ``Cache-Control: max-age``.
_LIST_SECONDS: Final = 1.0


class Endpoint:
    """Answers GET and HEAD requests about the broker.

    Args:
        view: the broker's parts.
        listener: a bound socket.
        hosts: the names that requests may be for.
        login: what requests need.
        tls: the certificate; None for plain HTTP.
        refused: called with the address of a client that has sent a wrong token.
        most: connections at a time.
    """

    def __init__(
        self,
        view: View,
        listener: socket.socket,
        hosts: AllowedHosts,
        login: HttpLogin,
        tls: HttpTls | None,
        refused: Callable[[str], None],
        most: int,
    ) -> None:
        self._view = view
        self._lag = LoopLag(time.monotonic, asyncio.get_running_loop().call_later)
        self._scrape: asyncio.Task[list[bytes]] | None = None
        self._assets = assets.load()
        self._sampler = Sampler(view)
        self._reader = RecordReader()
        self._disk: tuple[int, int] | None = None
        #: The texts of paths that have no parameters, each made once for the requests of a second.
        self._texts = {
            path: SharedText(pieces, _LIST_SECONDS)
            for path, pieces in (
                ("/groups", partial(all_groups, view)),
                ("/topics", partial(all_topics, view)),
                ("/transactions", partial(all_transactions, view)),
                ("/acls", partial(all_acls, view)),
                ("/client-metrics", partial(all_clients, view)),
                ("/broker", self._broker_pieces),
            )
        }
        self._charts: Newest[str, asyncio.Task[bytes]] = Newest(_CHARTS)
        self._routes = (
            HttpRoute("/", "this list; the page in a browser", self._index),
            HttpRoute("/metrics", "metrics in Prometheus' text format", self._metrics),
            HttpRoute("/groups", "the groups that this broker coordinates", self._listed),
            HttpRoute("/groups/{id}", "a group's members and offsets", self._group),
            HttpRoute("/groups/{id}/history", "a group's last events", self._history),
            HttpRoute(
                "/groups/{id}/chart",
                "a group on a time axis, with explanations: since=MS (default: an hour ago)",
                self._chart,
            ),
            HttpRoute(
                "/groups/{id}/curves",
                "a group's lag, commit rate and produce rate over the last hour: since=MS",
                self._curves,
            ),
            HttpRoute(
                "/groups/{id}/requests",
                "a group's last requests that changed it, or were refused",
                self._requests,
            ),
            HttpRoute(
                "/topics", "the topics, with offsets and sizes of the partitions that this broker leads", self._listed
            ),
            HttpRoute("/topics/{topic}", "a topic's partitions and configuration", self._topic),
            HttpRoute(
                "/topics/{topic}/records",
                "some records: last ones, since=MS or after=PARTITION:OFFSET,...; partition=N, count=N",
                self._records,
            ),
            HttpRoute("/broker", "this broker: requests, memory, log directory, place in the cluster", self._broker),
            HttpRoute("/transactions", "the open transactions, and the partitions that wait for them", self._listed),
            HttpRoute(
                "/client-metrics", "the clients that push metrics to this broker, and what they push", self._listed
            ),
            HttpRoute("/client-metrics/{id}", "the last values of a client's metrics", self._client),
            HttpRoute("/acls", "what principals may do", self._listed),
            HttpRoute("/healthz", "200 while the event loop runs", self._health, probe=True),
            HttpRoute(
                "/readyz", "200, or 503 with the reasons why the broker is not ready", self._readiness, probe=True
            ),
        )
        app = application(
            self._routes, self._assets, hosts, login, lambda request: refused(request.remote or ""), _failed
        )
        self._server = HttpServer(app, listener, None if tls is None else tls.context, most, HTTP_MAX_CONNECTIONS.name)

    async def start(self) -> None:
        """Start to answer."""
        await self._server.start()
        self._lag.start()
        self._sampler.start()

    async def stop(self) -> None:
        """Stop to answer."""
        self._lag.stop()
        self._sampler.stop()
        for text in self._texts.values():
            text.cancel()
        for task in (self._scrape, *self._charts.values()):
            if task is not None:
                task.cancel()
        await self._server.stop()

    # Paths

    async def _index(self, request: web.Request) -> web.Response:
        index = {"node_id": self._view.node_id, "version": self._view.version, "paths": about(self._routes)}
        return page_or_paths(request, self._assets, index)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        # Requests during a scrape share its result, so that any number of them costs no more than one.
        if self._scrape is None:
            pieces = gather(exposition(self._view, self._lag, self._server), time.perf_counter)
            self._scrape = asyncio.get_running_loop().create_task(pieces)
            self._scrape.add_done_callback(self._scraped)
        return await send(request, await asyncio.shield(self._scrape), PROMETHEUS)

    def _scraped(self, task: "asyncio.Task[list[bytes]]") -> None:
        self._scrape = None

    async def _listed(self, request: web.Request) -> web.StreamResponse:
        text = self._texts[request.path]
        # Pages ask every second or two, and say that a list of this age is good enough for them.
        control = request.headers.get("Cache-Control", "")
        chunks, etag = await text.get(fresh="max-age" not in control or "max-age=0" in control)
        if unchanged(request, etag):
            return web.Response(status=304, headers={"ETag": etag})
        return await send(request, chunks, JSON, {"ETag": etag, "Cache-Control": "no-cache"})

    async def _group(self, request: web.Request) -> web.StreamResponse:
        group_id = request.match_info["id"]
        share_group = self._view.share_group(group_id)
        if share_group is not None:
            return await send_json(request, one_share_group(self._view, share_group))
        hosted = self._view.groups.groups.get(group_id)
        if hosted is None:
            return self._missing(group_id)
        return await send_json(request, one_group(self._view, hosted))

    def _knows(self, group_id: str) -> bool:
        return group_id in self._view.groups.groups or self._view.share_group(group_id) is not None

    async def _history(self, request: web.Request) -> web.StreamResponse:
        group_id = request.match_info["id"]
        events = [record_of(event) for event in self._view.history.recent(group_id)]
        if not events and not self._knows(group_id):
            return self._missing(group_id)
        return await send_json(request, listing({"group": group_id}, "events", events))

    async def _chart(self, request: web.Request) -> web.StreamResponse:
        group_id = request.match_info["id"]
        now = self._view.wall_ms()
        since = number_in(request, "since", now - CHART_MS)
        if not self._knows(group_id) and not self._view.history.recent(group_id):
            return self._missing(group_id)
        # Without `since` the chart of a quiet group would change every ms: it begins at a whole minute instead.
        since = max(since - since % 60_000, 0)
        version = version_of(self._view.history.recent(group_id))
        etag = f'"{xxhash.xxh3_64_hexdigest(f"{group_id}/{since}/{version}".encode("utf-8", "replace"))}"'
        if unchanged(request, etag):
            return web.Response(status=304, headers={"ETag": etag})
        # Several pages may show the same group: each version of its chart is made once.
        task = self._charts.get(etag)
        if task is None:
            task = self._charts[etag] = asyncio.get_running_loop().create_task(self._make_chart(group_id, since))
        try:
            body = await asyncio.shield(task)
        except Exception:
            self._charts.pop(etag, None)
            raise
        return await send(request, [body], JSON, {"ETag": etag, "Cache-Control": "no-cache"})

    async def _make_chart(self, group_id: str, since: int) -> bytes:
        events = await recorded(self._view, group_id, since)

        def encode() -> bytes:
            made = {"group": group_id, "since": since, **chart(events)}
            return json.dumps(made).encode() + b"\n"

        return await asyncio.to_thread(encode)

    async def _curves(self, request: web.Request) -> web.StreamResponse:
        group_id = request.match_info["id"]
        since = number_in(request, "since", 0)
        if not self._knows(group_id):
            return self._missing(group_id)
        samples = self._view.samples
        etag = f'"{since}-{samples.newest(group_id)}"'
        if unchanged(request, etag):
            return web.Response(status=304, headers={"ETag": etag})
        body = {"group": group_id, **samples.curves(group_id, since)}
        return as_json(body, 200, {"ETag": etag, "Cache-Control": "no-cache"})

    async def _requests(self, request: web.Request) -> web.StreamResponse:
        group_id = request.match_info["id"]
        if not self._knows(group_id):
            return self._missing(group_id)
        requests = self._view.groups.requests
        etag = f'"{requests.version(group_id)}"'
        if unchanged(request, etag):
            return web.Response(status=304, headers={"ETag": etag})
        body = {"group": group_id, **requests.of(group_id)}
        return as_json(body, 200, {"ETag": etag, "Cache-Control": "no-cache"})

    async def _topic(self, request: web.Request) -> web.StreamResponse:
        topic = self._view.cluster.image.topics.get(request.match_info["topic"])
        if topic is None:
            return _no_topic(request)
        return await send_json(request, one_topic(self._view, topic))

    async def _records(self, request: web.Request) -> web.StreamResponse:
        view, name = self._view, request.match_info["topic"]
        if not view.shows_records:
            return as_json({"error": HIDDEN}, 403)
        topic = view.cluster.image.topics.get(name)
        if topic is None:
            return _no_topic(request)
        wanted = records_query(request)
        numbers = range(len(topic.partitions)) if wanted.partition is None else [wanted.partition]
        logs = {number: log for number in numbers if (log := view.log(name, number)) is not None}
        if wanted.partition is not None and not logs:
            return as_json({"error": f"this broker does not lead partition {wanted.partition} of the topic"}, 404)
        more = len(logs) > MOST_PARTITIONS
        logs = dict(islice(logs.items(), MOST_PARTITIONS))
        if wanted.after is not None:
            found = await self._reader.after(logs, wanted.after, wanted.most)
        elif wanted.since is not None:
            found = await self._reader.since(logs, wanted.since, wanted.most)
        else:
            found = await self._reader.last(logs, wanted.most)
        head = {"topic": name, "time": view.wall_ms(), "partitions": list(logs), "more_partitions": more}
        return await send_json(
            request, listing({**head, "next": found.next, "gaps": found.gaps}, "records", found.rows)
        )

    async def _client(self, request: web.Request) -> web.StreamResponse:
        client_instance_id = request.match_info["id"]
        instance = self._view.telemetry.find(client_instance_id)
        if instance is None:
            reason = "it never did, or was silent for more than three intervals"
            return as_json({"error": f"client {client_instance_id} pushes no metrics to this broker: {reason}"}, 404)
        return await send_json(request, one_client(self._view, instance))

    async def _broker(self, request: web.Request) -> web.StreamResponse:
        # The system may take long to answer, for instance if the disk is on another machine.
        self._disk = await asyncio.to_thread(disk_of, self._view.directory.path)
        return await self._listed(request)

    def _broker_pieces(self) -> Iterable[str]:
        return one_broker(self._view, self._lag, self._disk)

    def _missing(self, group_id: str) -> web.Response:
        """The response for a group that is not here: 503 while its partition is being loaded, otherwise 404."""
        groups = self._view.groups
        partition = groups.partition_for(group_id)
        if partition in self._view.unloaded():
            return as_json({"error": f"group {group_id} is being loaded"}, 503)
        return as_json({"error": f"this broker has no group {group_id}"}, 404)

    async def _health(self, request: web.Request) -> web.Response:
        member = self._view.member()
        cluster = {} if member is None else {"cluster": member}
        return as_json({"status": "ok", "node_id": self._view.node_id, "version": self._view.version, **cluster})

    async def _readiness(self, request: web.Request) -> web.Response:
        found = self._view.conditions.now()
        more: dict[str, Any] = {}
        if found:
            more["conditions"] = [{"condition": each.name.value, "text": each.text} for each in found]
        if not all(each.ready for each in found):
            reasons = [each.text for each in found if not each.ready]
            return as_json({"status": "not ready", "reasons": reasons, **more}, 503)
        damage = await collect(self._view.damage(), time.perf_counter)
        waiting = await collect(self._view.waiting(), time.perf_counter)
        if damage:
            more["damaged"] = damage
        if waiting:
            # Still ready: where brokers start one after the other, the awaited ones would never start otherwise.
            more |= {"partitions_without_leader": len(waiting), "waiting": waiting[:WAITING_SHOWN]}
        return as_json({"status": "ready", **more})


def _failed(request: web.Request) -> str:
    log.exception("HTTP request failed", path=request.path)
    return "internal error, see the broker's log"


def _no_topic(request: web.Request) -> web.Response:
    return as_json({"error": f"there is no topic {request.match_info['topic']}"}, 404)
