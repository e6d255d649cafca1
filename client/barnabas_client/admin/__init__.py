"""The admin client: topics, configurations, groups, committed offsets and the cluster.

:class:`admin.Admin` has every operation. :class:`driver.Driver` finds the broker for each request and repeats requests
that a broker could not answer yet; :mod:`messages` translates between requests, responses and the results in
:mod:`types`. `barnabas_client.cli` and programs import it; it imports :mod:`barnabas_client.network`.
"""
