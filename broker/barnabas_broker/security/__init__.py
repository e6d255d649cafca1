"""Security: who is at the other end of a connection, and what it may do, in Kafka's terms.

Imported by handlers, groups, replication, server and the composition root; imports no configuration, so that what it
needs comes as arguments.

How it stands:

- TLS on any listener, with client certificates. A connection has a principal from its certificate
  (``Peer.principal``), otherwise it is ``User:ANONYMOUS``.
- SASL with PLAIN on any listener: until the client has logged in, a gate stands before the dispatcher
  (:mod:`barnabas_broker.server.sasl`).
- What a principal may do is stated in the row of each API (``Route.authorizes``) and not enforced yet.

The modules:

- :mod:`~barnabas_broker.security.principals`: principals, and the rules that make them of certificates (pure)
- :mod:`~barnabas_broker.security.names`: the subject of a certificate as Java writes it (pure)
- :mod:`~barnabas_broker.security.pem`: certificates and keys as text (pure)
- :mod:`~barnabas_broker.security.tls`: the TLS contexts of a listener, and their reload
- :mod:`~barnabas_broker.security.sasl`: the exchange of PLAIN, and its users (pure)
- :mod:`~barnabas_broker.security.acls`: operations, resource types, and the requirements that each API's row states
- :mod:`~barnabas_broker.security.operations`: the bit fields of authorized operations in responses (KIP-430)
"""
