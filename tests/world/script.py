"""Answers that a test scripts, in front of a real broker's dispatcher; all other requests get the broker's own."""

import asyncio
from collections import defaultdict, deque
from typing import TypeVar

from barnabas_broker.server.connection import Answer, CloseConnection, DeferredResponse, Dispatcher, Peer
from barnabas_broker.testing.refusals import refusal
from barnabas_protocol.codec import decode_request, decode_request_header, encode_response
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Request
from barnabas_protocol.wire import Buffer
from tests.world.answers import Action, Drop, Held, Lose, NoAnswer, Raw, Refused, Silence

Q = TypeVar("Q", bound=Request)


class Script:
    """What a test has a broker answer, and the requests that it got."""

    def __init__(self) -> None:
        self._once: defaultdict[ApiKey, deque[Action]] = defaultdict(deque)
        self._always: dict[ApiKey, Action] = {}
        self._frames: list[tuple[ApiKey, bytes]] = []

    def once(self, key: ApiKey, *actions: Action) -> None:
        """Script the next requests of an API."""
        self._once[key].extend(actions)

    def always(self, key: ApiKey, action: Action | None) -> None:
        """Script all requests of an API; None ends that."""
        if action is None:
            self._always.pop(key, None)
        else:
            self._always[key] = action

    def asked(self, kind: type[Q]) -> list[Q]:
        """The requests of a kind so far."""
        return [_decoded(kind, frame) for key, frame in self._frames if key == kind.API_KEY]

    def keys(self) -> list[ApiKey]:
        """The APIs of all requests so far."""
        return [key for key, _ in self._frames]

    def versions(self, key: ApiKey) -> set[int]:
        """The versions of the requests of an API so far."""
        return {decode_request_header(frame).api_version for one, frame in self._frames if one == key}

    def before(self, dispatch: Dispatcher) -> Dispatcher:
        """A dispatcher that asks the script first."""

        def scripted(peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
            header = decode_request_header(frame)
            key = ApiKey(header.api_key)
            self._frames.append((key, bytes(frame)))
            actions = self._once[key]
            action = actions.popleft() if actions else self._always.get(key)
            try:
                request = _decoded(api(key).request, frame)
                answer = None if action is None else action(request)
            except Exception as error:  # The broker would report it as its own.
                loop = asyncio.get_running_loop()
                loop.call_exception_handler({"message": "a mistake of a test", "exception": error})
                raise
            if isinstance(answer, Refused):
                answer = refusal(key, request, header.api_version, answer.code)
            if answer is None:
                return dispatch(peer, frame)
            if isinstance(answer, NoAnswer):
                return None
            if isinstance(answer, Drop):
                raise CloseConnection("dropped by a test")
            deferred = DeferredResponse()
            if isinstance(answer, Lose):
                carried_out = dispatch(peer, frame)
                if not isinstance(carried_out, DeferredResponse):
                    raise CloseConnection("lost by a test")
                carried_out.settled = lambda _: deferred.refuse("lost by a test")
            elif isinstance(answer, Held):
                task = asyncio.get_running_loop().create_task(_hold(answer.go, dispatch, peer, frame, deferred))
                peer.ended.add(task.cancel)
            elif isinstance(answer, Raw):
                return [answer.data]
            elif not isinstance(answer, Silence):
                return [encode_response(answer, header.api_version, header.correlation_id)]
            return deferred

        return scripted


def _decoded(kind: type[Q], frame: Buffer) -> Q:
    return decode_request(kind, decode_request_header(frame), frame)


async def _hold(go: asyncio.Event, dispatch: Dispatcher, peer: Peer, frame: Buffer, deferred: DeferredResponse) -> None:
    await go.wait()
    answer = dispatch(peer, frame)
    if not isinstance(answer, DeferredResponse):
        deferred.give(answer or ())
        return
    answer.settled = lambda of: deferred.refuse(of.reason) if of.answer is None else deferred.give(of.answer)
