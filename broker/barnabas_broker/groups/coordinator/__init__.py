"""The shell around the group machines: clock, timers, futures and the log of ``__consumer_offsets``.

`service` has the requests (``GroupCoordinator``), `offset_service` those about offsets, `hosting` the groups of this
broker (``HostedGroups``); `loading` and `replay` load partitions, `partitions` decides which (``GroupPartitions``);
`writer` appends records, `timers` has one timer for all deadlines; `responses` and `inspection` build responses and are
pure, like `replay`. Handlers, HTTP and the broker's composition root import this package.
"""
