"""Membership in a consumer group.

:mod:`~barnabas_client.membership.classic` and :mod:`~barnabas_client.membership.consumer_member` are the state
machines of a member, pure: one for the classic group protocol, one for the consumer protocol (KIP-848).
:mod:`~barnabas_client.membership.thread` runs either on a thread and with connections of its own, and
:class:`~barnabas_client.membership.membership.Membership` is the end that the consumer holds. What describes a member
is in :mod:`~barnabas_client.membership.member`, what a machine asks for in :mod:`~barnabas_client.membership.effects`,
and the bytes that classic members exchange in :mod:`~barnabas_client.membership.member_data`.

The machines, and that of a share group's member in `shares`, are composed of the same parts:
:mod:`~barnabas_client.membership.standing` has the state and the steps that are due,
:mod:`~barnabas_client.membership.search` finds the coordinator, and :mod:`~barnabas_client.membership.heartbeats` joins
and stays in groups whose coordinator computes the assignment.

Imported by `consumer` and `shares`, and by `admin` and `cli` for the bytes. Imports `assignors` and `network`.
"""
