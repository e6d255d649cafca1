"""Group events: what happened to a group, why, and what to do about it.

`events` turns them into records of ``__group_events`` and back, `rebuild` makes them from ``__consumer_offsets``,
`explain` explains them, `timeline` arranges them for a page, `storms` detects rebalance storms, `requests` keeps the
requests around them, `lines` has their log lines: these are pure. `journal` publishes them. The coordinator, HTTP, the
command line and the testing package import this package.
"""
