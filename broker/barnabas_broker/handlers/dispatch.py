"""The dispatcher: decodes a request, calls the API's handler, encodes its response.

A handler gets the context and the decoded request, and returns the response, an awaitable of it, or None where the
client asked for no response. It translates between messages and services and holds no state. A :class:`Route` is the
row that declares it, beside the handler; :mod:`barnabas_broker.handlers.table` joins the rows.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas_broker.handlers.context import RequestContext, Services
from barnabas_broker.handlers.stepwise import Handled
from barnabas_broker.handlers.throttle import Charge
from barnabas_broker.handlers.weight import elements, exceeds
from barnabas_broker.logs import logger
from barnabas_broker.metrics import ApiMetrics, RequestMetrics
from barnabas_broker.security.acls import Requirement
from barnabas_broker.security.audit import Change
from barnabas_broker.security.authorizer import Access
from barnabas_broker.server.connection import Answer, CloseConnection, DeferredResponse, NotServed, Peer
from barnabas_broker.server.refusals import feature_of_api, unserved_version
from barnabas_broker.steps import release
from barnabas_protocol import codec
from barnabas_protocol.codec import RequestHeader
from barnabas_protocol.errors import DecodeError, ErrorCode
from barnabas_protocol.hot.produce import LongRequest
from barnabas_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import INT16, Request, Response, Versions
from barnabas_protocol.wire import Buffer

log = logger("dispatch")

Handler = Callable[[RequestContext, Any], Handled]

#: Bytes of a request above which a thread decodes it. A byte takes up to 0.1 us to decode.
#: Not for Produce: its records are not decoded, and the number of its partitions is bounded.
LARGE: Final = 64 * 1024
#: Elements of a response above which a thread encodes it, if its handler has waited or had more than one turn of the
#: event loop: each takes up to 1 us. Not for less: while the event loop is busy, a thread gets the interpreter's lock
#: only every 5 ms, so that a flood of responses would take hundred times as long.
LONG: Final = 10_000


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
            The handler asks for it.
        versions: the versions that are served, in Kafka's notation; None for all that the message declares.
        decode: reads the request, for an API that has a faster way than its schema.
        decode_long: reads a request that `decode` finds too long for the event loop (:exc:`LongRequest`), in a thread.
        encode: writes the response, likewise.
        alone: while a request waits for its response, its connection starts no further one.
        changes: what the handler changes, and so writes to the audit log (``RequestContext.changed``).
        exempt: whether the time of a request does not count in the quota of its client (``request_percentage``): what
            brokers ask of each other, and what has no response.
    """

    key: ApiKey
    handler: Handler
    authorizes: tuple[Requirement, ...]
    versions: str | None = None
    decode: Callable[[type[Request], RequestHeader, Buffer], Any] = codec.decode_request
    decode_long: Callable[[type[Request], RequestHeader, Buffer], Any] = codec.decode_request
    encode: Callable[[Any, int, int], Answer] = encode
    alone: bool = False
    changes: tuple[Change, ...] = ()
    exempt: Callable[[Any], bool] | None = None

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
        large: bytes of a request above which a thread decodes it.
        long: elements of a response above which a thread encodes it.

    Attributes:
        services: what handlers may use.
        routes: the table.
        metrics: the number of requests, their latencies and error codes.
    """

    def __init__(
        self,
        services: Services,
        routes: Mapping[ApiKey, Route],
        now: Callable[[], float] = time.perf_counter,
        large: int = LARGE,
        long: int = LONG,
    ) -> None:
        self.services = services
        self.routes = routes
        self.metrics = RequestMetrics()
        self._quotas = services.quotas
        self._slicer = services.slicer
        self._now = now
        self._large = large
        self._long = long
        #: One thread: decoding takes the interpreter's lock, so that a second one would only delay the event loop.
        self._thread = ThreadPoolExecutor(1, "codec")
        self._tasks: set[asyncio.Future[Any]] = set()
        self._served: dict[tuple[int, int], tuple[Route, type[Request], ApiMetrics]] = {}

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        """Answer one request frame.

        Raises:
            CloseConnection: the API or its version is not served (:exc:`NotServed`), or its handler failed.
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
        context: RequestContext | None = peer.cached
        if context is None:
            context = peer.cached = RequestContext(self.services, peer, version, client_id or "", self._access(peer))
            if not peer.is_known and not peer.left:
                peer.is_known = True
                peer.ended.add(self.services.groups.opened(context.client))
        elif context.version != version or context.client_id != client_id:
            # Requests of members alternate with others, of other versions: who the client is stays.
            caller = context.caller if context.client_id == client_id else None
            context = RequestContext(self.services, peer, version, client_id or "", context.access, caller)
            peer.cached = context
        charge = Charge(context, route.key, len(frame)) if self._quotas.active else None
        decode_long = route.decode if len(frame) > self._large and key != ApiKey.PRODUCE else None
        if decode_long is None:
            try:
                request = route.decode(request_class, header, frame)
            except LongRequest:
                decode_long = route.decode_long
        if decode_long is not None:
            decoding = partial(decode_long, request_class, header, frame)
            work = self._slicer.start(self._decode_and_handle(route, decoding, context, charge), peer)
            peer.hold(work)
            return self._deferred(self._handled(work, peer), route, header, peer, metrics, started, charge)
        try:
            handled = route.handler(context, request)
            if charge is not None:
                charge.handled(now() - started, exempt=_exempt(route, request))
                if isinstance(handled, Response | None):
                    handled = charge.answer(handled)
            if isinstance(handled, Response):
                answer = route.encode(handled, version, correlation_id)
                metrics.answered(handled, now() - started)
                return answer
            if handled is None:
                metrics.answered(None, now() - started)
                return None
            return self._deferred(handled, route, header, peer, metrics, started, charge)
        except CloseConnection:
            raise
        except Exception:
            metrics.failed(ErrorCode.UNKNOWN_SERVER_ERROR, self._now() - started)
            return self._failed(header, peer)

    def close(self) -> None:
        """End what is being decoded or encoded."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _access(self, peer: Peer) -> Access | None:
        """The permissions of a client; None for everything. Looked up once, and again after a login."""
        authorizer = self.services.authorizer
        return None if authorizer is None else authorizer.access(peer.principal, peer.host)

    def _find(self, header: RequestHeader) -> tuple[Route, type[Request], ApiMetrics]:
        """The route of an API and version that are requested for the first time."""
        feature = feature_of_api(header.api_key)
        try:
            key = ApiKey(header.api_key)
        except ValueError:
            raise NotServed(f"unknown API {header.api_key}", feature, header.client_id) from None
        route = self.routes.get(key)
        if route is None:
            raise NotServed(f"API {key.name} is not served", feature, header.client_id)
        if header.api_version not in route.served:
            reason = f"{key.name} version {header.api_version} is not served, only {route.served}"
            raise NotServed(reason, unserved_version(key.title, header.api_version, route.served), header.client_id)
        known = (route, api(key).request, self.metrics.of(key))
        self._served[header.api_key, header.api_version] = known
        return known

    async def _decode_and_handle(
        self,
        route: Route,
        decoding: Callable[[], Any],
        context: RequestContext,
        charge: Charge | None,
    ) -> "_Begun":
        """Decode a large request in the thread, and call its handler."""
        loop = asyncio.get_running_loop()
        decoded, parts = await loop.run_in_executor(self._thread, _with_elements, decoding)
        began = self._now()
        handled = route.handler(context, decoded)
        if charge is not None:
            charge.handled(self._now() - began, exempt=_exempt(route, decoded))
        return _Begun(handled, parts)

    async def _handled(self, work: "asyncio.Future[_Begun]", peer: Peer) -> Response | None:
        """Wait for the response to a large request, whose elements are freed afterwards, a slice at a time."""
        handled, parts = await work
        del work
        try:
            return handled if isinstance(handled, Response | None) else await handled
        finally:
            self._slicer.enqueue(release(parts), peer)

    async def _encoded(
        self,
        handled: Awaitable[Response | None],
        route: Route,
        header: RequestHeader,
        peer: Peer,
        metrics: ApiMetrics,
        charge: Charge | None,
    ) -> "_Encoded":
        """Wait for a response, and encode it: in the thread if it is long. It is freed a slice at a time then."""
        response = await handled
        del handled
        if charge is not None:
            response = charge.answer(response)
        if response is None:
            return _Encoded((), {})
        version, correlation_id = header.api_version, header.correlation_id
        if not exceeds(response, self._long):
            return _Encoded(route.encode(response, version, correlation_id), metrics.errors_of(response))
        loop = asyncio.get_running_loop()

        def encode_long() -> tuple[_Encoded, list[Any]]:
            answer = route.encode(response, version, correlation_id)
            return _Encoded(answer, metrics.errors_of(response)), elements(response)

        encoded, parts = await loop.run_in_executor(self._thread, encode_long)
        self._slicer.enqueue(release(parts), peer)
        return encoded

    def _deferred(
        self,
        handled: Awaitable[Response | None],
        route: Route,
        header: RequestHeader,
        peer: Peer,
        metrics: ApiMetrics,
        started: float,
        charge: Charge | None,
    ) -> DeferredResponse:
        deferred = DeferredResponse()
        deferred.alone = route.alone
        version = header.api_version

        def done(finished: "asyncio.Future[Response | None] | asyncio.Future[_Encoded]") -> None:
            try:
                result = finished.result()
                answer: Answer
                if isinstance(result, _Encoded):
                    answer, errors = result
                    metrics.answered_with(errors, self._now() - started)
                else:
                    response = result if charge is None else charge.answer(result)
                    answer = () if response is None else route.encode(response, version, header.correlation_id)
                    metrics.answered(response, self._now() - started)
            except asyncio.CancelledError:
                deferred.refuse("the broker is shutting down")
            except (CloseConnection, DecodeError) as error:
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
            finally:
                del finished  # the traceback of its error has this frame

        # A handler that returns a future keeps a reference to it until it is done; a task needs one of ours.
        pending: asyncio.Future[Response | None] | asyncio.Future[_Encoded]
        if isinstance(handled, asyncio.Future):
            pending = handled
        else:
            pending = self._slicer.start(self._encoded(handled, route, header, peer, metrics, charge), peer)
            self._tasks.add(pending)
            pending.add_done_callback(self._tasks.discard)
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
        version = header.api_version
        if any(f.name == "error_code" and f.type is INT16 and version in f.versions for f in response_class.FIELDS):
            values = {f.name: f.absent() for f in response_class.FIELDS}
            values["error_code"] = ErrorCode.UNKNOWN_SERVER_ERROR
            response = response_class(**values)
            return encode(response, version, header.correlation_id)
        raise CloseConnection(f"{key.name} failed")


class _Begun(NamedTuple):
    """Result of the handler of a large request, and the elements of the request."""

    handled: Handled
    parts: list[Any]


class _Encoded(NamedTuple):
    """The bytes of a response, none if the client asked for none, and the number of each error code in it."""

    answer: Answer
    errors: Mapping[int, int]


def _with_elements(decoding: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """Decode a request, and collect its elements."""
    decoded = decoding()
    return decoded, elements(decoded) if isinstance(decoded, Request) else []


def _exempt(route: Route, request: Any) -> bool:
    return route.exempt is not None and route.exempt(request)


def _unsupported_api_versions(route: Route, correlation_id: int) -> Answer:
    """The one response that a client of any version understands (KIP-511)."""
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[api_version(route)])
    return encode(response, 0, correlation_id)


def api_version(route: Route) -> ApiVersion:
    """Entry of ApiVersions about an API."""
    return ApiVersion(api_key=route.key, min_version=route.served.low, max_version=route.served.high)
