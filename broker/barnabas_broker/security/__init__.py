"""Security: who is at the other end of a connection, and what it may do, in Kafka's terms.

Imported by handlers, groups, replication, server, cluster and the composition root; imports no configuration, so that
what it needs comes as arguments.

How it stands:

- TLS on any listener, with client certificates. A connection has a principal from its certificate
  (``Peer.principal``), otherwise it is ``User:ANONYMOUS``.
- SASL on any listener: until the client has logged in, a gate stands before the dispatcher
  (:mod:`barnabas_broker.server.sasl`).
- What a principal must be allowed is stated in the row of each API (``Route.authorizes``), and its handler asks for it.
  The ACLs are in the cluster image.

The modules:

- :mod:`~barnabas_broker.security.principals`: principals, and the rules that make them of certificates (pure)
- :mod:`~barnabas_broker.security.x509_names`: the subject of a certificate as Java writes it (pure)
- :mod:`~barnabas_broker.security.pem`: certificates and keys as text (pure)
- :mod:`~barnabas_broker.security.tls`: the TLS contexts of a listener, and their reload
- :mod:`~barnabas_broker.security.sasl`: the exchange of PLAIN, and its users (pure)
- :mod:`~barnabas_broker.security.bearer`: the exchange of OAUTHBEARER, and tokens that are not signed (pure)
- :mod:`~barnabas_broker.security.tokens`: signed tokens, and the keys by which they are checked (pure)
- :mod:`~barnabas_broker.security.acls`: operations, resource types, and the requirements that each API's row states
- :mod:`~barnabas_broker.security.bindings`: ACLs, and the filters that find them (pure)
- :mod:`~barnabas_broker.security.authorizer`: decides by the ACLs what a principal may do (pure)
- :mod:`~barnabas_broker.security.audit`: the audit log
- :mod:`~barnabas_broker.security.operations`: the bit fields of authorized operations in responses (KIP-430)
"""
