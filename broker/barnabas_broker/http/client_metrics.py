"""Clients that push metrics, as JSON (KIP-714): all of them, the values of one, and those that are members of a group.

Names, labels and their number are the clients' choice; :mod:`barnabas_broker.telemetry` bounds them.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Final, Protocol

from barnabas_broker.config.keys import CLIENT_METRICS_INTERVAL_MS, CLIENT_METRICS_MATCH, CLIENT_METRICS_NAMES
from barnabas_broker.http.text import PIECE, listing
from barnabas_broker.http.view import View
from barnabas_broker.telemetry.clients import Instance
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.uuids import uuid_text

#: Characters of a client id that are shown; the client instance id tells two clients apart that begin alike.
SHOWN: Final = 200
#: Labels that name the group of a client, and the member: those of Java and franz-go, and of librdkafka.
_GROUP: Final = "group_id"
_MEMBERS: Final = ("group_member_id", "member_id")
#: Begins the names of metrics that only producers have.
_PRODUCER: Final = "producer_"

#: A client id and an address.
_Place = tuple[str, str]


class GroupMember(Protocol):
    """A member of a group of any type."""

    @property
    def member_id(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


def all_clients(view: View) -> Iterator[str]:
    """``/client-metrics``: the clients that asked this broker what to push, and the subscriptions of the cluster."""
    series = view.telemetry.series
    subscriptions = [_subscription(name, configs) for name, configs in view.cluster.image.client_metrics.items()]
    head = {
        "node_id": view.node_id,
        "time": view.wall_ms(),
        "subscriptions": subscriptions,
        "series": len(series),
        "dropped": series.dropped,
    }
    return listing(head, "clients", _rows(view))


def _subscription(name: str, configs: Mapping[str, str]) -> dict[str, Any]:
    interval = configs.get(CLIENT_METRICS_INTERVAL_MS.name, str(CLIENT_METRICS_INTERVAL_MS.default))
    return {
        "subscription": name[:SHOWN],
        "metrics": configs.get(CLIENT_METRICS_NAMES.name, "")[:SHOWN],
        # Checked when it was set, perhaps by another version.
        "interval_ms": int(interval) if interval.isdecimal() else None,
        "match": configs.get(CLIENT_METRICS_MATCH.name, "")[:SHOWN],
    }


def _rows(view: View) -> Iterator[dict[str, Any] | None]:
    now = view.now()
    for instance in view.telemetry.known():
        yield None if instance is None else _row(instance, now)


def _row(instance: Instance, now: float) -> dict[str, Any]:
    client, labels = instance.client, instance.labels
    return {
        "client_instance_id": uuid_text(client.client_instance_id),
        "client_id": client.client_id[:SHOWN],
        "address": client.client_source_address,
        "port": client.client_source_port,
        "software_name": client.client_software_name[:SHOWN],
        "software_version": client.client_software_version[:SHOWN],
        "group": labels.get(_GROUP),
        "interval_ms": instance.wanted.interval_ms,
        "subscribed": bool(instance.wanted.metrics),
        "pushed_ago_ms": None if instance.last_push is None else round((now - instance.last_push) * 1000),
        "heard_ago_ms": round((now - instance.heard) * 1000),
        "error": None if instance.error is ErrorCode.NONE else instance.error.name,
        "series": len(instance.values),
    }


def one_client(view: View, instance: Instance) -> Iterator[str]:
    """``/client-metrics/{id}``: a client with the last values of its metrics. A value is null if it is not finite."""
    found = list(instance.values.items())
    common: set[tuple[str, str]] | None = None
    for number, ((_, labels), _) in enumerate(found, 1):
        common = set(labels) if common is None else common.intersection(labels)
        if number % PIECE == 0:
            yield ""
    shared = common or set()
    head = {
        **_row(instance, view.now()),
        "node_id": view.node_id,
        "time": view.wall_ms(),
        "metrics": [each[:SHOWN] for each in instance.wanted.metrics],
        "labels": dict(sorted(shared)),
    }
    rows = (
        {
            "name": name,
            "labels": {key: text for key, text in labels if (key, text) not in shared},
            "value": each.value if isfinite(each.value) else None,
            "total": each.total,
        }
        for (name, labels), each in sorted(found)
    )
    yield from listing(head, "values", rows)


def pushing_members(
    view: View, group_id: str, members: Iterable[GroupMember]
) -> Generator[str, None, dict[str, dict[str, Any]]]:
    """Find the clients that push as members of a group.

    A client that names its member in its labels is that member. Of the others, those with the same client id and
    address may be it: clients that name the group, or if there are none, clients that name no group and are no
    producers.

    Args:
        view: the broker's parts.
        group_id: the group.
        members: of it.

    Yields:
        An empty text, for a turn of the event loop.

    Returns:
        By member id: the id of the client, None if several fit; how many fit; and whether it is certain.
    """
    if not len(view.telemetry):
        return {}
    places = {member.member_id: (member.client_id, member.client_host.removeprefix("/")) for member in members}
    named: dict[tuple[str, _Place], list[Instance]] = {}
    of_group: dict[_Place, list[Instance]] = {}
    of_none: dict[_Place, list[Instance]] = {}
    for instance in view.telemetry.known():
        if instance is None:
            yield ""
            continue
        newest, labels = next(reversed(instance.values), None), instance.labels
        if newest is None or labels.get(_GROUP, group_id) != group_id:
            continue
        place = instance.client.client_id, instance.client.client_source_address
        member_id = next((labels[key] for key in _MEMBERS if key in labels), None)
        if member_id is not None and member_id in places:
            named.setdefault((member_id, place), []).append(instance)
        elif _GROUP in labels:
            of_group.setdefault(place, []).append(instance)
        elif not newest[0].startswith(_PRODUCER):
            of_none.setdefault(place, []).append(instance)
    alike = Counter(place for member_id, place in places.items() if (member_id, place) not in named)
    found = {}
    for number, (member_id, place) in enumerate(places.items(), 1):
        if number % PIECE == 0:
            yield ""
        sure = named.get((member_id, place))
        fit = sure or of_group.get(place) or of_none.get(place)
        if fit:
            one = uuid_text(fit[0].client.client_instance_id) if len(fit) == 1 else None
            certain = one is not None and (sure is not None or alike[place] == 1)
            found[member_id] = {"client_instance_id": one, "count": len(fit), "certain": certain}
    return found
