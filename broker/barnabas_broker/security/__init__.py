"""Security: what a principal must be authorized for, in Kafka's terms. Nothing is enforced yet.

Imported by handlers and groups; imports nothing of the broker.

- :mod:`~barnabas_broker.security.acls`: operations, resource types, and the requirements that each API's row states
- :mod:`~barnabas_broker.security.operations`: the bit fields of authorized operations in responses (KIP-430)
"""
