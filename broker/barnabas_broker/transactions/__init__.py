"""The transaction coordinator: transactional ids, their transactions, and the markers that end them (KIP-98).

How a transaction runs:

1. FindCoordinator names the broker that leads the id's partition of ``__transaction_state``: its coordinator.
2. InitProducerId gives the id a producer id and an epoch; producers with an older epoch are fenced from then on.
3. Partitions are added before records are written to them: by AddPartitionsToTxn and AddOffsetsToTxn of the client, or,
   in version 2 (KIP-890), by the leader that gets the first batch. In all versions the leader asks the coordinator
   before the first batch of a transaction whether the partition belongs to it (``TransactionCoordinator.verify``).
4. EndTxn writes the decision, PrepareCommit or PrepareAbort, to ``__transaction_state``. From then on the outcome is
   certain, and the client is answered.
5. Markers go to the leaders of all partitions, again and again until each one is written; then CompleteCommit or
   CompleteAbort is written, and the next transaction may begin.

A coordinator that takes over a partition replays it and continues at 5 with what it finds in a Prepare state.

- :mod:`~barnabas_broker.transactions.transaction`: the state machine of one transactional id (``Transaction``). Pure.
- :mod:`~barnabas_broker.transactions.records`: its records in ``__transaction_state``. Pure.
- :mod:`~barnabas_explain.transactions`: events of slow and aborted transactions, and their explanation. Pure.
- :mod:`~barnabas_broker.transactions.service`: the shell: requests, markers, timeouts (``TransactionCoordinator``).
- :mod:`~barnabas_broker.transactions.markers`: sends markers until they are written (``MarkerSender``).
- :mod:`~barnabas_broker.transactions.ports`: what the coordinator needs from outside.

Handlers, HTTP and the composition root import this package. It imports ``coordinators``, ``config``, ``storage.names``
and the protocol, but never ``replication`` or ``groups``.
"""
