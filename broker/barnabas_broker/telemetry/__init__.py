"""Metrics that clients push (KIP-714). Pure.

A subscription says which metrics clients shall push, which clients, and how often. It is configuration of the cluster
(`client-metrics`, :mod:`barnabas_broker.telemetry.subscriptions`). A client asks with GetTelemetrySubscriptions what
it shall push, and pushes that in its interval (:mod:`barnabas_broker.telemetry.clients`). Its last values are on
``/metrics`` until it is silent for three intervals (:mod:`barnabas_broker.telemetry.series`). A push is a message of
OpenTelemetry, read by :mod:`barnabas_broker.telemetry.points`; whatever it holds, time and memory are bounded.
"""

from barnabas_broker.telemetry.clients import Asked, TelemetryClients
from barnabas_broker.telemetry.points import MalformedMetrics, Point, points
from barnabas_broker.telemetry.subscriptions import MetricsSubscription, MetricsSubscriptions, PushingClient

__all__ = [
    "Asked",
    "PushingClient",
    "MalformedMetrics",
    "Point",
    "MetricsSubscription",
    "MetricsSubscriptions",
    "TelemetryClients",
    "points",
]
