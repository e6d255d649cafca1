"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and each member reconciles at its own pace. Pure.

- ``group``: the whole state machine of one group (``ConsumerGroup``).
- ``reconciliation``: the next assignment of a member on its way to its target.
- ``records``: how each record of a group is written, and how it is read.
- ``assignment``: the port between the machine and the assignors (``Assignor``, ``GroupSpec``).
- ``assignors``: the assignors that the coordinator brings.
- ``regex``: the regular expressions that members subscribe with.
"""
