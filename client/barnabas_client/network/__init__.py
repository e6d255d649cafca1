"""The cluster as a client reaches it: connections, metadata, and requests by node id.

:class:`network.Network` asks brokers and keeps metadata up to date. It uses :class:`connections.Connections`, which
opens, shares and closes :class:`connection.Connection` objects; :mod:`metadata` has the immutable
:class:`metadata.Cluster`, :mod:`versions` converts messages for older brokers, :mod:`retries` computes pauses. The
producer, the consumer, membership, the admin client and `barnabas_pipeline` import it.
"""
