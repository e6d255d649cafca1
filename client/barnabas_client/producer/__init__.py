"""The producer: batches, partitions, sending, retries."""
