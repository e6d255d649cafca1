"""The producer: collects records in batches and sends them to the leaders of their partitions.

:class:`producer.Producer` is what programs use; it puts records into the :class:`accumulator.Accumulator`, which the
:class:`sender.Sender` empties; :mod:`partitioner` chooses partitions. `barnabas_client.cli` and programs import it; it
imports :mod:`barnabas_client.network`.
"""
