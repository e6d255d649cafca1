"""The shell around the group machines: clock, timers, futures and the log of ``__consumer_offsets``.

`service` has the requests (``GroupCoordinator``), `offset_service` those about offsets and `share_service` those about
share groups; `hosting` has the groups of this broker (``HostedGroups``); `loading` and `replay` load partitions;
`responses` and `inspection` build responses and are pure, like `replay`. The transaction coordinator shares
:mod:`barnabas_broker.coordinators` with it. Handlers, HTTP and the broker's composition root import this package.
"""
