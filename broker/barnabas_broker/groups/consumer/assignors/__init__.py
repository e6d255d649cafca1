"""The assignors that run in the coordinator, for groups of the consumer protocol. Pure.

==========  ==========================================================================================================
`uniform`   balanced over all topics, with as few moves as possible; the default
`range`     each topic by itself, in ranges: partition 3 of two topics goes to the same member if both have as many
            partitions and the same subscribers; static members come first, by instance id
==========  ==========================================================================================================

Both decide as Kafka 4.3.1's do. Kafka's `uniform` follows the order of Java's hash tables in places: here members and
topics are taken in the order of their ids instead. The group is as balanced as with Kafka, and as few partitions move.
Like Kafka's, they do not look at racks.

To add an assignor, write an :class:`~barnabas_broker.groups.consumer.assignment.Assignor`, install it as an entry point
of the group ``barnabas.assignors``, and name it in ``group.consumer.assignors``: see `installed`.
"""

from barnabas_broker.groups.consumer.assignors.installed import ENTRY_POINTS, CheckedAssignor, load_assignors
from barnabas_broker.groups.consumer.assignors.ranges import RangeAssignor
from barnabas_broker.groups.consumer.assignors.uniform import UniformAssignor

__all__ = ["ENTRY_POINTS", "CheckedAssignor", "RangeAssignor", "UniformAssignor", "load_assignors"]
