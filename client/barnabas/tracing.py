"""Spans of OpenTelemetry: see :mod:`barnabas_client.tracing`."""

from barnabas_client.tracing import instrument, process, uninstrument

__all__ = ["instrument", "process", "uninstrument"]
