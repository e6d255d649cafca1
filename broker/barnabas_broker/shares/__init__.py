"""The share coordinator: the state of share partitions, in ``__share_group_state`` (KIP-932).

A share partition is a partition of a topic as one share group reads it. The leader of the topic's partition decides
which records are delivered; what has to survive it is written here.

- :mod:`~barnabas_broker.shares.ports`: how the leader of a partition reads and writes the state (``Persister``).

Groups, handlers and the composition root import this package. It imports ``coordinators``, ``config`` and the protocol.
"""
