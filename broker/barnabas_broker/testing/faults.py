"""Faults that a test injects: late responses, lost connections, errors, a broker that stops."""

from types import TracebackType
from typing import Self

from barnabas_broker.testing.link import CALL_SECONDS, Target, refuse_in_loop


class Fault:
    """One fault. As a context manager it ends with the block.

    Args:
        broker: the broker.
        number: the fault's number at the broker's host.
    """

    def __init__(self, broker: Target, number: int) -> None:
        self._broker = broker
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    @property
    def fired(self) -> int:
        """The number of requests that have met it."""
        return int(self._broker.call({"do": "fired", "number": self._number}))

    def wait(self, times: int = 1, timeout: float = 10.0) -> None:
        """Wait until requests have met it; in a coroutine, ``await asyncio.to_thread(fault.wait)``.

        Args:
            times: how many.
            timeout: seconds to wait.

        Raises:
            TimeoutError: fewer requests met it in time.
            RuntimeError: an event loop runs in this thread.
        """
        refuse_in_loop("wait")
        command = {"do": "wait_fired", "number": self._number, "times": times, "timeout": timeout}
        self._broker.call(command, timeout + CALL_SECONDS)

    def end(self) -> None:
        """End it: further requests do not meet it, and the responses that it delays are sent now."""
        if self._broker.running:
            self._broker.call({"do": "end_fault", "number": self._number})


class Faults:
    """Injects faults into a broker.

    Faults of requests take an API by its name ("Fetch", "JoinGroup"; "*" for all), and three more arguments: `nth`, the
    first request that meets the fault, counting from 1 and from now; `times`, how many requests meet it from then on,
    None for all; `client_id`, to leave other clients alone. They last until they are ended, cleared, or the broker is
    stopped; they outlast a restart.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: Target) -> None:
        self._broker = broker

    def _make(
        self, kind: str, api: str | int, nth: int, times: int | None, client_id: str | None, **what: object
    ) -> Fault:
        command = {"do": "fault", "kind": kind, "api": api, "nth": nth, "times": times, "client_id": client_id, **what}
        return Fault(self._broker, int(self._broker.call(command)))

    def delay(
        self,
        api: str | int,
        seconds: float,
        *,
        nth: int = 1,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> Fault:
        """Answer late. The request is carried out when it arrives; responses on a connection keep their order.

        Args:
            api: the API whose requests meet it.
            seconds: how late.
            nth: the first request that meets it.
            times: how many requests meet it.
            client_id: the client whose requests meet it.

        Raises:
            ValueError: there is no such API, or a number is out of range.
        """
        return self._make("delay", api, nth, times, client_id, seconds=seconds)

    def drop(
        self,
        api: str | int,
        *,
        nth: int = 1,
        times: int | None = 1,
        client_id: str | None = None,
        executed: bool = False,
    ) -> Fault:
        """Close the connection without a response.

        Args:
            api: the API whose requests meet it.
            nth: the first request that meets it.
            times: how many requests meet it.
            client_id: the client whose requests meet it.
            executed: carry the request out all the same, so that only its response is lost.

        Raises:
            ValueError: there is no such API, or a number is out of range.
        """
        return self._make("drop", api, nth, times, client_id, executed=executed)

    def error(
        self,
        api: str | int,
        code: str | int,
        *,
        nth: int = 1,
        times: int | None = 1,
        client_id: str | None = None,
        executed: bool = False,
    ) -> Fault:
        """Answer with an error, for every topic, partition or group in the request.

        Args:
            api: whose requests.
            code: Kafka's name of the error, "NOT_LEADER_OR_FOLLOWER" for instance, or its number.
            nth: the first that meets it.
            times: how many meet it.
            client_id: of which client.
            executed: carry the request out all the same.

        Raises:
            ValueError: there is no such API or error, or a number is out of range.
        """
        return self._make("error", api, nth, times, client_id, code=code, executed=executed)

    def disconnect(self, client_id: str | None = None) -> int:
        """Close connections now, without a response to their requests.

        Args:
            client_id: the client whose connections are closed; None for all clients.

        Returns:
            The number of connections that were closed.
        """
        return int(self._broker.call({"do": "disconnect", "client_id": client_id}))

    def stop(self) -> None:
        """Stop the broker. Faults of requests end with it."""
        self._broker.stop()

    def restart(self) -> None:
        """Stop the broker, if it runs, and start it with the same port and data."""
        self._broker.restart()

    def clear(self) -> None:
        """End all faults of requests, and start the broker if it is stopped."""
        if self._broker.running:
            self._broker.call({"do": "clear_faults"})
        else:
            self._broker.start()
