"""Assignors: how the leader of a classic group assigns partitions to the members.

An assignor takes partition counts and the members' subscriptions and returns an assignment, the same on every machine.
The results are those of Kafka's assignors for the same input, ties included, so a group may have members in Python and
in Java. They differ where Kafka's assignors fail, or assign partitions that do not exist: see
:mod:`barnabas_client.assignors.sticky`.

=====================  ===============================================================================================
`range`                each topic by itself, in ranges; matches racks where that keeps the ranges (KIP-881)
`roundrobin`           all partitions, to the members in turn
`sticky`               balanced, with as few moves as possible (KIP-54, KIP-341); eager
`cooperative-sticky`   the same, but members read the partitions that they keep during the rebalance (KIP-429)
=====================  ===============================================================================================

To write your own assignor, derive a class from :class:`Assignor` and give it a `name` and an `assign`.

All modules here are pure. Imported by `config`, `membership` and `network`.
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
