"""The share coordinator: the state of share partitions, in ``__share_group_state`` (KIP-932).

A share partition is a partition of a topic as one share group reads it. The leader of the topic's partition decides
which records are delivered; what has to survive it is written here.

- :mod:`~barnabas_broker.shares.ports`: how the leader of a partition reads and writes the state (``Persister``). Pure.
- :mod:`~barnabas_broker.shares.state`: the machine of one share partition's state (``SharePartitionState``). Pure.
- :mod:`~barnabas_broker.shares.records`: its records in ``__share_group_state``. Pure.
- :mod:`~barnabas_broker.shares.service`: the shell: requests, old records (``ShareCoordinator``).
- :mod:`~barnabas_broker.shares.persister`: finds the coordinator, here or on another broker (``SharePersister``).

Groups, handlers and the composition root import this package. It imports ``coordinators``, ``config`` and the protocol.
"""
