"""The clients that push metrics: their subscriptions, the time of their next push, and their last values. Pure.

Source: Kafka's ``ClientMetricsManager`` and ``ClientMetricsInstance``.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from barnabas_broker.telemetry.points import Point
from barnabas_broker.telemetry.series import Series, SeriesKey, Values
from barnabas_broker.telemetry.subscriptions import MetricsSubscriptions, PushingClient, WantedMetrics
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import Codec
from barnabas_protocol.uuids import read_uuid_text

#: Maximum clients that are remembered, as in Kafka. The one that was silent for longest is forgotten first.
MOST_CLIENTS: Final = 16_384
#: Minimum seconds for which a silent client is remembered; otherwise three of its intervals.
LEAST_MEMORY: Final = 60.0
#: Clients between two turns of the event loop.
_PIECE: Final = 200
NO_ID: Final = bytes(16)
_CODECS: Final = frozenset(Codec)
#: Ids that mean something else in Kafka.
_RESERVED: Final = (NO_ID, bytes(15) + b"\x01")


@dataclass(slots=True)
class Instance:
    """One client.

    Attributes:
        client: what is known of it.
        subscriptions: those that `wanted` comes from.
        wanted: what it shall push.
        heard: when it last sent a request.
        asked: when its last GetTelemetrySubscriptions was accepted.
        pushed: when its last PushTelemetry was accepted.
        terminating: it has said that this was its last push.
        error: the answer to its last push.
        last_push: when its last PushTelemetry was read; None if it has pushed nothing.
        values: what it pushed last.
        read: the series that were in its last push, or in the part of it that was read so far.
    """

    client: PushingClient
    subscriptions: MetricsSubscriptions
    wanted: WantedMetrics
    heard: float
    asked: float = -inf
    pushed: float = -inf
    terminating: bool = False
    error: ErrorCode = ErrorCode.NONE
    last_push: float | None = None
    values: Values = field(default_factory=Values)
    read: set[SeriesKey] = field(default_factory=set)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its newest series: those that name the client's member are of the member that it is now."""
        key = next(reversed(self.values), None)
        return {} if key is None else dict(key[1])

    def memory_ends(self) -> float:
        """The time at which it is forgotten, unless it sends a request."""
        return self.heard + max(LEAST_MEMORY, 3 * self.wanted.interval_ms / 1000)


class Asked(NamedTuple):
    """Answer to a client: its id, and the metrics that it shall push."""

    client_instance_id: bytes
    wanted: WantedMetrics


