"""One module per API: its request and its response, each declared once for all versions.

To add an API, write a module here and a handler in the broker:

1. ``messages/<api>.py``: the structures, ``<Api>Request`` and ``<Api>Response`` with their key and versions
   (:mod:`barnabas_protocol.schema` has the field types), and at the end ``API = Api(<Api>Request, <Api>Response)``.
   Names are Kafka's. A version belongs into ``versions`` when the broker or the client can serve it.
2. The handler with its row, in ``barnabas_broker.handlers``.

Nothing else lists the API. :mod:`barnabas_protocol.apis` checks all of them when a broker starts,
``tests/protocol/messages/test_reference.py`` compares it with Kafka's schema, and the tests of the codec cover it. Only
``NOT_DECLARED`` in ``tests/protocol/test_registry.py``, the list of Kafka's other APIs, loses a name.
"""
