"""The Apache Kafka wire protocol, without I/O: broker, client and pipeline import it, and it imports none of them.

- :mod:`~barnabas_protocol.messages`: the requests and responses, one module per API;
  :mod:`~barnabas_protocol.apis` has them by API key.
- :mod:`~barnabas_protocol.codec`: messages to bytes and back; :mod:`~barnabas_protocol.hot`: the same by hand, for the
  few messages that carry records or come with every poll.
- :mod:`~barnabas_protocol.framing`: frames out of a byte stream; :mod:`~barnabas_protocol.exchange`: the requests in
  flight on a connection.
- :mod:`~barnabas_protocol.records`: record batches.
- :mod:`~barnabas_protocol.coordinator_records`, :mod:`~barnabas_protocol.consumer_protocol`: what brokers store and
  group members exchange, in Kafka's schemas; :mod:`~barnabas_protocol.internal_topics`: where they store it.
- :mod:`~barnabas_protocol.sasl`: the messages by which a client logs in, with :mod:`~barnabas_protocol.scram`.
- :mod:`~barnabas_protocol.errors`: error codes, and the exceptions of this package.

Declarations are written with :mod:`~barnabas_protocol.schema` and become constructs in
:mod:`~barnabas_protocol.structures`, out of the primitives in :mod:`~barnabas_protocol.wire`.
"""
