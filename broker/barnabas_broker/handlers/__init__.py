"""Handlers: one module per family of APIs. They translate between messages and services and hold no state.

Imported by the composition root and by testing; imports groups, replication, cluster, storage and server.

A handler stands beside its row, a :class:`~barnabas_broker.handlers.dispatch.Route`: the API, the handler, what Kafka
authorizes, and the versions if they are not all that the message declares. To add an API, declare its message and add a
handler with a row; :mod:`~barnabas_broker.handlers.table` joins the rows, and ApiVersions is derived from them.
"""
