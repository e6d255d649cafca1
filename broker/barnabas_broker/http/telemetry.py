"""The metrics that clients have pushed (KIP-714), for Prometheus."""

from collections.abc import Iterator
from typing import Final

from barnabas_broker.http.text import COUNTER, GAUGE, PIECE, Sample, escape, family, one
from barnabas_broker.http.view import View
from barnabas_protocol.uuids import uuid_text

#: Begins the name of each pushed metric.
PREFIX: Final = "barnabas_client_"
#: Characters of a client id that are shown; the client instance id tells two clients apart that begin alike.
_SHOWN: Final = 200
#: Labels that tell which client it is.
_OURS: Final = frozenset({"client_id", "client_instance_id"})


def pushed(view: View) -> Iterator[str]:
    """The last values of all clients, and how many there are."""
    clients = view.telemetry
    families: dict[str, list[Sample]] = {}
    number = 0
    for client, values in clients.values():
        client_id = escape(client.client_id[:_SHOWN])
        mark = f'client_id="{client_id}",client_instance_id="{uuid_text(client.client_instance_id)}"'
        for (name, labels), value in list(values.items()):
            own = "".join(f',{key}="{escape(text)}"' for key, text in labels if key not in _OURS)
            families.setdefault(name, []).append((f"{{{mark}{own}}}", value))
            if not (number := number + 1) % PIECE:
                yield ""
    for name, samples in families.items():
        kind = COUNTER if name.endswith("_total") else GAUGE
        yield from family(f"{PREFIX}{name}", kind, "Pushed by clients.", samples)
    yield from one("barnabas_telemetry_clients", GAUGE, "Clients that asked which metrics to push.", len(clients))
    yield from one("barnabas_telemetry_series", GAUGE, "Series that clients have pushed.", len(clients.series))
    description = "Values that clients pushed and that were dropped, because there were too many series."
    yield from one("barnabas_telemetry_dropped_total", COUNTER, description, clients.series.dropped)
