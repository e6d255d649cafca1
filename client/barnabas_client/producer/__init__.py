"""The producer: collects records in batches and sends them to the leaders of their partitions.

:class:`producer.Producer` is what programs use; it puts records into the :class:`accumulator.Accumulator`, which the
:class:`sender.Sender` empties; :mod:`partitioner` chooses partitions. A transactional producer has a state machine
besides, :mod:`transaction`, which :mod:`transaction_manager` runs. `barnabas_client.cli` and programs import it; it
imports :mod:`barnabas_client.network`.
"""
