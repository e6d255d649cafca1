"""The hand-written messages, and where they are used instead of the schemas.

Each message has one way to bytes and one way back:

- **By hand, here**: Produce in and out (broker), Fetch responses out (broker) and in (client, followers, Spark),
  OffsetCommit in and out (broker), the versions of an ApiVersions response in (client). Records are views of the frame
  or parts of the answer, never copies.
- **By the schema**, in :mod:`barnabas_protocol.codec`: every other message, and what a function here leaves to it. The
  schema is interpreted the first times and compiled then (:class:`barnabas_protocol.structures.MessageCodec`).

Every function here has a twin in the codec, which reads or writes the same message by its schema. Both agree on the
bytes of all versions that are served here, and refuse the same; the compiled schema is compared with the interpreted
construct in the same way (tests/protocol). A message belongs here if it carries records, or if a profile shows that its
schema costs too much. Functions are imported from the modules here: a consumer needs Fetch, and none of the others.
"""
