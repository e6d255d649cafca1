"""Membership in a consumer group.

:mod:`~barnabas_client.membership.classic` is the member's state machine, pure; it speaks the classic group protocol.
:mod:`~barnabas_client.membership.thread` runs it on a thread and with connections of its own, and
:class:`~barnabas_client.membership.membership.Membership` is the end that the consumer holds. What describes a member
is in :mod:`~barnabas_client.membership.member`, what a machine asks for in :mod:`~barnabas_client.membership.effects`,
the bytes that members exchange in :mod:`~barnabas_client.membership.consumer_protocol`.

Imported by `consumer`, and by `admin` and `cli` for the bytes. Imports `assignors` and `network`.
"""
