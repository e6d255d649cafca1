"""The tap between a broker's connections and its handlers: records every request, and injects the faults.

A delay holds a response back: the request is carried out when it arrives, and so are the requests after it. A dropped
request closes its connection. An error is sent instead of carrying the request out, unless the fault says that only the
response is wrong.
"""

import asyncio
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Dispatch, Route
from barnabas_broker.handlers.produce import Produce
from barnabas_broker.handlers.stepwise import Handled
from barnabas_broker.server.connection import Answer, CloseConnection, DeferredResponse, Peer
from barnabas_broker.testing.refusals import OF_SESSION, refusal
from barnabas_broker.testing.requests import SeenRequest
from barnabas_broker.testing.rules import FaultType, Rule, Rules
from barnabas_broker.testing.seen import RequestLog, first_error, group_of, topics_of
from barnabas_protocol.codec import decode_request_header
from barnabas_protocol.errors import DecodeError, ErrorCode
from barnabas_protocol.messages.fetch import FetchRequest
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Response
from barnabas_protocol.wire import Buffer

#: A version of Metadata in which an empty list asks for no topics.
_PLAIN_METADATA: Final = 12
#: Closed connections whose client ids are kept.
_MOST_CLOSED: Final = 200


class Tap:
    """Dispatches requests like the broker's dispatcher, and applies the faults.

    Args:
        dispatch: the broker's dispatcher.
        log: records the requests.
        rules: the faults.
    """

    def __init__(self, dispatch: Dispatch, log: RequestLog, rules: Rules) -> None:
        routes = dispatch.routes.items()
        table = {key: replace(route, handler=partial(self._handle, key, route)) for key, route in routes}
        # The tap handles a request where it is dispatched, so large ones are decoded there as well.
        self._dispatch = Dispatch(dispatch.services, table, large=sys.maxsize)
        self._log = log
        self._rules = rules
        self._current = SeenRequest(0, 0.0, "", 0, "", "")
        self._started: dict[int, float] = {}
        self._delays: dict[int, asyncio.Event] = {}
        self._clients: dict[Peer, str] = {}

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        """Answer one request frame.

        Raises:
            CloseConnection: it cannot be answered, or a fault drops it.
            DecodeError: the frame is not a request.
        """
        seen = self._current = SeenRequest(0, time.time(), "?", 0, "", str(peer))
        self._log.add(seen)
        self._started[seen.number] = time.perf_counter()
        try:
            header = decode_request_header(frame)
            seen.version, seen.client_id = header.api_version, header.client_id or ""
            seen.api = _name(header.api_key)
            self._clients[peer] = seen.client_id
            answer = self._dispatch(peer, frame)
        except (CloseConnection, DecodeError) as error:
            self._over(seen, f"connection closed: {error}")
            raise
        if not isinstance(answer, DeferredResponse):
            self._over(seen, None)
        return answer

    def peers_of(self, client_id: str | None, connected: Collection[Peer]) -> set[Peer]:
        """The connected clients with this client id; for None all that have sent a request."""
        if len(self._clients) > len(connected) + _MOST_CLOSED:
            self._clients = {peer: self._clients[peer] for peer in connected if peer in self._clients}
        return {peer for peer in connected if peer in self._clients and client_id in (None, self._clients[peer])}

    def release(self, rules: Iterable[Rule]) -> None:
        """Send the responses that these rules delay."""
        for rule in rules:
            if event := self._delays.pop(rule.number, None):
                event.set()

    def _over(self, seen: SeenRequest, error: str | None) -> None:
        """A request is answered, or its connection closed. The first call counts."""
        started = self._started.pop(seen.number, None)
        if started is not None:
            self._log.answered(seen, time.perf_counter() - started, error)

    def _handle(self, key: ApiKey, route: Route, context: RequestContext, request: Any) -> Handled:
        seen = self._current
        seen.group = group_of(request)
        seen.topics = topics_of(request, context.services.cluster.image.names)
        met = self._rules.met_by(key, context.client_id)
        drop = next((rule for rule in met if rule.type is FaultType.DROP), None)
        wrong = next((rule for rule in met if rule.type is FaultType.ERROR), None)
        instead: Handled = None
        if wrong is not None:
            if drop is None:
                instead = self._wrong(key, route, context, request, wrong)
            else:
                wrong.take_back()
        seen.fault = ", ".join(str(rule) for rule in met if rule.fired)
        self._log.news()
        answers: list[Handled] = []
        decides = drop or (wrong if instead is not None else None)
        if decides is None or decides.executed:
            answers.append(self._carry_out(route, context, request, seen))
        if instead is not None:
            answers.append(instead)
        delays = [rule for rule in met if rule.type is FaultType.DELAY]
        if drop is None and answers == [None]:
            return None  # the client asked for no response
        if delays or not all(isinstance(answer, Response | None) for answer in answers):
            return self._later(seen, answers, delays, drop)
        return self._final(seen, answers, drop)

    def _carry_out(self, route: Route, context: RequestContext, request: Any, seen: SeenRequest) -> Handled:
        try:
            return route.handler(context, request)
        except CloseConnection:
            raise
        except Exception as error:
            self._over(seen, _failed(error))
            raise

    async def _later(
        self, seen: SeenRequest, answers: list[Handled], delays: list[Rule], drop: Rule | None
    ) -> Response:
        """Wait for the responses that are not ready, and for the delays."""
        try:
            ready = [answer if isinstance(answer, Response | None) else await answer for answer in answers]
            for rule in delays:
                await self._delay(rule)
            return self._final(seen, ready, drop)
        except CloseConnection as error:
            self._over(seen, f"connection closed: {error}")
            raise
        except Exception as error:
            self._over(seen, _failed(error))
            raise

    async def _delay(self, rule: Rule) -> None:
        event = self._delays.setdefault(rule.number, asyncio.Event())
        try:
            async with asyncio.timeout(rule.seconds):
                await event.wait()
        except TimeoutError:
            pass

    def _final(self, seen: SeenRequest, answers: list[Any], drop: Rule | None) -> Response:
        """The last response, unless a fault closes the connection."""
        if drop is not None:
            raise CloseConnection("dropped by a test")
        response: Response = answers[-1]
        self._over(seen, first_error(response))
        return response

    def _wrong(self, key: ApiKey, route: Route, context: RequestContext, request: Any, rule: Rule) -> Handled:
        """A response with the rule's error.

        Returns:
            None if this request has no field for it; the next request meets the rule then.
        """
        if isinstance(request, Produce) and request.head.acks == 0:
            raise CloseConnection(f"{rule.code.name}, made by a test, and acks=0 leaves no other way to report it")
        if isinstance(request, Produce) and rule.code.retriable and not rule.executed:
            for topic, partitions in request.topics:
                for index, records in partitions:
                    context.services.refused_batches.add(context.principal, topic, index, records)
        if isinstance(request, MetadataRequest):
            return self._wrong_metadata(route, context, request, rule)
        code = rule.code
        if isinstance(request, FetchRequest) and request.session_id and code not in OF_SESSION:
            # It names only the partitions that have changed; make the client name all of them.
            rule.take_back()
            code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        answer = refusal(key, request, context.version, code)
        if answer is None:
            rule.take_back()
        return answer

    def _wrong_metadata(self, route: Route, context: RequestContext, request: MetadataRequest, rule: Rule) -> Handled:
        """Metadata with an error for every topic, and the true brokers: the client needs them to continue."""
        if request.topics is None or (not request.topics and context.version == 0):
            names = context.services.cluster.image.topics
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        topics = refusal(ApiKey.METADATA, request, context.version, rule.code)
        if not isinstance(topics, MetadataResponse):
            rule.take_back()
            return None

        # No topic is named, so none is created, and the response is ready at once.
        response = route.handler(replace(context, version=_PLAIN_METADATA), MetadataRequest(topics=[]))
        assert isinstance(response, MetadataResponse)
        response.topics = topics.topics
        return response


def _failed(error: Exception) -> str:
    return f"{ErrorCode.UNKNOWN_SERVER_ERROR.name} ({type(error).__name__}: {error})"


def _name(key: int) -> str:
    try:
        return ApiKey(key).title
    except ValueError:
        return f"API {key}"
