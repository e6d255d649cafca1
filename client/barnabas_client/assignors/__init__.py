"""Who of a group gets which partitions: decided by the group's leader, a member, not by the broker.

An assignor takes partition counts and the members' subscriptions and returns an assignment, the same on every machine.
The results are those of Kafka's assignors for the same input, ties included, so that members in Python and in Java may
lead the same group in turns. They differ where Kafka's would fail or hand out what nobody can read: see
:mod:`barnabas_client.assignors.sticky`.

=====================  ===============================================================================================
`range`                each topic by itself, in ranges; racks are matched where that keeps the ranges (KIP-881)
`roundrobin`           all partitions dealt out in turn
`sticky`               even, and as few moves as possible (KIP-54, KIP-341); eager
`cooperative-sticky`   the same, but who keeps a partition goes on reading it during the rebalance (KIP-429)
=====================  ===============================================================================================

An assignor of one's own is a class derived from :class:`Assignor` with a `name` and an `assign`.
"""

from barnabas_client.assignors.base import (
    EAGER_ONLY,
    Assignments,
    Assignor,
    MemberSubscription,
    PartitionCounts,
    RebalanceProtocol,
    in_order,
)
from barnabas_client.assignors.ranges import RangeAssignor
from barnabas_client.assignors.roundrobin import RoundRobinAssignor
from barnabas_client.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "EAGER_ONLY",
    "Assignments",
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "PartitionCounts",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "in_order",
]
