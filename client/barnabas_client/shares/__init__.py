"""Queues: a consumer of a share group (KIP-932).

:class:`~barnabas_client.shares.consumer.ShareConsumer` is what programs use, and
:class:`~barnabas_client.shares.polls.SharePolls` has its records. Below them are two pure machines, the membership
(:mod:`barnabas_client.shares.member`) and the share session with one leader (:mod:`barnabas_client.shares.session`),
and the tasks that carry out what they decide.
"""
