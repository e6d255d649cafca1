"""The partitions that this broker keeps: appending, reading, and waiting for data."""
