"""The Apache Kafka wire protocol: schemas, codec, framing and record batches. No I/O happens here."""
