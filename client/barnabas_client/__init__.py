"""The async client: consumer, producer and admin, for Barnabas and Apache Kafka alike."""
