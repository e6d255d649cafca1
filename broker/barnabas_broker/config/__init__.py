"""Configuration: Kafka's keys with their types, defaults and units, and where values come from."""
