"""Share groups: members and their assignments, and which member gets which records of a partition (KIP-932).

- :mod:`~barnabas_broker.groups.share.group`: the state machine of a share group (``ShareGroup``). Pure.
- :mod:`~barnabas_broker.groups.share.assignor`: which members have which partitions. Pure.
- :mod:`~barnabas_broker.groups.share.partition`: the state machine of one share partition. Pure.

Their requests are in :mod:`~barnabas_broker.groups.coordinator.share_service` (``ShareGroups``).
"""