class TelemetryClients:
    """The clients that have asked this broker what to push.

    Args:
        new_id: makes an id of 16 bytes for a client.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, new_id: Callable[[], bytes], now: Callable[[], float]) -> None:
        self.series = Series()
        self._new_id, self._now = new_id, now
        #: By client instance id, the one that was silent for longest first.
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()
        self._subscriptions = MetricsSubscriptions({})
        #: The client instance id that a connection used last.
        self._connected: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._instances)

    def subscribed(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Take the configuration of the cluster; to be called before each request."""
        if configs is not self._subscriptions.configs:
            self._subscriptions = MetricsSubscriptions(configs, self._subscriptions)

    def ask(self, client: PushingClient) -> Asked:
        """GetTelemetrySubscriptions: what the client shall push.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED, it has asked or pushed within its interval, and nothing has changed.
        """
        if client.client_instance_id == NO_ID:
            client = client._replace(client_instance_id=self._new_id())
        now = self._now()
        instance = self._heard(client, now)
        retries = instance.error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if self._over(instance, max(instance.asked, instance.pushed), now):
            instance.asked = now
        elif not retries:
            raise _too_early()
        instance.error = ErrorCode.NONE
        return Asked(client.client_instance_id, instance.wanted)

    def push(
        self, client: PushingClient, subscription_id: int, codec: int, size: int, most: int, *, terminating: bool
    ) -> Instance:
        """PushTelemetry: whether a push is accepted; its points follow.

        Args:
            client: whose push it is.
            subscription_id: what it pushes for.
            codec: its compression.
            size: its bytes, compressed.
            most: the largest size.
            terminating: it is the last push of the client.

        Raises:
            KafkaError: it is not accepted.
        """
        if client.client_instance_id in _RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "invalid client instance id")
        now = self._now()
        instance = self._heard(client, now)
        try:
            self._check(instance, subscription_id, codec, size, most, now, terminating=terminating)
        except KafkaError as error:
            instance.error = error.code
            raise
        finally:
            instance.terminating = terminating
        instance.error = ErrorCode.NONE
        instance.read.clear()
        return instance

    def _check(
        self,
        instance: Instance,
        subscription_id: int,
        codec: int,
        size: int,
        most: int,
        now: float,
        *,
        terminating: bool,
    ) -> None:
        if instance.terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has said that its push before was the last one")
        # The first push after an answer may come at any time: clients begin with a part of the interval.
        if instance.asked > instance.pushed or self._over(instance, instance.pushed, now):
            instance.pushed = now
        elif not terminating:
            raise _too_early()
        if subscription_id != instance.wanted.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscriptions have changed")
        if codec not in _CODECS:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}")
        if size > most:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"{size} bytes, more than {most}")

    def add(self, instance: Instance, point: Point) -> None:
        """Keep a point of a push that was accepted; one that no subscription asks for is left out."""
        known = self._instances.get(instance.client.client_instance_id) is instance
        if known and instance.wanted.wants(point.name):
            key = self.series.add(instance.values, point)
            if key is not None:
                instance.read.add(key)

    def finish(self, instance: Instance, code: ErrorCode) -> None:
        """All points of a push were added, or those before an error. Gauges that a whole push lacks are dropped."""
        instance.error = code
        if code is ErrorCode.NONE:
            instance.last_push = self._now()
            self.series.keep(instance.values, instance.read)
        instance.read.clear()

    def connected(self, connection: int, client_instance_id: bytes) -> bool:
        """A client uses a connection; whether that is new, so that :meth:`gone` has to follow."""
        new = connection not in self._connected
        self._connected[connection] = client_instance_id
        return new

    def gone(self, connection: int) -> None:
        """A connection is lost: on the next one, its client may ask at once. The client's values stay for a while."""
        instance = self._instances.get(self._connected.pop(connection))
        if instance is not None:
            instance.asked = instance.pushed = -inf
            instance.terminating, instance.error = False, ErrorCode.NONE

    def known(self) -> Iterator[Instance | None]:
        """The clients that are not silent for too long; the others are forgotten. None for a turn of the event loop."""
        now = self._now()
        for number, instance in enumerate(list(self._instances.values()), 1):
            if self._instances.get(instance.client.client_instance_id) is not instance:
                continue  # forgotten between two turns
            if instance.memory_ends() <= now:
                self._forget(instance)
                yield None
                continue
            if number % _PIECE == 0:
                yield None
            yield instance

    def find(self, client_instance_id: str) -> Instance | None:
        """The client with an id, in the form of :func:`~barnabas_protocol.uuids.uuid_text`; None if there is none."""
        instance = self._instances.get(read_uuid_text(client_instance_id))
        return None if instance is None or instance.memory_ends() <= self._now() else instance

    def _heard(self, client: PushingClient, now: float) -> Instance:
        instance = self._instances.get(client.client_instance_id)
        if instance is not None and instance.memory_ends() <= now:
            self._forget(instance)
            instance = None
        if instance is None:
            instance = Instance(client, self._subscriptions, self._subscriptions.wanted(client), now)
            self._instances[client.client_instance_id] = instance
            if len(self._instances) > MOST_CLIENTS:
                self._forget(next(iter(self._instances.values())))
        elif instance.subscriptions is not self._subscriptions:
            # As in Kafka: it may ask and push at once, and what it has pushed so far stays.
            instance.subscriptions, instance.wanted = self._subscriptions, self._subscriptions.wanted(client)
            instance.asked = instance.pushed = -inf
            instance.terminating, instance.error = False, ErrorCode.NONE
        instance.heard = now
        self._instances.move_to_end(client.client_instance_id)
        return instance

    def _forget(self, instance: Instance) -> None:
        self.series.forget(instance.values)
        del self._instances[instance.client.client_instance_id]

    @staticmethod
    def _over(instance: Instance, last: float, now: float) -> bool:
        return now - last >= instance.wanted.interval_ms / 1000


def _too_early() -> KafkaError:
    return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the interval between two pushes is not over")
