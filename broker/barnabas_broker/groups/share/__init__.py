"""Share groups: which records of a partition are delivered to which member (KIP-932).

- :mod:`~barnabas_broker.groups.share.partition`: the state machine of one share partition. Pure.
"""
