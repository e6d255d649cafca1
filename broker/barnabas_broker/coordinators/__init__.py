"""Common parts of the coordinators of groups, transactions and share partitions: their state is in the partitions of an
internal topic.

- :mod:`~barnabas_broker.coordinators.ports`: what a coordinator needs from outside.
- :mod:`~barnabas_broker.coordinators.partitions`: which partitions it loads and unloads (``CoordinatorPartitions``).
- :mod:`~barnabas_broker.coordinators.runtime`: finds ids, loads and unloads partitions, and carries out what machines
  decide (``Runtime``).
- :mod:`~barnabas_broker.coordinators.result`: what a machine decides (``Result``). Pure.
- :mod:`~barnabas_broker.coordinators.replay`: reads the records of a partition again (``PartitionReplay``).
- :mod:`~barnabas_broker.coordinators.writer`: appends records (``Writer``).
- :mod:`~barnabas_broker.coordinators.leader_requests`: requests to leaders on other brokers (``LeaderRequests``).
- :mod:`~barnabas_broker.coordinators.timers`: one timer for all deadlines (``Timers``).

Imported by :mod:`barnabas_broker.groups`, :mod:`barnabas_broker.shares` and :mod:`barnabas_broker.transactions`;
:mod:`barnabas_broker.replication.coordinator_logs` implements the port of the log.
"""
