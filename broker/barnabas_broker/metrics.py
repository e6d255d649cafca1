"""Counters of the broker: requests, responses, connections, bytes.

Plain numbers in plain objects. They are always counted, which takes a fraction of a microsecond per request;
:mod:`barnabas_broker.http` shows them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import INT16, Struct

#: Upper bounds of the latency buckets, in seconds. A heartbeat takes about 10 us, a Fetch may wait for half a second, a
#: JoinGroup for as long as its rebalance.
LATENCY_BOUNDS: Final = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)

#: The fields with error codes in responses. AddPartitionsToTxn calls its own otherwise; the code of a topic's
#: configuration in CreateTopics says that the client may not see it, which is no error.
ERROR_CODES: Final = frozenset(("error_code", "partition_error_code"))

Tally = Callable[[Any, dict[int, int]], None]


class Histogram:
    """Observations by size.

    Args:
        bounds: the largest value of each bucket, ascending. A last one, for everything larger, is added.

    Attributes:
        counts: observations per bucket, not cumulated.
        total: the sum of all observations.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class ApiMetrics:
    """The requests of one API.

    Args:
        key: the API.

    Attributes:
        name: the API's name as Kafka writes it, "OffsetCommit" for instance.
        latency: seconds from the frame to its response.
        errors: the number of each error code, anywhere in a response.
    """

    __slots__ = ("_tallies", "errors", "latency", "name")

    def __init__(self, key: ApiKey) -> None:
        self.name = key.title
        self.latency = Histogram(LATENCY_BOUNDS)
        self.errors: dict[int, int] = {}
        self._tallies = tuple(_tally(path) for path in error_paths(api(key).response))

    def answered(self, response: Any, seconds: float) -> None:
        """Count a response.

        Args:
            response: the response; None if the client asked for none.
            seconds: its latency.
        """
        # Histogram.observe, written out: every request takes this path.
        latency = self.latency
        latency.counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        latency.total += seconds
        if response is not None:
            for tally in self._tallies:
                tally(response, self.errors)

    def errors_of(self, response: Any) -> dict[int, int]:
        """The number of each error code in a response. It takes long for a long one; a thread may call it."""
        errors: dict[int, int] = {}
        for tally in self._tallies:
            tally(response, errors)
        return errors

    def answered_with(self, errors: Mapping[int, int], seconds: float) -> None:
        """Count a response by its error codes, as :meth:`errors_of` returns them, and its latency."""
        self.latency.observe(seconds)
        for code, count in errors.items():
            self.errors[code] = self.errors.get(code, 0) + count

    def failed(self, code: int, seconds: float) -> None:
        """Count a request whose handler failed."""
        self.latency.observe(seconds)
        self.errors[code] = self.errors.get(code, 0) + 1


class Traffic:
    """The counters of all connections.

    Attributes:
        accepted: connections that were opened.
        refused: connections over a limit.
        evicted: connections that were closed to make room for others.
        dropped: connections that the broker closed because a request on them could not be answered.
        bytes_in: bytes received.
        bytes_out: bytes handed to the transports.
    """

    __slots__ = ("accepted", "bytes_in", "bytes_out", "dropped", "evicted", "refused")

    def __init__(self) -> None:
        self.accepted = self.refused = self.evicted = self.dropped = 0
        self.bytes_in = self.bytes_out = 0


class RequestMetrics:
    """The requests of all APIs."""

    def __init__(self) -> None:
        self._apis: dict[ApiKey, ApiMetrics] = {}

    def of(self, key: ApiKey) -> ApiMetrics:
        """The metrics of an API; created on its first request."""
        found = self._apis.get(key)
        if found is None:
            found = self._apis[key] = ApiMetrics(key)
        return found

    def __iter__(self) -> Iterator[ApiMetrics]:
        return iter(list(self._apis.values()))


def error_paths(response: type[Struct]) -> Iterator[tuple[str, ...]]:
    """The places of error codes in a response: the names of the arrays on the way there, and that of the field."""
    for f in response.FIELDS:
        if f.name in ERROR_CODES and f.type is INT16:
            yield (f.name,)
        elif f.type.element is not None and f.type.element.struct is not None:
            for path in error_paths(f.type.element.struct):
                yield (f.name, *path)


def _tally(path: tuple[str, ...]) -> Tally:
    """A function that counts the error codes at `path`."""
    code_of = attrgetter(path[-1])
    if len(path) == 1:

        def tally_own(item: Any, errors: dict[int, int]) -> None:
            if code := code_of(item):
                errors[code] = errors.get(code, 0) + 1

        return tally_own
    items_of = attrgetter(path[0])
    if len(path) == 2:

        def tally_items(item: Any, errors: dict[int, int]) -> None:
            for each in items_of(item) or ():
                if code := code_of(each):
                    errors[code] = errors.get(code, 0) + 1

        return tally_items
    if len(path) == 3:
        inner_of = attrgetter(path[1])

        # The general case below, written out: every Produce and Fetch takes this path.
        def tally_inner(item: Any, errors: dict[int, int]) -> None:
            for outer in items_of(item) or ():
                for each in inner_of(outer) or ():
                    if code := code_of(each):
                        errors[code] = errors.get(code, 0) + 1

        return tally_inner
    tally = _tally(path[1:])

    def tally_nested(item: Any, errors: dict[int, int]) -> None:
        for each in items_of(item) or ():
            tally(each, errors)

    return tally_nested
