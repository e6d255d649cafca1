"""The replicas of partitions on this broker: appends, fetches, the in-sync replicas and what waits for them.

Imports :mod:`~barnabas_broker.storage`, :mod:`~barnabas_broker.cluster` and what is below them. The handlers, the HTTP
endpoint and the composition root import it; groups do not: they append through ports, which
:mod:`~barnabas_broker.replication.coordinator_logs` implements.

* :class:`~.manager.ReplicaManager` creates, leads, follows and deletes each :class:`~.replica.Replica`.
* :class:`~.leadership.Leadership` (pure) is the leader's view of its followers;
  :class:`~.alter_partition.AlterPartitionManager` proposes the ISRs that it computes.
* :class:`~.fetcher.ReplicaFetcherManager` fetches from leaders; :mod:`~.following` (pure) decides what to ask, where to
  truncate, and whether the leader's process has ended.
* :class:`~.durability.DelayedOperation` delays a response until records are synced, replicated or deleted everywhere.
* :class:`~.fetch_sessions.FetchSessionCache` (pure) keeps the fetch sessions of clients and followers.
"""
