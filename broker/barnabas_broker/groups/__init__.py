"""Group coordination: pure state machines, the effects and events that they return, and the shell around them.

- :mod:`~barnabas_broker.groups.classic`: groups of the classic protocol (``ClassicGroup``).
- :mod:`~barnabas_broker.groups.consumer`: groups of the consumer protocol (``ConsumerGroup``), assignors.
- :mod:`~barnabas_broker.groups.share`: share groups (``ShareGroup``), and their partitions.
- :mod:`~barnabas_broker.groups.offsets`: committed offsets (``GroupOffsets``).
- :mod:`~barnabas_broker.groups.coordinator`: the shell (``GroupCoordinator``).
- `journal` publishes the events of groups (:mod:`barnabas_explain`), `requests` keeps the requests around them.
- `effects`, `ports`: what these have in common.

Handlers, HTTP and the broker's composition root import this package. It imports ``coordinators``, ``config``, ``logs``,
``barnabas_explain`` and the protocol, but never ``replication``: the logs and leaderships that it needs are protocols.
"""
