"""The broker over HTTP, read-only: metrics for Prometheus, groups and health as JSON.

Imported by the composition root; imports groups, replication, cluster, storage and server.

- :class:`~barnabas_broker.http.view.View`: the parts of the broker that are shown
- :class:`~barnabas_broker.http.endpoint.Endpoint`: the HTTP server of a broker; it and `responses` need aiohttp
"""
