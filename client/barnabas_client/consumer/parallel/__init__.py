"""``Consumer.run``: many handlers at a time, with ordered commits, retries and dead letters.

:mod:`~barnabas_client.consumer.parallel.work` decides what runs next and what may be committed, pure;
:class:`~barnabas_client.consumer.parallel.runner.Runner` runs it. The running handlers
(:mod:`~barnabas_client.consumer.parallel.handlers`), the dead letters and the settings
(:mod:`~barnabas_client.consumer.parallel.config`) are also those of ``ShareConsumer.run``
(:mod:`barnabas_client.shares.runner`). Imported by the two consumers, of which it imports nothing.
"""
