"""The admin client: topics, configurations, groups, committed offsets and the cluster.

:class:`admin.Admin` declares every operation: its brokers, its request, and the results of a response.
:class:`driver.Driver` carries it out, and repeats requests that a broker could not answer yet. :mod:`messages`, and the
modules of ACLs, quotas, users, share groups and transactions, have the longer parts of requests and responses;
:mod:`types` has the results. `barnabas_client.cli` and programs import it; it imports :mod:`barnabas_client.network`.
"""
