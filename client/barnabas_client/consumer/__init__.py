"""The consumer: subscriptions, fetching, positions, commits, rebalances, and parallel work.

:class:`~barnabas_client.consumer.consumer.Consumer` is what programs use;
:class:`~barnabas_client.consumer.session.Session` is everything that exists while it runs. Below them,
:mod:`~barnabas_client.consumer.polls` returns records,
:mod:`~barnabas_client.consumer.fetcher` fetches them, :mod:`~barnabas_client.consumer.positions` finds out where,
:mod:`~barnabas_client.consumer.commits` commits, and :mod:`~barnabas_client.consumer.rebalance` revokes and assigns
partitions. :mod:`~barnabas_client.consumer.parallel` is ``Consumer.run``.

Imports `membership`, `network`, `assignors`, and `producer` (for dead letters). Imported by `cli`;
:mod:`~barnabas_client.consumer.fetched` also by the pipeline.
"""
