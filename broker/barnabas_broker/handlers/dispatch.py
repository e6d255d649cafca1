"""The dispatcher: decodes a request, calls the API's handler, encodes its response.

A handler gets the context and the decoded request, and returns the response, an awaitable of it, or None where the
client asked for no response. It translates between messages and services and holds no state. A :class:`Route` is the
row that declares it, beside the handler; :mod:`barnabas_broker.handlers.table` joins the rows.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas_broker.handlers.context import RequestContext, Services
from barnabas_broker.logs import logger
from barnabas_broker.metrics import ApiMetrics, RequestMetrics
from barnabas_broker.security.acls import Requirement
from barnabas_broker.server.connection import Answer, CloseConnection, DeferredResponse, Peer
from barnabas_protocol import codec
from barnabas_protocol.codec import RequestHeader
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import INT16, Request, Response, Versions
from barnabas_protocol.wire import Buffer

log = logger("dispatch")

Handled = Response | Awaitable[Response] | None
Handler = Callable[[RequestContext, Any], Handled]


def decode(request: type[Request], header: RequestHeader, frame: Buffer) -> Request:
    """Decode a request body through its compiled schema."""
    return codec.decode_request(request, header, frame)


def encode(response: Response, version: int, correlation_id: int) -> Answer:
    """Encode a response through its compiled schema."""
    return [codec.encode_response(response, version, correlation_id)]


@dataclass(frozen=True, slots=True)
class Route:
    """The row of an API: its handler, the versions that are served, and what Kafka authorizes before it answers.

    Attributes:
        key: the API.
        handler: answers it.
        authorizes: what Kafka's KafkaApis (for changes that brokers forward, ControllerApis) requires of the principal.
            Stated, not enforced.
        versions: the versions that are served, in Kafka's notation; None for all that the message declares.
        decode: reads the request, for an API that has a faster way than its schema.
        encode: writes the response, likewise.
    """

    key: ApiKey
    handler: Handler
    authorizes: tuple[Requirement, ...]
    versions: str | None = None
    decode: Callable[[type[Request], RequestHeader, Buffer], Any] = decode
    encode: Callable[[Any, int, int], Answer] = encode

    @property
    def served(self) -> Versions:
        """The versions that are served."""
        return api(self.key).versions if self.versions is None else Versions.of(self.versions)


class Dispatch:
    """Answers request frames by the table of routes.

    Args:
        services: what handlers may use.
        routes: the table.
        now: a monotonic clock in seconds, fine enough for a single request.

    Attributes:
        services: what handlers may use.
        routes: the table.
        metrics: the number of requests, their latencies and error codes.
    """

    def __init__(
        self, services: Services, routes: Mapping[ApiKey, Route], now: Callable[[], float] = time.perf_counter
    ) -> None:
        self.services = services
        self.routes = routes
        self.metrics = RequestMetrics()
        self._now = now
        self._tasks: set[asyncio.Future[Any]] = set()
        self._served: dict[tuple[int, int], tuple[Route, type[Request], ApiMetrics]] = {}

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        """Answer one request frame.

        Raises:
            CloseConnection: the API or its version is not served, or its handler failed.
            DecodeError: the frame is not a request.
        """
        now = self._now
        started = now()
        header = codec.decode_request_header(frame)
        key, version, correlation_id, client_id, _ = header
        known = self._served.get((key, version))
        if known is None:
            if key == ApiKey.API_VERSIONS and key in self.routes:
                route = self.routes[ApiKey.API_VERSIONS]
                if version not in route.served:
                    return _unsupported_api_versions(route, correlation_id)
            known = self._find(header)
        route, request_class, metrics = known
        request = route.decode(request_class, header, frame)
        context: RequestContext | None = peer.cached
        if context is None or context.version != version or context.client_id != client_id:
            context = peer.cached = RequestContext(self.services, peer, version, client_id or "")
        try:
            handled = route.handler(context, request)
            if isinstance(handled, Response):
                answer = route.encode(handled, version, correlation_id)
                metrics.answered(handled, now() - started)
                return answer
            if handled is None:
                metrics.answered(None, now() - started)
                return None
            return self._deferred(handled, route, header, peer, metrics, started)
        except CloseConnection:
            raise
        except Exception:
            metrics.failed(ErrorCode.UNKNOWN_SERVER_ERROR, self._now() - started)
            return self._failed(header, peer)

    def _find(self, header: RequestHeader) -> tuple[Route, type[Request], ApiMetrics]:
        """The route of an API and version that are requested for the first time."""
        try:
            key = ApiKey(header.api_key)
        except ValueError:
            raise CloseConnection(f"unknown API {header.api_key}") from None
        route = self.routes.get(key)
        if route is None:
            raise CloseConnection(f"API {key.name} is not served")
        if header.api_version not in route.served:
            raise CloseConnection(f"{key.name} version {header.api_version} is not served, only {route.served}")
        known = (route, api(key).request, self.metrics.of(key))
        self._served[header.api_key, header.api_version] = known
        return known

    def _deferred(
        self,
        handled: Awaitable[Response],
        route: Route,
        header: RequestHeader,
        peer: Peer,
        metrics: ApiMetrics,
        started: float,
    ) -> DeferredResponse:
        deferred = DeferredResponse()

        def done(finished: "asyncio.Future[Response]") -> None:
            self._tasks.discard(finished)
            try:
                response = finished.result()
                answer = route.encode(response, header.api_version, header.correlation_id)
                metrics.answered(response, self._now() - started)
            except asyncio.CancelledError:
                deferred.refuse("the broker is going down")
            except CloseConnection as error:
                deferred.refuse(str(error))
            except Exception:
                metrics.failed(ErrorCode.UNKNOWN_SERVER_ERROR, self._now() - started)
                try:
                    answer = self._failed(header, peer)
                except CloseConnection as error:
                    deferred.refuse(str(error))
                else:
                    deferred.give(answer)
            else:
                deferred.give(answer)

        # A handler that returns a future keeps a reference to it until it is done; a task needs one of ours.
        if isinstance(handled, asyncio.Future):
            pending = handled
        else:
            pending = asyncio.ensure_future(handled)
            self._tasks.add(pending)
        pending.add_done_callback(done)
        return deferred

    def _failed(self, header: RequestHeader, peer: Peer) -> Answer:
        """Answer UNKNOWN_SERVER_ERROR if the response has a field for it.

        Raises:
            CloseConnection: it has none.
        """
        key = ApiKey(header.api_key)
        log.exception(
            "handler failed",
            peer=str(peer),
            client_id=header.client_id,
            api=key.name,
            version=header.api_version,
            correlation_id=header.correlation_id,
        )
        response_class = api(key).response
        if any(f.name == "error_code" and f.type is INT16 for f in response_class.FIELDS):
            values = {f.name: f.absent() for f in response_class.FIELDS}
            values["error_code"] = ErrorCode.UNKNOWN_SERVER_ERROR
            response = response_class(**values)
            return encode(response, header.api_version, header.correlation_id)
        raise CloseConnection(f"{key.name} failed")


def _unsupported_api_versions(route: Route, correlation_id: int) -> Answer:
    """The one response that a client of any version understands (KIP-511)."""
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[api_version(route)])
    return encode(response, 0, correlation_id)


def api_version(route: Route) -> ApiVersion:
    """What ApiVersions says about an API."""
    return ApiVersion(api_key=route.key, min_version=route.served.low, max_version=route.served.high)
