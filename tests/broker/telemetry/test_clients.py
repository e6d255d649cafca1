"""When a client may ask what to push, and push; and the values that are kept of it."""

from itertools import count

import pytest

from barnabas_broker.telemetry import Point, PushingClient, TelemetryClients, clients, series
from barnabas_broker.telemetry.clients import NO_ID
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.uuids import uuid_text

NEW = PushingClient(NO_ID, "shop", "librdkafka", "2.16.1", "10.0.0.1", 4711)
EVERYTHING = {"all": {"metrics": "*", "interval.ms": "10000"}}
MOST = 1000


class Shop:
    """The clients of a broker, on a clock, and one of them, which has asked what to push."""

    def __init__(self) -> None:
        self.now = 100.0
        numbers = count(1)
        self.clients = TelemetryClients(lambda: next(numbers).to_bytes(8) * 2, lambda: self.now)
        self.clients.subscribed(EVERYTHING)
        identity, self.wanted = self.clients.ask(NEW)
        self.client = NEW._replace(client_instance_id=identity)

    def ask(self) -> ErrorCode:
        try:
            self.wanted = self.clients.ask(self.client).wanted
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def push(self, subscription: int | None = None, codec: int = 0, size: int = 10, last: bool = False) -> ErrorCode:
        number = self.wanted.subscription_id if subscription is None else subscription
        try:
            self.instance = self.clients.push(self.client, number, codec, size, MOST, terminating=last)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def add(self, *names: str, value: float = 1, delta: bool = False, total: bool = False) -> None:
        for name in names:
            self.clients.add(self.instance, Point(name, {}, value, delta, total))

    def finish(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.clients.finish(self.instance, code)

    def values(self) -> dict[str, float]:
        return {name: each.value for one in self.clients.known() if one for (name, _), each in one.values.items()}


E = ErrorCode


def test_a_push_per_interval() -> None:
    shop = Shop()
    assert [shop.push(), shop.push()] == [E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
    shop.now += 9.9
    assert [shop.push(), shop.ask()] == [E.THROTTLING_QUOTA_EXCEEDED] * 2
    shop.now += 0.1
    assert [shop.push(), shop.push()] == [E.NONE, E.THROTTLING_QUOTA_EXCEEDED]


def test_a_client_asks_at_most_once_per_interval() -> None:
    shop = Shop()
    assert shop.ask() is E.THROTTLING_QUOTA_EXCEEDED
    shop.now += 10
    assert [shop.ask(), shop.ask()] == [E.NONE, E.THROTTLING_QUOTA_EXCEEDED]


def test_after_a_change_of_the_subscriptions_it_asks_at_once() -> None:
    shop = Shop()
    shop.push()
    shop.clients.subscribed({"all": {"metrics": "a."}})
    assert [shop.push(), shop.ask()] == [E.UNKNOWN_SUBSCRIPTION_ID, E.NONE]
    assert shop.wanted.metrics == ("a.",)
    # As in Kafka, the refused push was the one of its interval.
    assert shop.push() is E.THROTTLING_QUOTA_EXCEEDED
    shop.now += 300
    assert shop.push() is E.NONE


def test_on_a_new_connection_it_asks_at_once_and_keeps_its_values() -> None:
    shop = Shop()
    assert shop.clients.connected(1, shop.client.client_instance_id)
    assert not shop.clients.connected(1, shop.client.client_instance_id)
    shop.push()
    shop.add("a")
    shop.clients.gone(1)
    assert shop.ask() is E.NONE
    assert shop.values() == {"a": 1}


def test_values() -> None:
    shop = Shop()
    shop.push()
    shop.add("org.apache.kafka.producer.record.queue.time.avg", value=0.5)
    shop.add("total", value=3)
    shop.add("total", value=5)
    shop.add("difference", value=3, delta=True)
    shop.add("difference", value=5, delta=True)
    shop.add("1 odd näme")
    assert shop.values() == {"producer_record_queue_time_avg": 0.5, "total": 5, "difference": 8, "_1_odd_n_me": 1}


def test_gauges_that_a_push_lacks_are_dropped_and_totals_stay() -> None:
    shop = Shop()
    shop.push()
    shop.add("lag", "queue")
    shop.add("records", total=True)
    shop.finish()
    shop.now += 10
    shop.push()
    shop.add("queue")
    shop.finish()
    assert shop.values() == {"queue": 1, "records": 1}
    assert len(shop.clients.series) == 2


def test_a_push_that_cannot_be_read_drops_nothing() -> None:
    shop = Shop()
    shop.push()
    shop.add("lag")
    shop.finish()
    pushed = shop.instance.last_push
    shop.now += 10
    shop.push()
    shop.add("queue")
    shop.finish(E.INVALID_RECORD)
    assert shop.values() == {"lag": 1, "queue": 1}
    assert (shop.instance.last_push, shop.instance.error) == (pushed, E.INVALID_RECORD)


def test_the_labels_of_a_client_are_those_of_its_newest_series() -> None:
    shop = Shop()
    shop.push()
    assert shop.instance.labels == {}
    for member in ("one", "two"):
        shop.clients.add(shop.instance, Point("a", {"member_id": member}, 1, delta=False))
    assert shop.instance.labels == {"member_id": "two"}


def test_a_client_is_found_by_the_text_of_its_id() -> None:
    shop = Shop()
    text = uuid_text(shop.client.client_instance_id)
    found = shop.clients.find(text)
    assert found is not None
    assert found.client == shop.client
    for other in ("", "é", text + "A", text + "==", "x" * 10_000, text[:-1] + "\n"):
        assert shop.clients.find(other) is None
    shop.now += 60
    assert shop.clients.find(text) is None


def test_values_that_no_subscription_asks_for_are_left_out() -> None:
    shop = Shop()
    shop.clients.subscribed({"all": {"metrics": "a."}})
    shop.ask()
    shop.push()
    shop.add("a.b", "b.a")
    assert shop.values() == {"a_b": 1}


def test_a_silent_client_is_forgotten() -> None:
    shop = Shop()
    shop.push()
    shop.add("a")
    shop.now += 59.9
    assert shop.values() == {"a": 1}
    shop.now += 0.1
    assert shop.values() == {}
    assert (len(shop.clients), len(shop.clients.series)) == (0, 0)
    shop.add("a")  # the rest of a long push
    assert len(shop.clients.series) == 0


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_OF_CLIENT", 3)
    monkeypatch.setattr(series, "MOST", 4)
    shop = Shop()
    shop.push()
    shop.add("a", "b", "c", "d", "a")
    assert (len(shop.clients.series), shop.clients.series.dropped) == (3, 1)
    identity, shop.wanted = shop.clients.ask(NEW)
    shop.client = NEW._replace(client_instance_id=identity)
    shop.push()
    shop.add("a", "b")
    assert (len(shop.clients.series), shop.clients.series.dropped) == (4, 2)


def test_characters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    shop.push()
    monkeypatch.setattr(series, "MOST_CHARACTERS", 7)
    shop.clients.add(shop.instance, Point("abc", {"l": "xyz"}, 1, delta=False))
    shop.add("a")
    assert (len(shop.clients.series), shop.clients.series.dropped) == (1, 1)
    shop.push(last=True)
    shop.now += 60
    assert not shop.values()
    identity, shop.wanted = shop.clients.ask(NEW)
    shop.client = NEW._replace(client_instance_id=identity)
    shop.push()
    shop.add("abcdefg")
    assert (len(shop.clients.series), shop.clients.series.dropped) == (1, 1)


def test_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST_CLIENTS", 3)
    shop = Shop()
    shop.push()
    shop.add("a")
    for _ in range(3):
        shop.clients.ask(NEW)
    assert (len(shop.clients), len(shop.clients.series)) == (3, 0)


def test_the_event_loop_gets_a_turn_among_many_clients_and_after_each_that_is_forgotten() -> None:
    shop = Shop()
    for _ in range(400):
        shop.clients.ask(NEW)
    turns = [number for number, each in enumerate(shop.clients.known()) if each is None]
    assert turns == [199, 400]
    shop.now += 60
    assert list(shop.clients.known()) == [None] * 401
