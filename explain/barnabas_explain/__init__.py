"""Why a group rebalanced: its events, what they say in sentences, and what to do about it. Pure, without I/O.

The broker writes events with this package; the broker's page, the command line, the console, reports and the pytest
plugin read them with it. It imports only the protocol.

- :mod:`~barnabas_explain.catalog`: one class for each type of events, with its fields and what is said about it
- :mod:`~barnabas_explain.records`: reads, checks and writes them as records of ``__group_events``
- :mod:`~barnabas_explain.explain`: the explanation; `folding`: several events that say one thing as one
- :mod:`~barnabas_explain.storms`: rebalance storms; `storm_score`: how unstable a group is
- :mod:`~barnabas_explain.chart`: a group on a time axis; `timeline`: the owners of partitions; `unowned`: pauses
- :mod:`~barnabas_explain.log_lines`: the lines in the broker's log
- :mod:`~barnabas_explain.rebuild`: events that are rebuilt from ``__consumer_offsets``
- :mod:`~barnabas_explain.transactions`: the same for transactions
"""
