"""Share partitions on the leaders of their logs: what ShareFetch and ShareAcknowledge work on (KIP-932).

- :mod:`~barnabas_broker.share_partitions.sessions`: the share sessions of members. Pure.
- :mod:`~barnabas_broker.share_partitions.hosted`: one share partition: its machine, log, locks, and writes.
- :mod:`~barnabas_broker.share_partitions.service`: opens and closes them (``SharePartitions``).

Handlers and the composition root import this package. It imports ``groups.share``, ``replication``, the port of
``shares`` and what is below.
"""
