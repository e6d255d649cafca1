"""The network: bytes in, request frames to a dispatcher, responses out in order.

Imported by handlers and the composition root; imports config, metrics and the protocol. It does not know what a request
means: the dispatcher is a parameter.

- :class:`~barnabas_broker.server.server.SocketServer`: listeners, limits on connections, idle connections, drain
- :class:`~barnabas_broker.server.connection.Connection`: one connection: ordering, pipelining, backpressure, files
- :class:`~barnabas_broker.server.connection.Dispatcher`: what answers requests, with the types it needs
"""
