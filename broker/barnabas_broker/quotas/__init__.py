"""Quotas: how much of the broker a user, a client or an address may use (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612).

Imported by cluster, server, handlers and the composition root. All of it is pure: the time is an argument, and always
that of a monotonic clock.

How it works: quotas are part of the cluster image, set by AlterClientQuotas. :class:`.ClientQuotas` measures what each
client uses in the last seconds, and says for how long it has to wait. The response is sent at once, with that time in
``throttle_time_ms``; meanwhile the broker reads nothing from the connection (``Peer.mute``). Nothing is measured for
clients without a quota. What a client has used is forgotten when it no longer counts, so that memory is bounded.

- :mod:`~.entities`: users, clients and addresses that quotas are for, and the keys of quotas
- :mod:`~.rates`: rates over some seconds, and token buckets, as Kafka measures them
- :mod:`~.bounded_map`: what is measured of many, in bounded memory
- :mod:`~.clients`: the quotas of users and clients: which one applies, and how long a client has to wait
- :mod:`~.connections`: the limits of connections, by address and listener, and of their creation
"""
