"""``Consumer.run``: many handlers at a time, with ordered commits, retries and dead letters.

:mod:`~barnabas_client.consumer.parallel.work` decides what runs next and what may be committed, pure;
:class:`~barnabas_client.consumer.parallel.runner.Runner` runs it; settings are in
:mod:`~barnabas_client.consumer.parallel.config`. Imported by :mod:`barnabas_client.consumer.consumer`, of which it
imports nothing.
"""
